"""Networks from ONNX files: a graph becomes an ordinary network of pareo, after a check."""

from pareo.nn.onnx_import.imported import from_onnx

__all__ = ["from_onnx"]
