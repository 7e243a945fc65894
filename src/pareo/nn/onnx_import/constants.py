"""Operators of constants: those that exporters write to compute shapes, and to arrange weights."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pareo.nn.onnx_import.file import onnx_module
from pareo.nn.torch_import.values import Unsupported

NUMBERS = frozenset({
    "bool", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16",
    "uint32", "uint64",
})  # fmt: skip
Arrays = Sequence[Any]
How = Mapping[str, Any]


def _elementwise(function: Callable[..., Any]) -> Callable[[Arrays, How], Any]:
    def compute(arrays: Arrays, how: How) -> Any:
        return function(*arrays)

    return compute


def _divided(a: Any, b: Any) -> Any:
    """Division; that of integers is rounded towards 0."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    if not np.all(b):
        raise Unsupported("by 0")
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def _mod(arrays: Arrays, how: How) -> Any:
    a, b = arrays
    if not np.all(b):
        raise Unsupported("by 0")
    return np.fmod(a, b) if how.get("fmod") else np.mod(a, b)


def _cast(arrays: Arrays, how: How) -> Any:
    """Another type, of those that NumPy has itself: others round or saturate in their own ways."""
    wanted = onnx_module("onnx.helper").tensor_dtype_to_np_dtype(how["to"])
    for dtype in (arrays[0].dtype, wanted):
        if dtype.name not in NUMBERS:
            raise Unsupported(f"between {arrays[0].dtype} and {wanted}")
    return arrays[0].astype(wanted)


def _axes(arrays: Arrays, how: How) -> list[int] | None:
    """Axes that are the second input, or an attribute in earlier opsets."""
    if len(arrays) > 1 and arrays[1] is not None:
        return [int(axis) for axis in arrays[1].ravel()]
    found = how.get("axes")
    return None if found is None else list(found)


def _unsqueeze(arrays: Arrays, how: How) -> Any:
    return np.expand_dims(arrays[0], tuple(_axes(arrays, how) or ()))


def _squeeze(arrays: Arrays, how: How) -> Any:
    axes = _axes(arrays, how)
    return np.squeeze(arrays[0], None if axes is None else tuple(axes))


def reshaped(old: Sequence[int], wanted: Sequence[int], keeps_zero: bool) -> tuple[int, ...]:
    """The shape that `Reshape` makes: 0 is the old size, and -1 what is left.

    >>> reshaped((2, 3, 4), (0, -1), False)
    (2, 12)
    """
    sizes = [int(size) for size in wanted]
    for place, size in enumerate(sizes):
        if size == 0 and not keeps_zero:
            if place >= len(old):
                raise Unsupported(f"from {tuple(old)} to {tuple(sizes)}")
            sizes[place] = old[place]
    known = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and known:
        sizes[sizes.index(-1)] = math.prod(old) // known
    if min(sizes, default=0) < 0 or math.prod(sizes) != math.prod(old):
        raise Unsupported(f"from {tuple(old)} to {tuple(int(size) for size in wanted)}")
    return tuple(sizes)


def _reshape(arrays: Arrays, how: How) -> Any:
    return arrays[0].reshape(reshaped(arrays[0].shape, arrays[1], bool(how.get("allowzero"))))


