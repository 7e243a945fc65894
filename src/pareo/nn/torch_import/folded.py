"""What does not depend on the input: constants are computed, and parts of weights are tracked."""

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from pareo.nn.tables import FixedSum, TableSum, packed
from pareo.nn.torch_import.arranged import arranged
from pareo.nn.torch_import.values import Noise, Unknown, Unsupported, Weight

# Operators that make constants from numbers alone.
MAKERS = frozenset({"arange", "zeros", "ones", "full", "eye", "linspace", "scalar_tensor"})
LIKE = frozenset({"new_zeros", "new_ones", "new_full"})  # of a tensor that only has a dtype
# Operators that only pick, or move, elements of a weight.
PICKS = frozenset({
    "index", "index_select", "permute", "transpose", "slice", "select", "view", "reshape",
    "unsqueeze", "squeeze", "flatten", "contiguous", "clone", "alias", "expand", "to",
})  # fmt: skip
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
        if trained and (trained[0].viewed or name in ("view", "reshape", "expand", "unsqueeze")):
            return None
        weight = trained[0] if trained else next(p.weight for p in parts if isinstance(p, Picked))
        found = _computed(torch, node, {}, given, reader)
        return Picked(weight, found.tensor.numpy()) if isinstance(found, Known) else None
    return None


def _is_value(kind: type) -> bool:
    return kind.__name__ in ("Value", "Moved", "Padded", "Stale")


def _computed(torch: Any, node: Any, first: dict[str, Any], given: Any, reader: Any = None) -> Any:
    value = node.meta.get("val")
    if getattr(value, "numel", lambda: 0)() > LARGEST:
        raise Unsupported(f"a constant of {value.numel():,} elements")

    def tensor(one: Any) -> Any:
        if isinstance(one, Known):
            return one.tensor
        if isinstance(one, Picked):
            return torch.from_numpy(np.ascontiguousarray(one.index))
        if isinstance(one, Weight):
            if reader.is_buffer(one):
                return reader.program.state_dict[one.name]
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


def summed(reader: Any, x: Any, other: Any, factor: float = 1.0) -> Any:
    """A value and numbers by place: fixed ones, or elements of a trained weight."""
    found = arranged(reader, x)
    numbers = other.index if isinstance(other, Picked) else other.array
    shape = (*[1] * (found.axes - numbers.ndim), *numbers.shape)
    if len(shape) != found.axes or shape[found.place] != 1:
        raise Unsupported(f"with a constant of shape {numbers.shape}")
    wide = (*shape[: found.place], *[1] * found.own, *shape[found.place + 1 :])
    layer: Any
    if isinstance(other, Picked):
        if factor != 1:
            raise Unsupported("less a trained weight, or with a factor")
        layer = TableSum(wide, other.weight.shape, packed(numbers, "<i4"))
        y = reader.layer(layer, found.value, {"w": (replace(other.weight, viewed=()), "same")})
    else:
        if numbers.dtype.kind != "f":
            raise Unsupported(f"with a constant of {numbers.dtype}")
        layer = FixedSum(wide, packed(factor * numbers, "<f8"))
        y = reader.layer(layer, found.value)
    return found.moved(reader, y)
