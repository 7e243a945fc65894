"""Plans for special convolutions, compared with the operators."""

import numpy as np
import pytest
from devices import needs_gpu

from pareo import op
from pareo.backends.cuda.nhwc.conv import depthwise
from pareo.backends.cuda.nhwc.conv.problem import FILTERS, IMAGES, RESULT, Convolution


def convolution(computes, shape, stride=1, padding=1, precision="bfloat16"):
    images, channels, height, width = shape
    filters = channels, 1, 3, 3
    out = [(side + 2 * padding - 3) // stride + 1 for side in (height, width)]
    strides, pads = (stride, stride), (padding,) * 4
    result = images, channels, *out
    return Convolution(computes, shape, filters, result, strides, pads, (1, 1), precision)


@pytest.mark.smoke
def test_only_filters_of_one_channel_are_depthwise():
    one = convolution("result", (2, 16, 9, 9))
    assert depthwise.plan(one) is not None
    assert depthwise.plan(convolution("result", (2, 12, 9, 9))) is None
    assert depthwise.plan(convolution("result", (2, 12, 9, 9), precision="tf32")) is not None
    assert depthwise.plan(convolution("result", (2, 16, 9, 9), stride=3)) is None
    grouped = Convolution(
        "result", one.images, (16, 2, 3, 3), one.result, one.stride, one.padding, (1, 1), "tf32"
    )
    assert depthwise.plan(grouped) is None


def last(a):
    return np.ascontiguousarray(a.transpose(0, 2, 3, 1))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("shape", [(3, 96, 14, 13), (2, 8, 7, 33), (1, 144, 5, 3)], ids=str)
def test_depthwise_convolutions(shape, padding, stride, precision):
    import cupy
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16 if precision == "bfloat16" else np.float32)
    tolerance = 6e-3 if precision == "bfloat16" else 2e-6
    one = convolution("result", shape, stride, padding, precision)
    random = np.random.default_rng(1)
    arrays = {
        name: random.standard_normal(one.shape(name)).astype(kind).astype(np.float32)
        for name in (IMAGES, FILTERS, RESULT)
    }
    x, w, g = arrays.values()
    how = {"stride": stride, "padding": padding, "groups": shape[1]}
    wanted = {
        "result": (RESULT, op.conv(x, w, **how)),
        "images": (IMAGES, op.conv_input_gradient(g, w, size=shape[2:], **how)),
        "filters": (FILTERS, op.conv_weight_gradient(x, g, size=(3, 3), **how)),
    }
    for computes, (name, right) in wanted.items():
        plan = depthwise.plan(convolution(computes, shape, stride, padding, precision))
        here = {key: cupy.asarray(last(a).astype(kind)) for key, a in arrays.items()}
        here[name].fill(99)
        work = cupy.full(max(1, plan.workspace), 77, np.uint8)
        plan.run(here, work)
        found = cupy.asnumpy(here[name]).astype(np.float64)
        assert np.linalg.norm(found - last(right)) <= tolerance * np.linalg.norm(right), computes


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
@pytest.mark.parametrize(("window", "padding"), [(1, 0), (3, 1), (3, 0), (5, 3)])
def test_products_and_reversed_convolutions(window, padding, precision):
    import cupy
    import ml_dtypes

    from pareo import Device
    from pareo.backends.cuda.nhwc.conv import plans

    pytest.importorskip("cudnn")
    kind = np.dtype(ml_dtypes.bfloat16 if precision == "bfloat16" else np.float32)
    tolerance = {"float32": 2e-6, "tf32": 1e-3, "bfloat16": 6e-3}[precision]
    out = 9 + 2 * padding - window + 1
    shapes = (4, 16, 9, 9), (24, 16, window, window), (4, 24, out, out)
    random = np.random.default_rng(1)
    x, w, g = (random.standard_normal(s).astype(kind).astype(np.float32) for s in shapes)
    wanted = {
        "result": (RESULT, op.conv(x, w, padding=padding)),
        "images": (IMAGES, op.conv_input_gradient(g, w, size=(9, 9), padding=padding)),
        "filters": (FILTERS, op.conv_weight_gradient(x, g, size=(window,) * 2, padding=padding)),
    }
    names = ["pareo product"] if window == 1 else ["pareo reversed"]
    tried = 0
    for computes, (name, right) in wanted.items():
        one = Convolution(
            computes, *shapes, (1, 1), (padding,) * 4, (1, 1), precision
        )  # fmt: skip
        with Device("cuda", precision=precision):
            for plan in (plans.OWN_PLANS[n](one) for n in names):
                if plan is None:
                    continue
                tried += 1
                here = {
                    key: cupy.asarray(last(a).astype(kind))
                    for key, a in ((IMAGES, x), (FILTERS, w), (RESULT, g))
                }
                here[name].fill(99)
                plan.run(here, cupy.full(max(1, plan.workspace), 77, np.uint8))
                found = cupy.asnumpy(here[name]).astype(np.float64)
                error = np.linalg.norm(found - last(right))
                assert error <= tolerance * np.linalg.norm(right), computes
    assert tried == (3 if window == 1 else 1)
