"""Networks as ONNX files."""

from pareo.nn.onnx_export.layers import WRITERS
from pareo.nn.onnx_export.written import to_onnx

__all__ = ["WRITERS", "to_onnx"]
