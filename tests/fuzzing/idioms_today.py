"""Idioms of newer networks: normalisation with what surrounds it, gates, attention, optimizers."""

from typing import Any

from fuzzing.idioms import idiom, number, spread
from fuzzing.recipe import Number
from fuzzing.writer import Writer

# Those that fusions look for, more often, and some that they must leave alone.
ACTIVATIONS = ("relu", "relu", "clip", "silu", "hard_swish", "leaky_relu", "gelu", "sigmoid")
FROM_RESULT = ("relu", "sigmoid")  # their gradients read the result


def planes(w: Writer) -> int:
    """Images, or rows, to be normalised channel by channel."""
    known = w.pick(lambda array: array.ndim in (2, 4) and array.size and array.shape[1] <= 32)
    if known is not None and w.d.often(0.6):
        return known
    pixels = (w.d.whole(1, 4), w.d.whole(1, 4)) if w.d.often(0.7) else ()
    if w.d.often(0.03):  # more than a block of the sums
        pixels = (w.d.whole(30, 40), w.d.whole(30, 40))
    return w.of_shape((w.d.whole(1, 3), w.d.one_of(1, 2, 3, 5), *pixels))


def activated(w: Writer, y: int, hidden: bool = False) -> tuple[str, dict[str, Any], int | None]:
    """An activation of a value: its name, its attributes and its result."""
    name = w.d.one_of(*ACTIVATIONS)
    how: dict[str, Any] = {}
    if name == "clip":
        how = w.d.one_of({"low": 0.0, "high": 6.0}, {"low": -0.5, "high": 0.75})
    elif name == "leaky_relu":
        how = {"slope": 0.25}
    elif name == "gelu":
        how = {"approximate": w.d.flag()}
    return name, how, (w.inner if hidden else w.call)(name, y, **how)


def added(w: Writer, y: int, *others: int) -> int | None:
    """A value plus another one, in any order: of its shape, repeated, itself, or one of others."""
    shape = w.values[y].shape
    r = w.of_shape(shape if w.d.often(0.7) else spread(w, shape))
    if w.d.often(0.15):
        r = w.d.one_of(y, *others)
    return w.inner("add", *((y, r) if w.d.flag() else (r, y)))


@idiom(5)
def normalised(w: Writer) -> None:
    """batch_norm, a sum, an activation; and now and then the backward pass by hand."""
    x = planes(w)
    channels = w.values[x].shape[1]
    s = w.of_shape((channels,))
    b = s if w.d.often(0.1) else w.of_shape((channels,))
    how = {"epsilon": w.d.one_of(0.1, 0.5)}
    if w.d.often(0.7):
        y = w.inner("batch_norm", x, s, b, **how)
        if y is None:
            return
        m, v = y + 1, y + 2
    else:
        m, v = w.of_shape((channels,)), w.fresh((channels,), 0.5, 2)
        y = w.inner("batch_norm_inference", x, s, b, m, v, **how)
        if y is None:
            return
    t = added(w, y, x) if w.d.often(0.5) else y
    if t is None:
        return
    name, more, z = activated(w, t)
    if z is not None and w.d.often(0.7):
        backward(w, (x, s, b, m, v), (y, t, z), name, {**more}, how)


def backward(
    w: Writer, given: tuple[int, ...], made: tuple[int, ...], name: str, more: Any, how: Any
) -> None:
    """The gradient of the activation, and that of the normalisation, with what may be mixed up."""
    x, s, b, m, v = given
    y, t, z = made
    shape = w.values[z].shape
    if shape != w.values[x].shape:
        return
    g = w.d.one_of(x, y, z) if w.d.often(0.15) else w.of_shape(shape)
    if w.d.often(0.4):
        g = added(w, g, x, z) or g
        if w.values[g].shape != shape:
            return
    at = z if name in FROM_RESULT else t
    if w.d.often(0.3):  # a normalisation that is computed again, or something else
        again = w.inner("batch_norm_inference", x, s, b, m, v, **how)
        at = at if again is None else again
        if w.d.often(0.2):
            at = w.d.one_of(y, x)
    d = (w.call if w.d.often(0.3) else w.inner)(f"{name}_gradient", g, at, **more)
    if d is None:
        return
    if w.d.often(0.15):
        x = w.of_shape(shape)
    if w.d.often(0.2):
        how = {"epsilon": 0.25}
    made_last = w.call("batch_norm_gradient", d, x, s, m, v, **how)
    if made_last is not None:
        w.tame(made_last)


