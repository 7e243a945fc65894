"""Operators of windows: convolutions and pooling, with every way in which ONNX states padding."""

from typing import Any

from pareo.nn import layers
from pareo.nn.layers import Shape
from pareo.nn.onnx_import.reader import OnnxReader, Step
from pareo.nn.onnx_import.values import Constant, Term
from pareo.nn.onnx_import.weights import constant, given
from pareo.nn.torch_import.operands import images, square
from pareo.nn.torch_import.values import Unsupported, Value

Sides = tuple[int, int, int, int]  # top, left, bottom, right, as ONNX has them too


def around(step: Step, image: Shape, window: Any, stride: Any, dilation: Any) -> Sides:
    """The padding of a node, from `pads` or `auto_pad`."""
    auto, pads = step.get("auto_pad", "NOTSET"), step.get("pads", [0, 0, 0, 0])
    if auto == "VALID":
        return 0, 0, 0, 0
    if auto == "NOTSET":
        if len(pads) != 4 or min(pads) < 0:
            raise Unsupported(f"with pads = {pads}")
        return pads[0], pads[1], pads[2], pads[3]
    if auto not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(f"with auto_pad = {auto}")
    before, after = [], []
    for axis in (0, 1):
        count = -(-image[axis] // stride[axis])
        span = dilation[axis] * (window[axis] - 1) + 1
        whole = max(0, (count - 1) * stride[axis] + span - image[axis])
        first = whole // 2 if auto == "SAME_UPPER" else -(-whole // 2)
        before.append(first)
        after.append(whole - first)
    return before[0], before[1], after[0], after[1]


def padding(sides: Sides) -> Any:
    """Padding as layers have it: one number, two or all four."""
    pair = sides[:2]
    return square(pair) if pair == sides[2:] else sides


def pair(step: Step, name: str, usual: Any = (1, 1)) -> tuple[int, int]:
    """An attribute with a number for height and width."""
    found = step.get(name) or usual
    if len(found) != 2 or min(found) < 1:
        raise Unsupported(f"with {name} = {list(found)}")
    return found[0], found[1]


def pad(reader: OnnxReader, step: Step) -> Any:
    """Padding, which becomes part of the convolution or pooling that reads it."""
    x, mode = images(step.inputs[0]), step.get("mode", "constant")
    if mode != "constant":
        raise Unsupported(f"with mode = {mode}")
    pads, number, axes = (step.numbers(place, "pads") for place in (1, 2, 3))
    if not isinstance(step.input(1), Constant):
        raise Unsupported("without pads")
    count = len(x.shape) + 1
    where = range(count) if axes is None else [int(axis) % count for axis in axes]
    sides = [0] * (2 * count)
    for place, axis in enumerate(where):
        sides[axis], sides[count + axis] = int(pads[place]), int(pads[place + len(where)])
    if not any(sides):
        return x
    if any(sides[:2]) or any(sides[4:6]) or min(sides) < 0:
        raise Unsupported(f"with pads = {[int(one) for one in pads]}")
    outside = 0.0 if number is None else float(number.reshape(()))
    return Term("padding", x, ((sides[2], sides[3], sides[6], sides[7]), outside))


def padded(x: Any, outside: float) -> tuple[Value, Sides]:
    """Images, and the padding by `Pad` before them, of this number."""
    if not isinstance(x, Term) or x.kind != "padding":
        return images(x), (0, 0, 0, 0)
    sides, number = x.more
    if number != outside:
        raise Unsupported(f"of images that are padded with {number:g}")
    return x.x, sides


def _both(first: Sides, second: Sides) -> Sides:
    top, left, bottom, right = (a + b for a, b in zip(first, second, strict=True))
    return top, left, bottom, right


def _image(x: Value, sides: Sides) -> Shape:
    return x.shape[1] + sides[0] + sides[2], x.shape[2] + sides[1] + sides[3]


def conv(reader: OnnxReader, step: Step) -> Value:
    """A convolution."""
    x, sides = padded(step.inputs[0], 0.0)
    w = constant(step, 1, "weight")
    if w.array.ndim != 4:
        raise Unsupported(f"its weight has the shape {w.shape}")
    window = w.shape[2:]
    if tuple(step.get("kernel_shape", window)) != window:
        raise Unsupported(f"with kernel_shape = {step.get('kernel_shape')}")
    stride, dilation = pair(step, "strides"), pair(step, "dilations")
    own = around(step, _image(x, sides), window, stride, dilation)
    weights = {"w": given(w)}
    if step.input(2) is not None:
        weights["b"] = given(constant(step, 2, "bias"))
    layer = layers.Conv(
        w.shape[0], square(window), square(stride), padding(_both(sides, own)),
        step.get("group", 1), bias="b" in weights, dilation=square(dilation),
    )  # fmt: skip
    return reader.layer(layer, x, weights)


def _window(step: Step) -> tuple[tuple[int, int], tuple[int, int]]:
    window, stride = pair(step, "kernel_shape", ()), pair(step, "strides")
    if pair(step, "dilations") != (1, 1):
        raise Unsupported(f"with dilations = {step.get('dilations')}")
    return window, stride


def max_pool(reader: OnnxReader, step: Step) -> Value:
    """Max pooling without dilation."""
    step.get("storage_order")  # of its second result only
    x, sides = padded(step.inputs[0], float("-inf"))
    window, stride = _window(step)
    own = around(step, _image(x, sides), window, stride, (1, 1))
    ceil = bool(step.get("ceil_mode", 0)) and step.get("auto_pad") == "NOTSET"
    pool = layers.MaxPool(square(window), square(stride), padding(_both(sides, own)), ceil)
    return reader.layer(pool, x)


def average_pool(reader: OnnxReader, step: Step) -> Value:
    """Average pooling, with the padding counted or not."""
    counted = bool(step.get("count_include_pad", 0))
    x, sides = padded(step.inputs[0], 0.0)
    window, stride = _window(step)
    own = around(step, _image(x, sides), window, stride, (1, 1))
    if any(sides) and any(own) and not counted:
        raise Unsupported("of images that are padded")
    whole = _both(sides, own)
    counts = any(whole) and (counted or any(sides))
    ceil = bool(step.get("ceil_mode", 0)) and step.get("auto_pad") == "NOTSET"
    pool = layers.AveragePool(square(window), square(stride), padding(whole), ceil, counts)
    return reader.layer(pool, x)
