"""The cases of the operators of newer networks; entered in the table by `cases.py`."""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from operators.drawing import Call, Draw, case


def back(function: Any, point: Any, g: Any) -> Any:
    """g taken back through a function by PyTorch; the result can be differentiated again."""
    point = point if point.requires_grad else point.requires_grad_()
    return torch.autograd.grad(function(point), point, g, create_graph=True)[0]


# Activation


def _gelu(a: Any, approximate: bool = False) -> Any:
    return F.gelu(a, approximate="tanh" if approximate else "none")


def _one(d: Draw, low: float = -5, high: float = 5) -> Any:
    return d.array(d.shape(), low, high)


def _two(d: Draw, values: Any = None) -> tuple[Any, Any]:
    shape = d.shape()
    return d.array(shape), d.array(shape, -5, 5) if values is None else values(shape)


def _smooth(d: Draw) -> dict[str, Any]:
    return {"approximate": d.flag()} if d.flag() else {}


@case(_gelu)
def gelu(d: Draw) -> Call:
    return Call((_one(d),), _smooth(d))


@case(lambda g, a, **how: back(lambda a: _gelu(a, **how), a, g))
def gelu_gradient(d: Draw) -> Call:
    return Call(_two(d), _smooth(d))


@case(F.silu)
def silu(d: Draw) -> Call:
    return Call((_one(d),), {})


@case(lambda g, a: back(F.silu, a, g))
def silu_gradient(d: Draw) -> Call:
    return Call(_two(d), {})


def _off_corners(d: Draw, shape: Any, *corners: float) -> Any:
    """Numbers on all sides of the corners of a function, none near one."""
    edges = [corners[0] - 2, *corners, corners[-1] + 2]
    side = d._random.integers(0, len(edges) - 1, shape)
    low, high = np.asarray(edges[:-1])[side], np.asarray(edges[1:])[side]
    return d._array(low + (high - low) * d._random.uniform(0.1, 0.9, shape))


def _hard_sigmoid(a: Any) -> Any:
    return torch.clamp(a + 3, 0, 6) / 6  # F.hardsigmoid's gradient takes 1 / 6 in float32


@case(_hard_sigmoid)
def hard_sigmoid(d: Draw) -> Call:
    return Call((_off_corners(d, d.shape(), -3, 3),), {})


@case(lambda g, a: back(_hard_sigmoid, a, g))
def hard_sigmoid_gradient(d: Draw) -> Call:
    return Call(_two(d, lambda shape: _off_corners(d, shape, -3, 3)), {})


@case(lambda a: a * _hard_sigmoid(a))
def hard_swish(d: Draw) -> Call:
    return Call((_off_corners(d, d.shape(), -3, 3),), {})


@case(lambda g, a: back(lambda a: a * _hard_sigmoid(a), a, g))
def hard_swish_gradient(d: Draw) -> Call:
    return Call(_two(d, lambda shape: _off_corners(d, shape, -3, 3)), {})


def _slope(d: Draw) -> dict[str, Any]:
    return d.one_of({}, {"slope": 0.2}, {"slope": -0.5}, {"slope": 0}, {"slope": 3.0})


@case(lambda a, slope=0.01: F.leaky_relu(a, slope), exact=True)
def leaky_relu(d: Draw) -> Call:
    return Call((d.away(d.shape()),), _slope(d))


@case(lambda g, a, slope=0.01: torch.where(a > 0, g, slope * g), exact=True)
def leaky_relu_gradient(d: Draw) -> Call:
    return Call(_two(d, d.away), _slope(d))


@case(lambda a, low, high: torch.clamp(a, low, high), exact=True)
def clip(d: Draw) -> Call:
    return Call((_off_corners(d, d.shape(), -1, 2.5),), {"low": -1, "high": 2.5})


@case(lambda g, a, low, high: torch.where((a > low) & (a < high), g, 0), exact=True)
def clip_gradient(d: Draw) -> Call:
    pair = _two(d, lambda shape: _off_corners(d, shape, -1, 2.5))
    return Call(pair, {"low": -1, "high": 2.5})


# Linear


def _torch_pad(a: Any, widths: Any, value: float = 0.0) -> Any:
    return F.pad(a, [w for pair in reversed(widths) for w in pair], value=value)


@case(lambda a, widths, value=0.0: _torch_pad(a, widths, value) if a.ndim else a, exact=True)
def pad(d: Draw) -> Call:
    a = d.array(d.shape((0, 4)))
    widths = [(d.whole(0, 2), d.whole(0, 2)) for _ in a.shape]
    return Call((a,), {"widths": widths, **d.one_of({}, {"value": 0.5})})


@case(lambda a, sizes, axis=-1: torch.split(a, list(sizes), axis), exact=True)
def split(d: Draw) -> Call:
    shape = d.shape((1, 4), least=1)
    sizes = tuple(d.whole(0, 2) for _ in range(d.whole(1, 3)))
    axis = d.axis(len(shape))
    at = axis % len(shape)
    a = d.array((*shape[:at], sum(sizes), *shape[at + 1 :]))
    return Call((a,), {"sizes": sizes, "axis": axis})


