"""What steps of training are given, checked once before any of it is read or moved.

Loops of the backends' own ask no questions: an order beyond the data or an array of another dtype
would be read as it lies.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pareo.backends.base import Backend
from pareo.errors import DtypeError, ShapeError
from pareo.operators.loss import check_labels
from pareo.spec import Spec

Arrays = Mapping[str, Any]


def moved(what: str, wanted: Mapping[str, Spec], given: Arrays, backend: Backend) -> dict[str, Any]:
    """Arrays that steps move in place, in the network's own order, whatever theirs is.

    >>> from pareo import Device
    >>> moved("parameter", {"w": Spec((2,))}, {"w": np.zeros(3, "f4")}, Device("compiled").backend)
    Traceback (most recent call last):
    pareo.errors.ShapeError: steps expect the parameter w of shape (2,); got (3,)
    """
    if not isinstance(given, Mapping) or given.keys() != wanted.keys():
        names = given.keys() if isinstance(given, Mapping) else ()
        wrong = sorted(map(str, names ^ wanted.keys()))
        raise ShapeError(
            f"steps expect one {what} for each of {len(wanted)} names; "
            f"missing or unknown: {', '.join(wrong[:3]) or 'all'}"
        )
    for path, spec in wanted.items():
        array = given[path]
        _fits(f"the {what} {path}", spec.dtype, spec.shape, array, backend)
        if not (array.flags.c_contiguous and backend.is_writable(array)):
            raise DtypeError(
                f"the {what} {path} is moved in place: it must be C-contiguous and writable"
            )
    return {path: given[path] for path in wanted}


def data(images: Any, labels: Any, wanted: Spec, classes: int, backend: Backend) -> None:
    """Refuse images and labels that steps would read wrongly.

    `wanted` is a batch of images. Labels on a GPU are looked at only when a loss is no number:
    until then nobody waits for them.
    """
    if not isinstance(images, np.ndarray):  # a GPU takes those, too, and sends batches of them
        backend.check("images", images)
    _fits("images", wanted.dtype, (*images.shape[:1], *wanted.shape[1:]), images)
    _fits("labels", np.dtype(np.int64), images.shape[:1], labels, backend)
    if not (images.flags.c_contiguous and labels.flags.c_contiguous):
        raise ShapeError("steps expect images and labels that are C-contiguous")
    if isinstance(labels, np.ndarray):
        check_labels(labels, classes)


def picked(order: Any, shape: tuple[int, ...], count: int) -> Any:
    """An order of images as int64, if each row is of this shape and it keeps to the data.

    >>> picked([[0, 1], [2, -1]], (2,), 3)
    Traceback (most recent call last):
    pareo.errors.ShapeError: an order of 3 images expects numbers from 0 to 2; got -1 to 2
    """
    order = np.asarray(order)
    if order.dtype.kind not in "iu":
        raise DtypeError(f"an order expects whole numbers; got {order.dtype}")
    if order.shape[1:] != shape or order.ndim != 1 + len(shape):
        wanted = ", ".join(map(str, ("steps", *shape)))
        raise ShapeError(f"an order expects the shape ({wanted}); got {order.shape}")
    if order.dtype.kind == "i":
        order = np.ascontiguousarray(order, np.int64)
        # One pass over what may be many numbers: without a sign those below 0 are the largest.
        largest = order.view(np.uint64).max(initial=0)
    else:
        largest = order.max(initial=0)
    if order.size and largest >= count:
        raise ShapeError(
            f"an order of {count} images expects numbers from 0 to {count - 1}; "
            f"got {order.min()} to {order.max()}"
        )
    return np.ascontiguousarray(order, np.int64)


def apart(moving: Iterable[Any], read: Iterable[Any], backend: Backend) -> None:
    """Refuse arrays that are moved and have memory in common with any other."""
    extents = [(*_extent(array, backend), True) for array in moving]
    extents += [(*_extent(array, backend), False) for array in read]
    end, moves = 0, False
    for start, stop, moving_too in sorted(extent for extent in extents if extent[0] < extent[1]):
        if start < end and (moves or moving_too):
            raise ShapeError(
                "steps move parameters in place: none may share memory with others or with the data"
            )
        if stop > end:
            end, moves = stop, moving_too


def _extent(array: Any, backend: Backend) -> tuple[int, int]:
    start = int(array.ctypes.data) if isinstance(array, np.ndarray) else backend.address(array)
    return start, start + int(array.nbytes)


def _fits(
    name: str, dtype: Any, shape: tuple[int, ...], array: Any, backend: Backend | None = None
) -> None:
    if backend is not None:
        backend.check(name, array)
    if array.dtype != dtype:
        raise DtypeError(f"steps expect {name} of {dtype}; got {array.dtype}")
    if array.shape != shape:
        raise ShapeError(f"steps expect {name} of shape {shape}; got {array.shape}")
