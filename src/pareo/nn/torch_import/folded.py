"""What does not depend on the input: constants are computed, and parts of weights are tracked."""

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from pareo.nn.tables import FixedProduct, FixedSum, TableProduct, TableSum, packed
from pareo.nn.torch_import.arranged import arranged
from pareo.nn.torch_import.values import Noise, Unknown, Unsupported, Weight

# Operators that make constants from numbers alone.
MAKERS = frozenset({"arange", "zeros", "ones", "full", "eye", "linspace", "scalar_tensor"})
LIKE = frozenset({"new_zeros", "new_ones", "new_full"})  # of a tensor that only has a dtype
# Operators that only pick, or move, elements of a weight.
PICKS = frozenset({
    "index", "index_select", "permute", "transpose", "slice", "select", "view", "reshape",
    "unsqueeze", "squeeze", "flatten", "contiguous", "clone", "alias", "expand", "to", "embedding",
    "t", "flip", "roll", "unflatten", "narrow", "movedim", "repeat", "expand_as",
})  # fmt: skip
# Those of them after which a weight is still one by itself, in another shape.
KEPT = frozenset({"view", "reshape", "expand", "expand_as", "unsqueeze", "repeat"})
PRODUCTS = frozenset({"einsum", "matmul", "bmm"})  # which may pick elements of a weight
LARGEST = 2**25  # elements of a constant


@dataclass(frozen=True, eq=False)
class Known:
    """A tensor that is the same for every input."""

    tensor: Any

    @property
    def array(self) -> Any:
        """Its numbers."""
        return self.tensor.detach().numpy()


@dataclass(frozen=True, eq=False)
class Picked:
    """Elements of a trained weight: their numbers in it, in the shape that PyTorch sees."""

    weight: Weight
    index: Any


def folded(reader: Any, node: Any, name: str, given: Any, parts: list[Any]) -> Any:
    """The result of a node that does not depend on the input; None for others."""
    if not hasattr(node.target, "_schema") or any(isinstance(p, Unknown | Noise) for p in parts):
        return None
    torch = import_module("torch")
    kinds = {type(part) for part in parts}
    buffers = [p for p in parts if isinstance(p, Weight) and reader.is_buffer(p)]
    trained = [p for p in parts if isinstance(p, Weight) and not reader.is_buffer(p)]
    if any(p.name.endswith("num_batches_tracked") or p.viewed for p in buffers):
        return None
    if name in LIKE:
        return _computed(torch, node, {"self": torch.zeros((), dtype=torch.float64)}, given)
    tensors = [part for part in parts if isinstance(part, Known | Picked | Weight)]
    if any(_is_value(kind) for kind in kinds) or (not tensors and name not in MAKERS):
        return None
    if not trained and Picked not in kinds:
        if name.endswith("_") and buffers:
            return None
        return _computed(torch, node, {}, given, reader)
    if name in PICKS and len(trained) + sum(isinstance(p, Picked) for p in parts) == 1:
        if trained and (trained[0].viewed or trained[0].batched or name in KEPT):
            return None
        weight = trained[0] if trained else next(p.weight for p in parts if isinstance(p, Picked))
        found = _computed(torch, node, {}, given, reader)
        return Picked(weight, found.tensor.numpy()) if isinstance(found, Known) else None
    if name in PRODUCTS and len(trained) + sum(isinstance(p, Picked) for p in parts) == 1:
        weight = trained[0] if trained else next(p.weight for p in parts if isinstance(p, Picked))
        if not weight.viewed and not weight.batched:
            return _linear_pick(torch, node, given, reader, weight)
    return None


def _linear_pick(torch: Any, node: Any, given: Any, reader: Any, weight: Weight) -> Any:
    """The elements of a weight that a product with constants of 0 and 1 picks; None of others."""
    drawn = np.random.default_rng(0).standard_normal(weight.shape)
    whole = np.arange(drawn.size, dtype=float).reshape(weight.shape)
    found = [
        _computed(torch, node, {}, given, reader, torch.from_numpy(one)).array
        for one in (whole, drawn)
    ]
    index = found[0].round().astype(np.int64)
    inside = index.size and index.min() >= 0 and index.max() < drawn.size
    if inside and np.array_equal(drawn.ravel()[index], found[1]):
        return Picked(weight, index)
    return None