def _places(d: Draw, rows: int) -> Any:
    shape = d.shape((0, 2))
    return d.labels(int(np.prod(shape)), rows).reshape(shape)


@case(lambda a, index: a[index.long()], exact=True)
def take(d: Draw) -> Call:
    rows = d.whole(1, 4)
    return Call((d.array((rows, *d.shape((0, 2)))), _places(d, rows)), {})


def _take_gradient(g: Any, index: Any, size: int) -> Any:
    flat = g.reshape(index.numel(), *g.shape[index.ndim :])
    zeros = torch.zeros((size, *g.shape[index.ndim :]), dtype=g.dtype)
    return zeros.index_add(0, index.long().reshape(-1), flat)


@case(_take_gradient)
def take_gradient(d: Draw) -> Call:
    rows = d.whole(1, 4)
    index = _places(d, rows)
    return Call((d.array((*index.shape, *d.shape((0, 2)))), index), {"size": rows})


# Normalisation


def _normal(x: Any, dims: tuple[int, ...], epsilon: float) -> tuple[Any, Any, Any]:
    mean = x.mean(dims, keepdim=True)
    variance = ((x - mean) ** 2).mean(dims, keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon), mean, variance


def _beside(vector: Any, x: Any, axis: int = 1) -> Any:
    return vector.reshape([-1 if i == axis % x.ndim else 1 for i in range(x.ndim)])


def _batch_norm(x: Any, scale: Any, shift: Any, epsilon: float = 1e-5) -> Any:
    normal, mean, variance = _normal(x, (0, *range(2, x.ndim)), epsilon)
    y = normal * _beside(scale, x) + _beside(shift, x)
    return y, mean.reshape(-1), variance.reshape(-1)


def _channels(d: Draw, least: int = 1) -> tuple[int, ...]:
    rest = tuple(d.whole(1, 3) for _ in range(d.one_of(0, 1, 2)))
    return d.size(least, 3), d.whole(1, 3), *rest


def _epsilon(d: Draw) -> dict[str, Any]:
    return {"epsilon": d.one_of(0.1, 0.5)}  # a small one makes steep functions of few numbers


@case(_batch_norm)
def batch_norm(d: Draw) -> Call:
    x = d.array(_channels(d))
    vectors = d.array(x.shape[1:2]), d.array(x.shape[1:2])
    return Call((x, *vectors), _epsilon(d))


