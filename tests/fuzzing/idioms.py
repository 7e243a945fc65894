"""What backends look for, and what may be mistaken for it: the lines that fusions are made of.

Values that a fusion would not write stay among those that later lines read and that are returned.
"""

from collections.abc import Callable
from typing import Any

from fuzzing.recipe import Number
from fuzzing.writer import Writer

ACTIVATIONS = ("sigmoid", "tanh", "relu")
Idiom = Callable[[Writer], Any]
IDIOMS: list[Idiom] = []


def idiom(times: int) -> Callable[[Idiom], Idiom]:
    """Enter an idiom among those to draw from, as often as given."""

    def enter(write: Idiom) -> Idiom:
        IDIOMS.extend([write] * times)
        return write

    return enter


def number(w: Writer, low: float = -0.5, high: float = 0.5) -> Any:
    """One number: written out, an argument or a constant, or a value of the program."""
    if w.d.often(0.4):
        return Number(float(w.d.one_of(0.125, 0.5, -0.25, 1.0, 0.0)))
    known = w.pick(lambda array: array.shape == ())
    return known if known is not None and w.d.flag() else w.fresh((), low, high)


def spread(w: Writer, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, one that broadcasts to it, or one that it broadcasts to."""
    if w.d.often(0.4):
        return shape
    if w.d.often(0.25):
        return w.d.shrunk(shape)
    wider = tuple(w.d.whole(2, 3) if size == 1 else size for size in shape)
    return (w.d.whole(1, 2), *wider) if w.d.often(0.3) else wider


def matrix(w: Writer) -> int:
    known = w.pick(lambda array: array.ndim == 2)
    if known is not None and w.d.often(0.6):
        return known
    if w.d.often(0.03):  # large enough to be split among threads
        return w.fresh((w.d.whole(60, 130), w.d.whole(60, 130)), -0.2, 0.2)
    return w.of_shape(w.d.shape((2, 2), least=0 if w.d.often(0.1) else 1, most=4))


def images(w: Writer) -> int:
    known = w.pick(lambda array: array.ndim == 4)
    if known is not None and w.d.often(0.6):
        return known
    channels = w.d.one_of(1, 1, 2, 3, 16, 32)
    return w.of_shape((w.d.whole(1, 3), channels, w.d.whole(1, 7), w.d.whole(1, 7)))


@idiom(3)
def dense(w: Writer) -> None:
    """dot, add_bias, an activation."""
    x = matrix(w)
    rows, inner = w.values[x].shape
    columns = w.d.one_of(w.d.side(), rows, inner)  # so that a value may be both operands
    weights = w.of_shape((inner, columns))
    t = w.inner("dot", x, weights)
    if t is None:
        return
    u = w.inner("add_bias", w.tame(t), w.of_shape((columns,)))
    if u is not None and w.d.often(0.8):
        w.call(w.d.one_of(*ACTIVATIONS), u)


@idiom(1)
def stacked_dense(w: Writer) -> None:
    """Stacks of products with biases that broadcast, and an activation."""
    count, rows, inner, columns = (w.d.side() for _ in range(4))
    x = w.of_shape((w.d.one_of(count, count, 1), rows, inner))
    t = w.inner("dot", x, w.of_shape((w.d.one_of(count, count, 1), inner, columns)))
    if t is None:
        return
    shape = w.values[t].shape
    bias = w.d.one_of((count, 1, columns), (1, 1, columns), (columns,), (count, rows, 1), shape)
    b = t if w.d.often(0.1) else w.of_shape(bias)
    u = w.inner("add", *((t, b) if w.d.often(0.8) else (b, t)))
    if u is not None and w.d.often(0.7):
        w.call(w.d.one_of(*ACTIVATIONS), u)


@idiom(4)
def descend(w: Writer) -> None:
    """p - rate * g, where p, g and what they are made of may be the same, or broadcast."""
    if w.d.often(0.6):
        a = w.of_shape((w.d.one_of(1, w.d.side()), w.d.side())) if w.d.often(0.7) else matrix(w)
        b = w.of_shape((w.values[a].shape[1], w.d.one_of(1, w.d.side())))
        g = w.inner("dot", a, b)
    else:
        g = w.pick(lambda array: array.ndim < 4)
    if g is None:
        return
    s = w.inner("scale", number(w), g)
    if s is None:
        return
    p = w.d.one_of(g, s) if w.d.often(0.15) else w.of_shape(spread(w, w.values[g].shape))
    q = w.call("sub", *((p, s) if w.d.often(0.85) else (s, p)))
    if q is not None:
        w.tame(q)


@idiom(1)
def stacked_descend(w: Writer) -> None:
    """p + a b for stacks, the other way round too."""
    count, rows, inner, columns = (w.d.side() for _ in range(4))
    a = w.of_shape((w.d.one_of(count, 1), rows, inner))
    t = w.inner("dot", a, w.of_shape((w.d.one_of(count, 1), inner, columns)))
    if t is None:
        return
    p = t if w.d.often(0.1) else w.of_shape(spread(w, w.values[t].shape))
    q = w.call("add", *((p, t) if w.d.often(0.8) else (t, p)))
    if q is not None:
        w.tame(q)


@idiom(1)
def momentum(w: Writer) -> None:
    """sgd, with operands that repeat and numbers that broadcast."""
    p = w.pick(lambda array: array.ndim < 4)
    if p is None:
        return
    shape = w.values[p].shape
    g, v = (p if w.d.often(0.1) else w.of_shape(shape) for _ in range(2))
    numbers = [number(w) if w.d.often(0.7) else w.of_shape(w.d.shrunk(shape)) for _ in range(3)]
    w.call("sgd", p, g, v, *numbers)


@idiom(2)
def loss(w: Writer) -> None:
    """cross_entropy beside its gradient, whose g may be the loss itself."""
    known = w.pick(lambda array: array.ndim in (2, 3) and array.size)
    logits = matrix(w) if known is None else known
    array = w.values[logits]
    if not array.size:
        return
    *leading, rows, classes = array.shape
    drawn = w.d.labels(rows * (leading[0] if leading else 1), classes).reshape(*leading, rows)
    labels = w.given(drawn, constant=w.d.often(0.2))
    value = w.call("cross_entropy", logits, labels)
    if value is None or w.d.often(0.2):
        return
    g = value if w.d.often(0.3) else w.of_shape(tuple(leading))
    if w.d.often(0.3):  # from the loss to its gradient by way of something else
        g = w.call(w.d.one_of("tanh", "exp"), value) or g
    other = labels if w.d.often(0.8) else w.given(drawn[..., ::-1])
    w.call("cross_entropy_gradient", g, logits, other)


@idiom(2)
def activation_gradient(w: Writer) -> None:
    """An activation's backward pass with the sum for its bias, and the product that follows."""
    x = w.pick(lambda array: array.ndim in (2, 3, 4) and array.size)
    if x is None:
        return
    name = w.d.one_of(*ACTIVATIONS)
    y = w.call(name, x)
    assert y is not None
    shape = w.values[y].shape
    g = w.d.one_of(x, y) if w.d.often(0.15) else w.of_shape(shape)
    d = w.call(f"{name}_gradient", g, y)
    if d is None:
        return
    usual = {2: (0,), 3: (1,), 4: (0, 2, 3)}[len(shape)]
    axis = usual if w.d.often(0.7) else w.d.axes(len(shape))
    w.call("sum", d, axis=axis, keepdims=w.d.often(0.2))
    if len(shape) == 2:
        turned = w.call("transpose", w.of_shape((shape[0], w.d.side())), axes=(1, 0))
        product = w.call("dot", turned, d)
        if product is not None:
            w.tame(product)


@idiom(1)
def siblings(w: Writer) -> None:
    """Convolutions of the same images, which a GPU may merge, added up or joined."""
    size = w.d.one_of(2, 3, 64)  # filters of 4096 weights are "large" there
    x = w.of_shape((w.d.whole(1, 2), size, w.d.whole(1, 4), w.d.whole(1, 4)))
    made = []
    for _ in range(w.d.whole(2, 3)):
        window = w.d.one_of((1, 1), (1, 1), (3, 3)) if size < 64 else (1, 1)
        weights = w.fresh((size, size, *window), -1 / size, 1 / size)
        y = w.call("conv", x, weights, padding=window[0] // 2, stride=w.d.one_of(1, 1, 1, 2))
        if y is not None and w.d.often(0.7):
            y = w.call("add_bias", y, w.of_shape((size,)))
        if y is not None and w.d.often(0.6):
            y = w.call(w.d.one_of(*ACTIVATIONS), y)
        made += [y] if y is not None else []
    if len(made) > 1 and w.d.flag():
        w.call("add", *made[:2])
    elif made:
        w.call("concat", *made, axis=1)


@idiom(2)
def convolution(w: Writer) -> None:
    """conv, add_bias, an activation, pooling; and now and then the backward pass by hand."""
    x = images(w)
    _, channels, height, width = w.values[x].shape
    groups = 2 if channels % 2 == 0 and w.d.often(0.2) else 1
    filters = groups * w.d.one_of(1, 2, 3, 16 if channels in (16, 32) else 2)
    window = w.d.one_of((3, 3), (5, 5), (1, 1), (2, 3)) if w.d.often(0.7) else (height, width)
    how = {
        "stride": w.d.one_of(1, 1, 2),
        "padding": w.d.one_of(0, 1, 2, (1, 0, 0, 1)),
        "dilation": w.d.one_of(1, 1, 1, 2),
        "groups": groups,
    }
    most = 2 / max(1, channels * window[0] * window[1]) ** 0.5
    weights = w.fresh((filters, channels // groups, *window), -most, most)
    t = w.inner("conv", x, weights, **how)
    if t is None:
        return
    u = w.inner("add_bias", w.tame(t), w.of_shape((filters,)))
    y = u and w.call(w.d.one_of(*ACTIVATIONS), u)
    if y and w.d.often(0.6):
        pool(w, y)
    if y and w.d.often(0.4):
        name = w.lines[-1].name if w.lines[-1].name in ACTIVATIONS else "relu"
        d = w.inner(f"{name}_gradient", w.of_shape(w.values[y].shape), y)
        if d is not None:
            sums = w.call("sum", d, axis=(0, 2, 3), keepdims=False)
            if filters == channels and sums is not None and w.d.flag():
                x = w.call("add_bias", x, sums) or x  # the sums come back
            w.call("conv_weight_gradient", x, d, size=window, **how)


def pool(w: Writer, x: int) -> None:
    way = w.d.one_of("max_pool", "average_pool", "subsample", "lrn")
    if way == "lrn":
        w.call("lrn", x, size=w.d.whole(1, 4), alpha=w.d.one_of(1e-4, 0.5))
    elif way == "subsample":
        window = w.of_shape((w.d.whole(1, 2), w.d.whole(1, 2)))
        w.call("subsample", x, window, number(w), stride=w.d.whole(1, 2))
    else:
        padding = w.d.one_of(0, 0, 1)
        size = w.d.whole(1 + padding, 3)
        w.call(way, x, size=size, padding=padding, ceil=w.d.flag(), stride=w.d.whole(1, 3))


@idiom(2)
def repeated(w: Writer) -> None:
    """One value as several operands, itself or a step away."""
    y = w.pick()
    if y is None:
        return
    array = w.values[y]
    way = w.d.whole(0, 6)
    if way == 0:
        scaled = w.call("scale", number(w), y)
        w.call("sub", y, y if scaled is None else scaled)
    elif way == 1:
        s = w.call("scale", number(w), y)
        if s is not None:
            w.call(w.d.one_of("sub", "add", "hadamard"), s, s)
    elif way == 2:
        made = w.call(w.d.one_of("hadamard", "add", "sub"), y, y)
        if made is not None:
            w.tame(made)
    elif way == 3 and array.ndim == 2:
        turned = w.call("transpose", y)
        assert turned is not None
        made = w.call("dot", *((y, turned) if w.d.flag() else (turned, y)))
        if made is not None:
            w.tame(made)
        w.call("add", y, turned)
    elif way == 4 and array.ndim:
        w.call("concat", *[y] * w.d.whole(1, 3), axis=w.d.axis(array.ndim))
    elif way == 5 and array.size:
        w.call("squared_error", y, y if w.d.often(0.2) else w.of_shape(array.shape))
    elif array.ndim:
        w.call("softmax", y, axis=w.d.axis(array.ndim))


@idiom(1)
def elementwise(w: Writer) -> None:
    """One or two values, element by element, broadcast."""
    a = w.pick()
    if a is None:
        return
    if w.d.often(0.4):
        w.call(w.d.one_of("sigmoid", "tanh", "relu", "exp", "sigmoid"), a)
        return
    b = w.of_shape(spread(w, w.values[a].shape))
    made = w.call(w.d.one_of("add", "sub", "hadamard"), *((a, b) if w.d.flag() else (b, number(w))))
    if made is not None:
        w.tame(made)


@idiom(1)
def views(w: Writer) -> None:
    """A chain of views, read again by whatever follows."""
    v = w.pick(lambda array: array.size > 1)
    for _ in range(w.d.whole(1, 4)):
        if v is None:
            return
        array = w.values[v]
        way = w.d.one_of("reshape", "transpose", "part") if array.ndim else "reshape"
        if way == "reshape":
            shape = w.d.one_of((-1,), array.shape[::-1], (1, *array.shape), (array.size, 1))
            v = w.call("reshape", v, shape=shape if array.size else array.shape[::-1])
        elif way == "transpose":
            v = w.call("transpose", v, axes=w.d.order(array.ndim))
        else:
            axis = w.d.axis(array.ndim)
            stop = w.d.whole(min(1, array.shape[axis]), array.shape[axis])
            start = w.d.whole(0, max(0, stop - 1))
            v = w.call("part", v, axis=axis, between=(start, stop))
