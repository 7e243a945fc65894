"""The windows of an image as columns of a matrix (im2col), and back."""

from pareo.array import Array
from pareo.backends.compiled.conv.row_moves import (
    add_row,
    add_to_every_second,
    copy_every_second,
    copy_row,
)
from pareo.backends.compiled.runtime.jit import jit


@jit
def valid_range(size: int, image: int, step: int, shift: int) -> tuple[int, int]:
    """The range of outputs i below `size` for which i * step + shift is inside the image."""
    first = max(0, -(shift // step)) if shift < 0 else 0
    end = min(size, max(0, (image - 1 - shift) // step + 1)) if image > shift else 0
    return min(first, end), end


@jit
def gather(
    columns: Array, at: int, x: Array, height: int, width: int, kh: int, kw: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    """columns[(c, u, v), at + (i, j)] = the pixel under tap (u, v) of window (i, j), 0 outside."""
    row = 0
    is_moved = x.itemsize == 4 and sw <= 2  # other rows are moved number by number
    for c in range(x.shape[0]):
        for u in range(kh):
            for v in range(kw):
                line = columns[row][at : at + height * width]
                row += 1
                low, high = valid_range(height, x.shape[1], sh, u * dh - top)
                start, stop = valid_range(width, x.shape[2], sw, v * dw - left)
                if is_moved:
                    into = columns.ctypes.data + 4 * ((row - 1) * columns.shape[1] + at)
                    first = (c * x.shape[1] + low * sh + u * dh - top) * x.shape[2]
                    given = x.ctypes.data + 4 * (first + start * sw + v * dw - left)
                    if low > 0 or high < height or start > 0 or stop < width:
                        for p in range(height * width):
                            line[p] = 0
                    for i in range(low, high):
                        place = into + 4 * (i * width + start)
                        if sw == 1:
                            copy_row(place, given, stop - start)
                        else:
                            copy_every_second(place, given, stop - start)
                        given += 4 * sh * x.shape[2]
                    continue
                line[: low * width] = 0
                line[high * width :] = 0
                for i in range(low, high):
                    target = line[i * width : (i + 1) * width]
                    source = x[c, i * sh + u * dh - top]
                    for j in range(start):
                        target[j] = 0
                    for j in range(stop, width):
                        target[j] = 0
                    shift = v * dw - left
                    if sw == 1:
                        for j in range(start, stop):
                            target[j] = source[j + shift]
                    else:
                        for j in range(start, stop):
                            target[j] = source[j * sw + shift]


@jit
def scatter(
    out: Array, columns: Array, at: int, height: int, width: int, kh: int, kw: int,
    sh: int, sw: int, top: int, left: int, dh: int, dw: int,
) -> None:  # fmt: skip
    """The adjoint of `gather`: add every element of the columns to the pixel it came from."""
    row = 0
    is_moved = out.itemsize == 4 and sw <= 2
    for c in range(out.shape[0]):
        for u in range(kh):
            for v in range(kw):
                line = columns[row][at : at + height * width]
                row += 1
                low, high = valid_range(height, out.shape[1], sh, u * dh - top)
                start, stop = valid_range(width, out.shape[2], sw, v * dw - left)
                if is_moved:
                    given = columns.ctypes.data + 4 * ((row - 1) * columns.shape[1] + at)
                    first = (c * out.shape[1] + low * sh + u * dh - top) * out.shape[2]
                    into = out.ctypes.data + 4 * (first + start * sw + v * dw - left)
                    for i in range(low, high):
                        source_place = given + 4 * (i * width + start)
                        if sw == 1:
                            add_row(into, source_place, stop - start)
                        else:
                            add_to_every_second(into, source_place, stop - start)
                        into += 4 * sh * out.shape[2]
                    continue
                for i in range(low, high):
                    source = line[i * width : (i + 1) * width]
                    target = out[c, i * sh + u * dh - top]
                    shift = v * dw - left
                    if sw == 1:
                        for j in range(start, stop):
                            target[j + shift] += source[j]
                    else:
                        for j in range(start, stop):
                            target[j * sw + shift] += source[j]