def _batch_norm_gradient(
    g: Any, x: Any, scale: Any, mean: Any, variance: Any, epsilon: float
) -> Any:
    inverse = 1 / torch.sqrt(variance + epsilon)
    axes, count = (0, *range(2, x.ndim)), max(x.numel() // x.shape[1], 1)
    normal = (x - _beside(mean, x)) * _beside(inverse, x)
    by_scale, by_shift = (g * normal).sum(axes), g.sum(axes)
    rest = g - _beside(by_shift, x) / count - normal * _beside(by_scale, x) / count
    return _beside(scale * inverse, x) * rest, by_scale, by_shift


@case(_batch_norm_gradient)
def batch_norm_gradient(d: Draw) -> Call:
    shape = _channels(d, 0)
    scale, mean = d.array(shape[1:2]), d.array(shape[1:2])
    variance = d.array(shape[1:2], 0.5, 2)
    return Call((d.array(shape), d.array(shape), scale, mean, variance), _epsilon(d))


def _inference(x: Any, scale: Any, shift: Any, mean: Any, variance: Any, epsilon: float) -> Any:
    normal = (x - _beside(mean, x)) / torch.sqrt(_beside(variance, x) + epsilon)
    return normal * _beside(scale, x) + _beside(shift, x)


@case(_inference)
def batch_norm_inference(d: Draw) -> Call:
    shape = _channels(d, 0)
    vectors = [d.array(shape[1:2]) for _ in range(3)]
    return Call((d.array(shape), *vectors, d.array(shape[1:2], 0.5, 2)), _epsilon(d))


def _layer_norm(x: Any, scale: Any, shift: Any, axis: int = -1, epsilon: float = 1e-5) -> Any:
    normal, _, _ = _normal(x, (axis,), epsilon)
    return normal * _beside(scale, x, axis) + _beside(shift, x, axis)


def _lines(d: Draw) -> tuple[tuple[int, ...], dict[str, Any]]:
    shape = d.shape((1, 3), least=1)
    if len(shape) > 1 and d.one_of(True, *[False] * 9):
        return (0, *shape[1:]), {"axis": -1, **_epsilon(d)}
    return shape, {**d.one_of({}, {"axis": d.axis(len(shape))}), **_epsilon(d)}


@case(_layer_norm)
def layer_norm(d: Draw) -> Call:
    shape, how = _lines(d)
    size = shape[how.get("axis", -1)]
    return Call((d.array(shape), d.array((size,)), d.array((size,))), how)


def _layer_norm_gradient(g: Any, x: Any, scale: Any, **how: Any) -> Any:
    given = [x.detach().requires_grad_(), scale.detach().requires_grad_()]
    given.append(torch.zeros_like(scale).requires_grad_())
    return torch.autograd.grad(_layer_norm(*given, **how), given, g)


@case(_layer_norm_gradient)
def layer_norm_gradient(d: Draw) -> Call:
    shape, how = _lines(d)
    return Call((d.array(shape), d.array(shape), d.array((shape[how.get("axis", -1)],))), how)


@case(None, exact=True)
def augment(d: Draw) -> Call:
    x = d.array((d.size(0, 3), d.whole(1, 2), d.whole(1, 4), d.whole(1, 4)))
    how = {"flip": d.flag(), "crop": d.whole(0, 5), "cutout": d.whole(0, 5)}
    return Call((x,), {"seed": d.whole(-(2**63), 2**63 - 1), **how})


# Attention


def _attention(q: Any, k: Any, v: Any, mask: Any, causal: bool = False) -> Any:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


def _queries(d: Draw) -> tuple[list[Any], Any, dict[str, Any]]:
    """q, k and v, a mask, and whether it is causal."""
    leading = d.shape((0, 2), least=1, most=2)
    queries, keys, inner = d.size(0, 3), d.whole(1, 3), d.whole(1, 3)
    arrays = [
        d.array((*leading, *own))
        for own in ((queries, inner), (keys, inner), (keys, d.whole(1, 3)))
    ]
    mask = d.number(d.shrunk((*leading, queries, keys)))
    return arrays, mask, {"causal": d.flag()} if d.flag() else {}


@case(_attention)
def attention_with_sums(d: Draw) -> Call:
    arrays, mask, how = _queries(d)
    return Call((*arrays, mask), how)


def _attention_gradient(
    g: Any, q: Any, k: Any, v: Any, y: Any, sums: Any, mask: Any, causal: bool = False
) -> Any:
    given = [a.detach().requires_grad_() for a in (q, k, v)]
    out = _attention(*given, mask, causal)[0]
    return torch.autograd.grad(out, given, g, allow_unused=True, materialize_grads=True)


@case(_attention_gradient)
def attention_gradient(d: Draw) -> Call:
    arrays, mask, how = _queries(d)
    y, sums = _attention(*(torch.tensor(np.array(a, "float64")) for a in (*arrays, mask)), **how)
    own = d._array(y.numpy()), d._array(sums.numpy())
    return Call((d.array(tuple(y.shape)), *arrays, *own, mask), how)


# Reduction


@case(lambda arrays: torch.sqrt(sum((a * a).sum() for a in arrays)))
def norm(d: Draw) -> Call:
    arrays = [d.array(d.shape()) for _ in range(d.whole(1, 3))]
    return Call((d.away((2,)), *arrays), {}, many=True)


# Update


def _numbers(d: Draw, shape: tuple[int, ...], *ranges: tuple[float, float]) -> list[Any]:
    """One number, or an array that broadcasts, from each range."""
    return [
        d.array(d.shrunk(shape), *ends) if d.flag() else float(d._random.uniform(*ends))
        for ends in ranges
    ]


def _adam(
    p: Any, g: Any, first: Any, second: Any, rate: Any, c1: Any, c2: Any, beta1: Any, beta2: Any,
    epsilon: Any, decay: Any, decoupled: bool = False,
) -> Any:  # fmt: skip
    if decoupled:
        p = p - rate * decay * p
    else:
        g = g + decay * p
    first = beta1 * first + (1 - beta1) * g
    second = beta2 * second + (1 - beta2) * g * g
    return p - rate / c1 * first / (second.sqrt() / c2**0.5 + epsilon), first, second


@case(_adam)
def adam(d: Draw) -> Call:
    shape = d.shape()
    unit = (0.1, 0.9)
    arrays = d.array(shape), d.array(shape), d.array(shape), d.array(shape, 0.1, 2)
    numbers = _numbers(d, shape, unit, unit, unit, unit, unit, unit, (-1, 1))
    return Call((*arrays, *numbers), {"decoupled": d.flag()} if d.flag() else {})


def _lion(p: Any, g: Any, v: Any, rate: Any, beta1: Any, beta2: Any, decay: Any) -> Any:
    step = torch.sign(beta1 * v + (1 - beta1) * g)
    return p * (1 - rate * decay) - rate * step, beta2 * v + (1 - beta2) * g


@case(_lion)
def lion(d: Draw) -> Call:
    shape = d.shape()
    # The signs of gradient and velocity agree, so that rounding cannot turn that of their sum.
    sign = d._random.choice([-1, 1], shape)
    slope, speed = (d._array(sign * d._random.uniform(0.5, 2, shape)) for _ in range(2))
    numbers = _numbers(d, shape, (-1, 1), (0.1, 0.9), (-1, 1), (-1, 1))
    return Call((d.array(shape), slope, speed, *numbers), {})
