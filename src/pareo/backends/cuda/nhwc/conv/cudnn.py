"""Convolutions by cuDNN, through nvidia-cudnn-frontend: a graph and its plans for each."""

from functools import cache
from importlib import import_module
from typing import Any

from pareo.backends.cuda.nhwc.conv.problem import (
    BIAS,
    FILTERS,
    IMAGES,
    RESULT,
    Convolution,
    Shape,
)


@cache
def missing() -> str | None:
    """Why cuDNN is not available, in one sentence; None where it is."""
    try:
        library = import_module("cudnn")
    except ImportError:
        return "nvidia-cudnn-frontend is not installed"
    try:
        library.backend_version()
    except RuntimeError as error:
        return f"cuDNN was not found: {error}"
    return None


def version() -> int:
    """cuDNN's version, 91900 for 9.19.0."""
    return int(import_module("cudnn").backend_version())


@cache
def handle(device: int) -> Any:
    """cuDNN's handle on a GPU."""
    return import_module("cudnn").create_handle()


class Graph:
    """A convolution as a cuDNN graph, whose plans can be listed, built and run."""

    def __init__(self, convolution: Convolution) -> None:
        import cupy

        self._library = import_module("cudnn")
        self._handle = handle(cupy.cuda.Device().id)
        self._graph = self._described(convolution)
        self._graph.validate()
        self._graph.build_operation_graph()
        self._graph.create_execution_plans([self._library.heur_mode.A])
        if convolution.precision == "float32":
            notes = self._library.numerical_note
            self._graph.deselect_numeric_notes([notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS])
        self._graph.check_support()
        self.names = [
            self._graph.get_plan_name_at_index(index)
            for index in range(self._graph.get_execution_plan_count())
        ]

    def build(self, index: int) -> int | None:
        """Build a plan; returns the bytes of its workspace, or None where it is not supported."""
        try:
            self._graph.build_plan_at_index(index)
        except (RuntimeError, self._library.cudnnGraphNotSupportedError):
            return None
        return int(self._graph.get_workspace_size_plan_at_index(index))

    def run(self, index: int, pointers: dict[int, int], workspace: int) -> None:
        """Run a plan that was built, on the current stream."""
        import cupy

        self._library.set_stream(handle=self._handle, stream=cupy.cuda.get_current_stream().ptr)
        self._graph.execute_plan_at_index(pointers, workspace, index, handle=self._handle)

    def _described(self, convolution: Convolution) -> Any:
        types = self._library.data_type
        kind = types.BFLOAT16 if convolution.precision == "bfloat16" else types.FLOAT
        graph = self._library.pygraph(
            handle=self._handle,
            io_data_type=kind,
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
        )

        def given(name: int) -> Any:
            shape = convolution.shape(name)
            return graph.tensor(
                dim=list(shape), stride=channels_last(shape), data_type=kind, uid=name
            )

        how = {
            "pre_padding": list(convolution.padding[:2]),
            "post_padding": list(convolution.padding[2:]),
            "stride": list(convolution.stride),
            "dilation": list(convolution.dilation),
        }
        if convolution.computes == "result":
            name, out = RESULT, graph.conv_fprop(image=given(IMAGES), weight=given(FILTERS), **how)
            if convolution.epilogue:
                out = graph.bias(input=out, bias=given(BIAS))
            if convolution.epilogue == "bias_relu":
                out = graph.relu(input=out)
        elif convolution.computes == "images":
            name, out = IMAGES, graph.conv_dgrad(loss=given(RESULT), filter=given(FILTERS), **how)
        else:
            name, out = FILTERS, graph.conv_wgrad(image=given(IMAGES), loss=given(RESULT), **how)
        shape = convolution.shape(name)
        out.set_output(True).set_data_type(kind).set_uid(name)
        out.set_dim(list(shape)).set_stride(channels_last(shape))
        return graph


def channels_last(shape: Shape) -> list[int]:
    """The strides, in elements, of a channels-last array of shape (N, C, H, W).

    >>> channels_last((2, 3, 4, 5))
    [60, 1, 15, 3]
    """
    _, channels, height, width = shape
    return [channels * height * width, 1, width * channels, channels]
