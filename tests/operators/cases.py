"""For every operator: how to draw a call of it, and what PyTorch says that the call computes.

A new operator needs one function here, named after it; the tests in `test_operators.py` follow
from it. Values stay away from kinks (relu at 0, ties in max) and from the edges of domains (log,
div), so that a numerical gradient exists. Sides are small, because `sequential` is slow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from operators import cases_today
from operators.drawing import CASES, Call, Draw, case

__all__ = ["CASES", "cases_today"]


def both(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else value


def sides(padding: Any) -> tuple[int, int, int, int]:
    """(top, left, bottom, right)."""
    padding = both(padding)
    return padding if len(padding) == 4 else (*padding, *padding)


def back(function: Callable[[Any], Any], point: Any, g: Any) -> Any:
    """g taken back through a function by PyTorch; the result can be differentiated again."""
    point = point if point.requires_grad else point.requires_grad_()
    return torch.autograd.grad(function(point), point, g, create_graph=True)[0]


# Elementwise


def _two(d: Draw, second: Callable[[tuple[int, ...]], Any] | None = None) -> Call:
    shape = d.shape()
    a, b = d.array(d.shrunk(shape)), (second or d.array)(d.shrunk(shape))
    number = d.one_of(None, None, 0, 1)
    if number == 0:
        return Call((1.5, b), {})
    return Call((a, -3 if number == 1 else b), {})


@case(torch.add, exact=True)
def add(d: Draw) -> Call:
    return _two(d)


@case(torch.sub, exact=True)
def sub(d: Draw) -> Call:
    return _two(d)


@case(torch.mul, exact=True)
def hadamard(d: Draw) -> Call:
    return _two(d)


@case(torch.div, exact=True)
def div(d: Draw) -> Call:
    return _two(d, d.away)


@case(torch.mul, exact=True)
def scale(d: Draw) -> Call:
    return Call((d.number(), d.array(d.shape())), {})


@case(torch.exp)
def exp(d: Draw) -> Call:
    return Call((d.array(d.shape()),), {})


@case(torch.log)
def log(d: Draw) -> Call:
    return Call((d.array(d.shape(), 0.5, 3),), {})


@case(torch.sigmoid)
def sigmoid(d: Draw) -> Call:
    return Call((d.array(d.shape(), -5, 5),), {})


@case(lambda g, y: g * y * (1 - y))
def sigmoid_gradient(d: Draw) -> Call:
    shape = d.shape()
    return Call((d.array(shape), d.array(shape, 0.1, 0.9)), {})


@case(torch.tanh)
def tanh(d: Draw) -> Call:
    return Call((d.array(d.shape(), -3, 3),), {})


@case(lambda g, y: g * (1 - y * y))
def tanh_gradient(d: Draw) -> Call:
    shape = d.shape()
    return Call((d.array(shape), d.array(shape, -0.9, 0.9)), {})


@case(torch.relu, exact=True)
def relu(d: Draw) -> Call:
    return Call((d.away(d.shape()),), {})


@case(lambda g, y: torch.where(y <= 0, 0, g), exact=True)
def relu_gradient(d: Draw) -> Call:
    shape = d.shape()
    return Call((d.array(shape), d.away(shape)), {})


@case(lambda a, shape: torch.broadcast_to(a, shape), exact=True)
def broadcast(d: Draw) -> Call:
    shape = d.shape()
    return Call((d.array(d.shrunk(shape)),), {"shape": shape})


# Linear


@case(torch.matmul)
def dot(d: Draw) -> Call:
    leading = d.shape((0, 2), most=2)
    rows, inner, columns = (d.size(0, 4) for _ in range(3))
    a = d.array((*d.shrunk(leading), rows, inner))
    return Call((a, d.array((*d.shrunk(leading), inner, columns))), {})


@case(
    lambda a, axes=None: a.permute(tuple(range(a.ndim))[::-1] if axes is None else axes),
    exact=True,
)
def transpose(d: Draw) -> Call:
    a = d.array(d.shape(d.one_of((0, 2), (3, 4), (3, 4))))  # below 3, an order undoes itself
    if d.one_of(False, False, True):
        return Call((a,), {})
    return Call((a,), {"axes": d.order(a.ndim)})


@case(lambda a, shape: torch.reshape(a, shape if isinstance(shape, tuple) else (shape,)), True)
def reshape(d: Draw) -> Call:
    a = d.array(d.shape((0, 4)))
    shapes = [a.shape, a.shape[::-1], (1, a.size), a.size, -1]
    shapes += [(*a.shape[:-1], -1)] if a.size else []
    return Call((a,), {"shape": d.one_of(*shapes)})


@case(lambda a, b: a + (b if a.ndim == 2 else b.reshape(-1, 1, 1)), exact=True)
def add_bias(d: Draw) -> Call:
    a = d.array(d.shape(d.one_of((2, 2), (4, 4))))
    return Call((a, d.array(a.shape[1:2])), {})


@case(lambda arrays, axis: torch.cat(arrays, axis), exact=True)
def concat(d: Draw) -> Call:
    shape = d.shape((1, 4))
    axis = d.axis(len(shape))
    at = axis % len(shape)
    sizes = d.shape((1, 3))
    arrays = tuple(d.array((*shape[:at], size, *shape[at + 1 :])) for size in sizes)
    return Call(arrays, {"axis": axis}, many=True)


@case(lambda a, axis, between: a.narrow(axis, between[0], between[1] - between[0]), exact=True)
def part(d: Draw) -> Call:
    a = d.array(d.shape((1, 4), least=1))
    axis = d.axis(a.ndim)
    stop = d.whole(0, a.shape[axis])
    return Call((a,), {"axis": axis, "between": (d.whole(0, stop), stop)})


def _laid_in(g: Any, axis: int, between: Any, size: int) -> Any:
    shape = [*g.shape]
    shape[axis] = size
    positions = torch.arange(*between)
    return torch.zeros(shape, dtype=g.dtype).index_copy(axis, positions, g)


@case(_laid_in, exact=True)
def part_gradient(d: Draw) -> Call:
    g = d.array(d.shape((1, 4)))
    axis = d.axis(g.ndim)
    start = d.whole(0, 2)
    stop = start + g.shape[axis]
    more = {"axis": axis, "between": (start, stop), "size": max(1, stop + d.whole(0, 2))}
    return Call((g,), more)


# Convolution


def torch_conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    top, left, bottom, right = sides(padding)
    padded = F.pad(x, (left, right, top, bottom))
    return F.conv2d(padded, w, None, both(stride), 0, both(dilation), groups)


@dataclass(frozen=True)
class Geometry:
    """The shapes of one convolution."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    how: dict[str, Any]


