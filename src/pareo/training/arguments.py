"""Checks of the arguments of training steps, made once before anything is read or updated.

The backends' own loops check nothing: with an order beyond the data, or an array of another dtype,
they would read the wrong memory.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import DTypeLike

from pareo.array import Array
from pareo.backends.base import Backend
from pareo.errors import DtypeError, ShapeError
from pareo.operators.loss import check_labels
from pareo.spec import Spec

Arrays = Mapping[str, Array]


def checked_arrays(
    what: str, wanted: Mapping[str, Spec], given: Arrays, backend: Backend
) -> dict[str, Array]:
    """Arrays that steps update in place, in the order of the network's own parameters.

    >>> from pareo import Device
    >>> wanted, given = {"w": Spec((2,))}, {"w": np.zeros(3, "f4")}
    >>> checked_arrays("parameter", wanted, given, Device("compiled").backend)
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
                f"the {what} {path} is updated in place: it must be C-contiguous and writable"
            )
    return {path: given[path] for path in wanted}


def check_data(
    images: Array, labels: Array, wanted: Spec, targets: Spec, classes: int, backend: Backend
) -> None:
    """Raise an error for images or labels that steps cannot read.

    `wanted` is the spec of a batch of images, `targets` that of its labels. Labels on a GPU are
    checked only when a loss is NaN, so that no step waits for the check.
    """
    if not isinstance(images, np.ndarray):  # a GPU takes NumPy arrays too, and copies batches
        backend.check("images", images)
    _fits("images", wanted.dtype, (*images.shape[:1], *wanted.shape[1:]), images)
    _fits("labels", targets.dtype, (*images.shape[:1], *targets.shape[1:]), labels, backend)
    if not (images.flags.c_contiguous and labels.flags.c_contiguous):
        raise ShapeError("steps expect images and labels that are C-contiguous")
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        check_labels(labels, classes)


def checked_order(order: Array, shape: tuple[int, ...], count: int) -> Array:
    """An order of images as int64, if its rows have this shape and its numbers are in range.

    >>> checked_order([[0, 1], [2, -1]], (2,), 3)
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
        # One pass over what may be many numbers: seen as unsigned, those below 0 are the largest.
        largest = order.view(np.uint64).max(initial=0)
    else:
        largest = order.max(initial=0)
    if order.size and largest >= count:
        raise ShapeError(
            f"an order of {count} images expects numbers from 0 to {count - 1}; "
            f"got {order.min()} to {order.max()}"
        )
    return np.ascontiguousarray(order, np.int64)


def check_disjoint(updated: Iterable[Array], read: Iterable[Array], backend: Backend) -> None:
    """Raise an error if an array that is updated shares memory with any other."""
    extents = [(*_extent(array, backend), True) for array in updated]
    extents += [(*_extent(array, backend), False) for array in read]
    end, written = 0, False
    for start, stop, writes in sorted(extent for extent in extents if extent[0] < extent[1]):
        if start < end and (written or writes):
            raise ShapeError(
                "parameters are updated in place: none may share memory with others or the data"
            )
        if stop > end:
            end, written = stop, writes


def _extent(array: Array, backend: Backend) -> tuple[int, int]:
    start = int(array.ctypes.data) if isinstance(array, np.ndarray) else backend.address(array)
    return start, start + int(array.nbytes)


def _fits(
    name: str,
    dtype: DTypeLike,
    shape: tuple[int, ...],
    array: Array,
    backend: Backend | None = None,
) -> None:
    if backend is not None:
        backend.check(name, array)
    if array.dtype != dtype:
        raise DtypeError(f"steps expect {name} of {dtype}; got {array.dtype}")
    if array.shape != shape:
        raise ShapeError(f"steps expect {name} of shape {shape}; got {array.shape}")