def slices(shape: Sequence[int], arrays: Arrays) -> list[slice]:
    """The slice along each axis, from the inputs of `Slice`."""
    starts, ends = arrays[1].ravel().tolist(), arrays[2].ravel().tolist()
    given = arrays[3] if len(arrays) > 3 else None
    axes = list(range(len(starts))) if given is None else given.ravel().tolist()
    given = arrays[4] if len(arrays) > 4 else None
    steps = [1] * len(starts) if given is None else given.ravel().tolist()
    found = [slice(0, size, 1) for size in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0 or not -len(shape) <= axis < len(shape):
            raise Unsupported(f"along the axis {axis} with a step of {step}")
        first, last, _ = slice(start, end, step).indices(shape[axis])
        found[axis] = slice(first, None if step < 0 and last < 0 else last, step)
    return found


def _gathered_size(arrays: Arrays, how: How) -> int:
    shape = arrays[0].shape
    return arrays[1].size * (math.prod(shape) // max(1, shape[how.get("axis", 0)]))


def _expand(arrays: Arrays, how: How) -> Any:
    wanted = np.broadcast_shapes(arrays[0].shape, tuple(int(size) for size in arrays[1]))
    return np.broadcast_to(arrays[0], wanted)


def _filled(arrays: Arrays, how: How) -> Any:
    value = how.get("value")
    one = np.zeros(1, np.float32) if value is None else value
    if np.min(arrays[0], initial=0) < 0:
        raise Unsupported(f"of shape {arrays[0].tolist()}")
    return np.broadcast_to(one.reshape(()), tuple(int(size) for size in arrays[0]))


def _range(arrays: Arrays, how: How) -> Any:
    return np.arange(*(array.reshape(()) for array in arrays), dtype=arrays[0].dtype)


def _range_size(arrays: Arrays, how: How) -> int:
    start, stop, step = (array.reshape(()).item() for array in arrays)
    return max(0, math.ceil((stop - start) / step)) if step else 0


def _reduced(function: Callable[..., Any]) -> Callable[[Arrays, How], Any]:
    def compute(arrays: Arrays, how: How) -> Any:
        axes = _axes(arrays, how)
        if not axes and how.get("noop_with_empty_axes"):
            return arrays[0]
        keep = bool(how.get("keepdims", 1))
        return function(arrays[0], axis=tuple(axes) if axes else None, keepdims=keep)

    return compute


def _clip(arrays: Arrays, how: How) -> Any:
    low, high = (arrays[place] if len(arrays) > place else None for place in (1, 2))
    found = arrays[0] if low is None else np.maximum(arrays[0], low)
    return found if high is None else np.minimum(found, high)


def _triangle(arrays: Arrays, how: How) -> Any:
    cut = np.triu if how.get("upper", 1) else np.tril
    number = arrays[1] if len(arrays) > 1 else None
    return cut(arrays[0], 0 if number is None else int(number.reshape(())))


def _transposed(arrays: Arrays, how: How) -> Any:
    return arrays[0].transpose(how.get("perm"))


FUNCTIONS: Mapping[str, Callable[[Arrays, How], Any]] = {
    "Abs": _elementwise(np.abs),
    "Add": _elementwise(np.add),
    "And": _elementwise(np.logical_and),
    "Cast": _cast,
    "Ceil": _elementwise(np.ceil),
    "Clip": _clip,
    "Concat": lambda arrays, how: np.concatenate(arrays, how["axis"]),
    "ConstantOfShape": _filled,
    "Div": _elementwise(_divided),
    "Equal": _elementwise(np.equal),
    "Exp": _elementwise(np.exp),
    "Expand": _expand,
    "Floor": _elementwise(np.floor),
    "Gather": lambda arrays, how: np.take(arrays[0], arrays[1], how.get("axis", 0)),
    "Greater": _elementwise(np.greater),
    "Identity": lambda arrays, how: arrays[0],
    "Less": _elementwise(np.less),
    "Log": _elementwise(np.log),
    "Max": lambda arrays, how: np.maximum.reduce(np.broadcast_arrays(*arrays)),
    "Min": lambda arrays, how: np.minimum.reduce(np.broadcast_arrays(*arrays)),
    "Mod": _mod,
    "Mul": _elementwise(np.multiply),
    "Neg": _elementwise(np.negative),
    "Not": _elementwise(np.logical_not),
    "Or": _elementwise(np.logical_or),
    "Pow": _elementwise(lambda a, b: np.power(a, b).astype(a.dtype)),
    "Range": _range,
    "Reciprocal": _elementwise(np.reciprocal),
    "ReduceMax": _reduced(np.max),
    "ReduceMean": _reduced(np.mean),
    "ReduceMin": _reduced(np.min),
    "ReduceProd": _reduced(np.prod),
    "ReduceSum": _reduced(np.sum),
    "Reshape": _reshape,
    "Shape": lambda arrays, how: part_of_shape(arrays[0].shape, how),
    "Size": lambda arrays, how: np.int64(arrays[0].size),
    "Slice": lambda arrays, how: arrays[0][tuple(slices(arrays[0].shape, arrays))],
    "Sqrt": _elementwise(np.sqrt),
    "Squeeze": _squeeze,
    "Sub": _elementwise(np.subtract),
    "Transpose": _transposed,
    "Trilu": _triangle,
    "Unsqueeze": _unsqueeze,
    "Where": _elementwise(np.where),
    "Xor": _elementwise(np.logical_xor),
}
NO_MEMORY = frozenset({"ConstantOfShape", "Expand", "Identity", "Shape", "Size", "Slice",
                       "Squeeze", "Transpose", "Unsqueeze"})  # fmt: skip


def part_of_shape(shape: Sequence[int], how: How) -> Any:
    """What `Shape` gives: a shape, or a part of it."""
    return np.array(shape[how.get("start", 0) : how.get("end")], np.int64)


def size_of_result(op: str, arrays: Arrays, how: How) -> int:
    """At least as many elements as an operator of constants allocates."""
    given = [array for array in arrays if array is not None]
    if op in NO_MEMORY or not given:
        return 0
    if op == "Gather":
        return _gathered_size(arrays, how)
    if op == "Range":
        return _range_size(arrays, how)
    if op.startswith("Reduce"):  # along an axis of no elements, there may be more than before
        return math.prod(max(1, size) for size in given[0].shape)
    if op in ("Concat", "Reshape", "Trilu"):
        return sum(array.size for array in given)
    return math.prod(np.broadcast_shapes(*(array.shape for array in given)))


def compute(op: str, arrays: Arrays, how: How) -> Any:
    """The result of an operator of `FUNCTIONS`."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(FUNCTIONS[op](arrays, how))
    except (ValueError, IndexError, TypeError, KeyError, OverflowError, MemoryError) as error:
        said = " ".join(str(error).split())
        raise Unsupported(f"of constants that do not fit: {said}") from error