def _geometry(d: Draw) -> Geometry:
    groups = d.one_of(1, 1, 2)
    images, channels, filters = d.size(0, 2), d.whole(1, 2), groups * d.whole(1, 2)
    window = (d.whole(1, 3), d.whole(1, 3))
    padding, stride, dilation = d.padding(2, 2), d.pair(1, 3), d.pair(1, 2)
    top, left, bottom, right = sides(padding)
    image, output = [], []
    for axis, around in enumerate((top + bottom, left + right)):
        span = both(dilation)[axis] * (window[axis] - 1) + 1
        image.append(max(1, span - around) + d.whole(0, 2))
        output.append((image[axis] + around - span) // both(stride)[axis] + 1)
    return Geometry(
        (images, channels * groups, *image),
        (filters, channels, *window),
        (images, filters, *output),
        {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups},
    )


@case(torch_conv)
def conv(d: Draw) -> Call:
    shapes = _geometry(d)
    return Call((d.array(shapes.x), d.array(shapes.w)), shapes.how)


def _conv_input_gradient(g: Any, w: Any, size: Any, **how: Any) -> Any:
    x = torch.zeros((g.shape[0], w.shape[1] * how["groups"], *both(size)), dtype=g.dtype)
    return back(lambda x: torch_conv(x, w, **how), x, g)


@case(_conv_input_gradient)
def conv_input_gradient(d: Draw) -> Call:
    shapes = _geometry(d)
    return Call((d.array(shapes.y), d.array(shapes.w)), {"size": shapes.x[2:], **shapes.how})


def _conv_weight_gradient(x: Any, g: Any, size: Any, **how: Any) -> Any:
    shape = (g.shape[1], x.shape[1] // how["groups"], *both(size))
    return back(lambda w: torch_conv(x, w, **how), torch.zeros(shape, dtype=x.dtype), g)


@case(_conv_weight_gradient)
def conv_weight_gradient(d: Draw) -> Call:
    shapes = _geometry(d)
    return Call((d.array(shapes.x), d.array(shapes.y)), {"size": shapes.w[2:], **shapes.how})


# Pooling


@dataclass(frozen=True)
class Pool:
    """One pooling, as PyTorch wants to have it."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    ceil: bool

    @classmethod
    def of(cls, size: Any, stride: Any = None, padding: Any = 0, ceil: bool = False) -> "Pool":
        return cls(both(size), both(size if stride is None else stride), sides(padding), ceil)

    def in_torch(self, image: Any) -> bool:
        """Whether PyTorch has it: both sides padded alike, by half a window at most, and room."""
        return self.padding[:2] == self.padding[2:] and all(
            2 * pad <= size <= length + 2 * pad
            for pad, size, length in zip(self.padding[:2], self.size, image, strict=True)
        )

    def sizes(self, image: Any) -> list[int]:
        """Windows that begin inside the image or before it, and, unless `ceil`, end inside."""
        found = []
        for axis in (0, 1):
            before, after = self.padding[axis], self.padding[axis + 2]
            starts = range(-before, image[axis], self.stride[axis])
            last = image[axis] + after - self.size[axis]
            inside = [s for s in starts if s <= last]
            reaching = self.ceil and (not inside or inside[-1] < last)
            found.append(min(len(inside) + reaching, len(starts)))
        return found

    def around(self, x: Any, value: float) -> Any:
        """x with as much padding of this value as its windows reach."""
        top, left, _, _ = self.padding
        rows, columns = (
            (count - 1) * stride + size
            for count, stride, size in zip(
                self.sizes(x.shape[2:]), self.stride, self.size, strict=True
            )
        )
        height, width = x.shape[2:]
        padded = F.pad(
            x, (left, max(0, columns - width - left), top, max(0, rows - height - top)), value=value
        )
        return padded[:, :, :rows, :columns]


def torch_max_pool(x: Any, **how: Any) -> Any:
    pool = Pool.of(**how)
    if pool.in_torch(x.shape[2:]):
        return F.max_pool2d(x, pool.size, pool.stride, pool.padding[:2], ceil_mode=pool.ceil)
    return F.max_pool2d(pool.around(x, -np.inf), pool.size, pool.stride)


def torch_average_pool(x: Any, **how: Any) -> Any:
    pool = Pool.of(**how)
    if pool.in_torch(x.shape[2:]):
        more = {"ceil_mode": pool.ceil, "count_include_pad": False}
        return F.avg_pool2d(x, pool.size, pool.stride, pool.padding[:2], **more)
    total, counted = (pool.around(values, 0) for values in (x, torch.ones_like(x)))
    return F.avg_pool2d(total, pool.size, pool.stride) / F.avg_pool2d(
        counted, pool.size, pool.stride
    )


def _pool(d: Draw) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The shape of images, and how to pool them."""
    size = d.pair(1, 3)
    height, width = both(size)
    padding = d.padding(height - 1, width - 1)
    how = {"size": size, "padding": padding, "ceil": d.flag(), "stride": d.pair(1, 4)}
    if d.flag():
        del how["stride"]
    top, left, bottom, right = sides(padding)
    least = (1, 1) if how["ceil"] else (height - top - bottom, width - left - right)
    image = (max(1, least[0]) + d.whole(0, 3), max(1, least[1]) + d.whole(0, 3))
    return (d.size(0, 2), d.whole(1, 2), *image), how


@case(torch_max_pool, exact=True)
def max_pool(d: Draw) -> Call:
    shape, how = _pool(d)
    return Call((d.distinct(shape),), how)


@case(lambda g, x, **how: back(lambda x: torch_max_pool(x, **how), x, g))
def max_pool_gradient(d: Draw) -> Call:
    shape, how = _pool(d)
    return Call((d.array((*shape[:2], *Pool.of(**how).sizes(shape[2:]))), d.distinct(shape)), how)


@case(torch_average_pool)
def average_pool(d: Draw) -> Call:
    shape, how = _pool(d)
    return Call((d.array(shape),), how)


def _average_pool_gradient(g: Any, image: Any, **how: Any) -> Any:
    x = torch.zeros((*g.shape[:2], *both(image)), dtype=g.dtype)
    return back(lambda x: torch_average_pool(x, **how), x, g)


@case(_average_pool_gradient)
def average_pool_gradient(d: Draw) -> Call:
    shape, how = _pool(d)
    g = d.array((*shape[:2], *Pool.of(**how).sizes(shape[2:])))
    return Call((g,), {"image": shape[2:], **how})


def _subsample(x: Any, w: Any, b: Any, stride: Any) -> Any:
    n, c, height, width = x.shape
    planes = x.reshape(n * c, 1, height, width)
    pooled = F.conv2d(planes, w.reshape(1, 1, *w.shape), stride=both(stride)) + b
    return pooled.reshape(n, c, *pooled.shape[2:])


@case(_subsample)
def subsample(d: Draw) -> Call:
    window = d.shape((2, 2), least=1)
    image = (window[0] + d.whole(0, 3), window[1] + d.whole(0, 3))
    x = d.array((d.size(0, 2), d.whole(1, 2), *image))
    b = d.number(d.one_of((), (1,)))
    return Call((x, d.array(window), b), {"stride": d.pair(1, 3)})


# Normalisation


def torch_lrn(x: Any, size: int, alpha: float, beta: float, k: float) -> Any:
    return F.local_response_norm(x, size, alpha, beta, k)


def _channels(d: Draw) -> tuple[int, ...]:
    return d.size(0, 2), d.whole(1, 5), d.whole(1, 2), d.whole(1, 2)


def _lrn(d: Draw) -> dict[str, Any]:
    return {
        "size": d.whole(1, 5),
        "alpha": d.one_of(1e-4, 0.5),
        "beta": d.one_of(0.5, 0.75, 1.0),
        "k": d.one_of(1.0, 2.0),
    }


@case(torch_lrn)
def lrn(d: Draw) -> Call:
    return Call((d.array(_channels(d)),), _lrn(d))


@case(lambda g, x, **how: back(lambda x: torch_lrn(x, **how), x, g))
def lrn_gradient(d: Draw) -> Call:
    shape = _channels(d)
    return Call((d.array(shape), d.array(shape)), _lrn(d))


@case(None, exact=True)
def dropout(d: Draw) -> Call:
    seed = d.whole(-(2**63), 2**63 - 1)
    more = {"rate": d.one_of(0, 0.1, 0.5, 0.9), "seed": d.one_of(seed, np.array(seed), np.int32(3))}
    return Call((d.array(d.shape((0, 4))),), more)


# Reduction


def _dims(a: Any, axis: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(a.ndim))
    return (axis,) if isinstance(axis, int) else axis


def _folding(fold: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch takes dim=() for all axes, and here it is none of them."""

    def function(a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        dims = _dims(a, axis)
        return fold(a, dim=dims, keepdim=keepdims) if dims else a

    return function


def _fold(d: Draw, values: Callable[..., Any], least: int) -> Call:
    a = values(d.shape((0, 4), least))
    how = {"axis": d.axes(a.ndim), "keepdims": d.flag()}
    return Call((a,), how if d.flag() else {})


@case(_folding(torch.sum))
def sum_(d: Draw) -> Call:
    return _fold(d, d.array, 0)


@case(_folding(torch.mean))
def mean(d: Draw) -> Call:
    return _fold(d, d.array, 1)


@case(_folding(torch.amax), exact=True)
def max_(d: Draw) -> Call:
    return _fold(d, d.distinct, 1)


def _max_gradient(g: Any, a: Any, y: Any, axis: Any) -> Any:
    dims = _dims(a, axis)
    return back(lambda a: a.amax(dims, keepdim=True), a, g) if dims else g


@case(_max_gradient)
def max_gradient(d: Draw) -> Call:
    a = d.tied(d.shape((1, 4), least=1))
    axis = d.axes(a.ndim)
    y = a.max(axis=axis, keepdims=True)
    return Call((d.array(y.shape), a, y), {"axis": axis})


@case(lambda a, axis=None: torch.argmax(a, axis), exact=True)
def argmax(d: Draw) -> Call:
    a = d.distinct(d.shape((1, 4), least=1))
    return Call((a,), {"axis": d.axis(a.ndim)} if d.flag() else {})


# Loss


@case(lambda a, axis=-1: torch.softmax(a, axis))
def softmax(d: Draw) -> Call:
    a = d.array(d.shape((1, 4), least=1), -5, 5)
    return Call((a,), {"axis": d.axis(a.ndim)} if d.flag() else {})


@case(lambda a, axis=-1: torch.log_softmax(a, axis))
def log_softmax(d: Draw) -> Call:
    a = d.array(d.shape((1, 4), least=1), -5, 5)
    return Call((a,), {"axis": d.axis(a.ndim)} if d.flag() else {})


def _entropy(logits: Any, labels: Any) -> Any:
    """For each of the leading axes, which F.cross_entropy does not know."""
    chances = torch.log_softmax(logits, -1)
    return -torch.gather(chances, -1, labels.long()[..., None])[..., 0].mean(-1)


def _classified(d: Draw) -> tuple[Any, Any]:
    """Logits with their labels: a matrix, or a stack of them."""
    shape = (*d.one_of((), (), (3,), (2, 1)), d.whole(1, 4))
    classes = d.whole(1, 4)
    labels = d.labels(int(np.prod(shape)), classes).reshape(shape)
    return d.array((*shape, classes), -5, 5), labels


@case(_entropy)
def cross_entropy(d: Draw) -> Call:
    return Call(_classified(d), {})


@case(lambda g, logits, labels: back(lambda a: _entropy(a, labels), logits, g))
def cross_entropy_gradient(d: Draw) -> Call:
    logits, labels = _classified(d)
    return Call((d.array(logits.shape[:-2]), logits, labels), {})


@case(F.mse_loss)
def squared_error(d: Draw) -> Call:
    shape = d.shape(least=1)
    return Call((d.array(shape), d.array(shape)), {})


# Update


def _sgd(
    parameter: Any, gradient: Any, velocity: Any, rate: Any, momentum: Any, decay: Any,
    nesterov: bool = False,
) -> Any:  # fmt: skip
    slope = gradient + decay * parameter
    velocity = momentum * velocity + slope
    step = slope + momentum * velocity if nesterov else velocity
    return parameter - rate * step, velocity


@case(_sgd)
def sgd(d: Draw) -> Call:
    shape = d.shape()
    arrays = [d.array(shape) for _ in range(3)]
    how = {"nesterov": d.flag()} if d.flag() else {}
    return Call((*arrays, *(d.number(d.shrunk(shape)) for _ in range(3))), how)