def _is_value(kind: type) -> bool:
    return kind.__name__ in ("Value", "Moved", "Padded", "Stale")


def _computed(
    torch: Any, node: Any, first: dict[str, Any], given: Any, reader: Any = None, own: Any = None
) -> Any:
    """The result of a node of constants; a weight is `own`, or the numbers of its elements."""
    value = node.meta.get("val")
    if getattr(value, "numel", lambda: 0)() > LARGEST:
        raise Unsupported(f"a constant of {value.numel():,} elements")

    def tensor(one: Any) -> Any:
        if isinstance(one, Known):
            return one.tensor
        if isinstance(one, Picked):
            index = torch.from_numpy(np.ascontiguousarray(one.index))
            return index if own is None else own.flatten()[index]
        if isinstance(one, Weight):
            if reader.is_buffer(one):
                return reader.tensor(one.name)
            if own is not None:
                return own
            return torch.arange(int(np.prod(one.shape))).reshape(one.shape)
        if isinstance(one, list):
            return [tensor(item) for item in one]
        return one

    arguments = node.target._schema.arguments
    known = {key: tensor(one) for key, one in given.items()} | first
    plain = [known[a.name] for a in arguments if not a.kwarg_only]
    named = {a.name: known[a.name] for a in arguments if a.kwarg_only}
    try:
        with torch.no_grad():
            found = node.target(*plain, **named)
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
        said = str(error).strip().partition("\n")[0]
        raise Unsupported(f"of constants: {said}") from error
    if isinstance(found, list | tuple):
        return [Known(one) for one in found]
    return Known(found) if isinstance(found, torch.Tensor) else found


def number_of(x: Any) -> Any:
    """A constant of one element as a number; others as they are."""
    if isinstance(x, Known) and x.tensor.numel() == 1 and not x.tensor.is_complex():
        return float(x.tensor.item())
    return x


def known_buffer(reader: Any, x: Any) -> Any:
    """A buffer, which training does not change, as a constant; others as they are."""
    if isinstance(x, Weight) and reader.is_buffer(x):
        return Known(reader.tensor(x.name).reshape(x.seen))
    return x


def by_place(reader: Any, x: Any, other: Any, factor: float = 1.0, product: bool = False) -> Any:
    """A value and numbers by place, added or multiplied: fixed, or elements of a trained weight."""
    found = arranged(reader, x)
    numbers = other.index if isinstance(other, Picked) else other.array
    shape = (*[1] * (found.axes - numbers.ndim), *numbers.shape)
    if len(shape) != found.axes or shape[found.place] != 1:
        raise Unsupported(f"with a constant of shape {numbers.shape}")
    wide = (*shape[: found.place], *[1] * found.own, *shape[found.place + 1 :])
    sizes = tuple(np.broadcast_shapes(wide, found.value.shape))
    repeated = reader.widened(replace(found.value, wide=sizes))
    layer: Any
    kind: Any
    if isinstance(other, Picked):
        if factor != 1:
            raise Unsupported("less a trained weight, or with a factor")
        kind = TableProduct if product else TableSum
        table = other.weight.shape or (1,)  # a number by itself is a table of one
        layer = kind(wide, table, packed(numbers, "<i4"))
        y = reader.layer(layer, repeated, {"w": (replace(other.weight, viewed=()), "reshaped")})
    else:
        if numbers.dtype.kind not in "fiub":
            raise Unsupported(f"with a constant of {numbers.dtype}")
        kind = FixedProduct if product else FixedSum
        layer = kind(wide, packed(factor * numbers.astype(float), "<f8"))
        y = reader.layer(layer, repeated)
    return found.moved(reader, y)