@idiom(1)
def gated(w: Writer) -> None:
    """Squeeze and excitation: a mean over pixels, through an activation, times the images."""
    x = w.pick(lambda array: array.ndim == 4 and array.size)
    if x is None:
        return
    squeezed = w.inner("mean", x, axis=(2, 3), keepdims=True)
    if squeezed is None:
        return
    _, _, gate = activated(w, squeezed, hidden=True)
    if gate is not None:
        made = w.call("hadamard", *((x, gate) if w.d.flag() else (gate, x)))
        if made is not None:
            w.tame(made)


@idiom(1)
def attended(w: Writer) -> None:
    """Queries, keys and values cut out of one value, as `nn.Attention` does; or the same thrice."""
    batch, count, heads, size = w.d.whole(1, 2), w.d.side(), w.d.whole(1, 2), w.d.whole(1, 3)
    if w.d.often(0.3):
        q = w.of_shape((batch, heads, count, size))
        v = q if w.d.flag() else w.of_shape((batch, heads, count, size))
        w.call("attention_with_sums", q, q, v, Number(0.0), causal=w.d.flag())
        return
    x = w.of_shape((batch, count, 3 * heads * size))
    wide = w.inner("reshape", x, shape=(batch, count, 3, heads, size))
    turned = None if wide is None else w.inner("transpose", wide, axes=(2, 0, 3, 1, 4))
    three = None if turned is None else w.inner("split", turned, sizes=(1, 1, 1), axis=0)
    if three is None:
        return
    parts = [w.inner("reshape", three + i, shape=(batch, heads, count, size)) for i in range(3)]
    if any(part is None for part in parts):
        return
    y = w.call("attention_with_sums", *parts, Number(0.0), causal=w.d.flag())
    back = None if y is None else w.call("transpose", y, axes=(0, 2, 1, 3))
    if back is not None and w.d.flag():
        w.call("reshape", back, shape=(batch, count, heads * size))


@idiom(1)
def line_normalised(w: Writer) -> None:
    """layer_norm between a sum and a product, and its gradient where the sum is read again."""
    x = w.pick(lambda array: array.ndim in (2, 3) and array.size)
    if x is None:
        return
    t = added(w, x) if w.d.flag() else x
    if t is None:
        return
    shape = w.values[t].shape
    s, b = w.of_shape(shape[-1:]), w.of_shape(shape[-1:])
    y = w.call("layer_norm", t, s, b, axis=-1, epsilon=0.1)
    if y is None:
        return
    if len(shape) == 2 and w.d.flag():
        product = w.inner("dot", y, w.of_shape((shape[-1], w.d.side())))
        if product is not None:
            activated(w, w.tame(product))
    if w.d.flag():
        g = w.d.one_of(y, t) if w.d.often(0.2) else w.of_shape(shape)
        made = w.call("layer_norm_gradient", g, t, s, axis=-1, epsilon=0.1)
        if made is not None:
            w.call("add", made, w.d.one_of(g, t, made))


@idiom(1)
def stepped(w: Writer) -> None:
    """Clipping by the norm of several values, and the step of an optimizer on each of them."""
    first = w.pick(lambda array: array.ndim < 4 and array.size)
    if first is None:
        return
    gradients = [first, *(w.of_shape(w.values[first].shape) for _ in range(w.d.whole(0, 2)))]
    if w.d.flag():
        length = w.inner("norm", *gradients)
        more = None if length is None else w.inner("add", length, Number(1e-6))
        share = None if more is None else w.inner("div", Number(w.d.one_of(0.5, 4.0)), more)
        factor = None if share is None else w.inner("clip", share, low=0.0, high=1.0)
        if factor is None:
            return
        scaled = [w.inner("scale", factor, g) for g in gradients]
        gradients = [g for g in scaled if g is not None]
    for g in gradients:
        shape = w.values[g].shape
        p = g if w.d.often(0.1) else w.of_shape(shape)
        v = p if w.d.often(0.1) else w.of_shape(shape)
        decay = Number(w.d.one_of(0.0, 0.125))
        if w.d.often(0.6):
            second = w.fresh(shape, 0.1, 1)
            rest = (Number(0.25), Number(0.5), Number(0.5), Number(0.875), Number(0.125), decay)
            w.call("adam", p, g, v, second, number(w), *rest, decoupled=w.d.flag())
        else:
            nesterov = w.d.flag()
            w.call("sgd", p, g, v, number(w), Number(0.5), decay, nesterov=nesterov)
