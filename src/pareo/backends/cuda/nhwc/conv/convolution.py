"""The instructions that convolve: forward, gradient of the images, gradient of the filters."""

from collections.abc import Sequence
from typing import Any

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv import plans
from pareo.backends.cuda.nhwc.conv.problem import BIAS, FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.nhwc.kernels.table import instruction
from pareo.spec import Spec


def convolution(
    computes: str, images: Array | Spec, filters: Array | Spec, result: Array | Spec, **how: Any
) -> Convolution:
    """The convolution of three channels-last arrays or specs."""
    return Convolution(
        computes,
        _channels_first(images.shape),
        _channels_first(filters.shape),
        _channels_first(result.shape),
        how["stride"],
        how["padding"],
        how["dilation"],
        how["precision"],
        how.get("epilogue", ""),
    )


def _channels_first(shape: tuple[int, ...]) -> tuple[int, ...]:
    count, height, width, channels = shape
    return (count, channels, height, width)


def _workspace(one: Convolution) -> list[Spec]:
    plan = plans.best(one)
    assert plan is not None, "only convolutions that have a plan are lowered"
    return [Spec((max(plan.workspace, 1),), "uint8")]


def _run(one: Convolution, arrays: dict[int, Array], workspace: Array) -> None:
    plan = plans.best(one)
    assert plan is not None
    plan.run(arrays, workspace)


def _forward_scratch(out: Spec, x: Spec, w: Spec, *_: Spec, **how: Any) -> list[Spec]:
    return _workspace(convolution("result", x, w, out, **how))


@instruction(_forward_scratch)
def conv_forward(
    out: Array, x: Array, w: Array, *b: Array, scratch: Sequence[Array], **how: Any
) -> None:
    one = convolution("result", x, w, out, **how)
    arrays = {IMAGES: x, FILTERS: w, RESULT: out, **({BIAS: b[0]} if b else {})}
    _run(one, arrays, scratch[0])


def _backward_data_scratch(out: Spec, g: Spec, w: Spec, **how: Any) -> list[Spec]:
    return _workspace(convolution("images", out, w, g, **how))


@instruction(_backward_data_scratch)
def conv_backward_data(
    out: Array, g: Array, w: Array, scratch: Sequence[Array], **how: Any
) -> None:
    _run(convolution("images", out, w, g, **how), {IMAGES: out, FILTERS: w, RESULT: g}, scratch[0])


def _backward_filter_scratch(out: Spec, x: Spec, g: Spec, **how: Any) -> list[Spec]:
    return _workspace(convolution("filters", x, out, g, **how))


@instruction(_backward_filter_scratch)
def conv_backward_filter(
    out: Array, x: Array, g: Array, scratch: Sequence[Array], **how: Any
) -> None:
    _run(convolution("filters", x, out, g, **how), {IMAGES: x, FILTERS: out, RESULT: g}, scratch[0])
