"""Depthwise convolution: every filter reads one channel, so that there is no matrix to multiply.

Each thread takes some planes, one after the other. The rows of a plane are copied into a buffer
with padding just before they are needed, and `depthwise_tiles` computes some rows of outputs at a
time. The functions are generated for each size of filters, with all taps written out.
"""

from functools import cache
from types import ModuleType

import numpy as np

from pareo.array import Array
from pareo.backends.compiled.backend import Sizes
from pareo.backends.compiled.conv.depthwise_tiles import BYTES
from pareo.backends.compiled.runtime.arrays import copy
from pareo.backends.compiled.runtime.generated_module import generated_module
from pareo.backends.compiled.runtime.thread_pool import split_numbered, workers
from pareo.spec import Spec

LARGEST = 7  # taps on a side
ROWS = 4  # of a tile
FLUSH = 32  # rows whose products are added in the precision of the array
# Small planes are copied several at a time: a number that has just been stored is slow to load.
GROUP, GROUP_SIZE = 8, 4096  # planes, numbers
LEAST = 1 << 14  # outputs that are worth a thread


def suits(x: Spec | Array, filters: Sizes, how: dict[str, Sizes]) -> bool:
    """Whether these loops can convolve images (N, C, H, W) by filters (K, 1, kh, kw)."""
    taps = filters[2:]
    top, left, bottom, right = how["padding"]
    return (
        how["groups"] == x.shape[1] > 1
        and tuple(how["stride"]) in ((1, 1), (2, 2))
        and tuple(how["dilation"]) == (1, 1)
        and max(taps) <= LARGEST
        and max(top, bottom) < taps[0]
        and max(left, right) < taps[1]
    )


def _lanes(a: Spec | Array) -> int:
    return BYTES // a.dtype.itemsize


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def _image_buffer(
    x: Sizes, out: Sizes, filters: Sizes, stride: int, pad: Sizes, lanes: int
) -> Sizes:
    """Rows, and columns of each parity, of the buffer for a plane of x."""
    rows = max(pad[0] + x[2], (out[2] - 1) * stride + filters[2])
    copied = -(-pad[1] // stride) + _up(-(-x[3] // stride), lanes)
    read = _up(out[3], lanes) + (filters[3] - 1) // stride
    return rows, max(copied, read) + 1


def _spread_buffer(g: Sizes, out: Sizes, filters: Sizes, pad: Sizes, lanes: int) -> Sizes:
    """Rows and columns of the buffer for gradients of stride 2, and the margins before them."""
    before = [-(-max(0, filters[2 + i] - 1 - pad[i]) // 2) for i in (0, 1)]
    after = [(1 + pad[i]) // 2 for i in (0, 1)]
    rows = before[0] + max(g[2], -(-out[2] // 2) + after[0])
    columns = before[1] + max(_up(g[3], lanes), _up(-(-out[3] // 2), lanes) + after[1])
    return rows, columns + 1, before[0], before[1]


def _flipped_padding(filters: Sizes, padding: Sizes) -> Sizes:
    return filters[2] - 1 - padding[0], filters[3] - 1 - padding[1]


def _group(rows: int, columns: int, single: bool) -> int:
    """How many planes are copied at a time; `single` if each result has a plane of its own."""
    return max(1, min(GROUP, GROUP_SIZE // (rows * columns))) if single else 1


def scratch(x: Spec, out: Spec, filters: Sizes, stride: int, padding: Sizes) -> list[Spec]:
    """The buffer of every worker, to convolve x or to compute the filters' gradient."""
    rows, columns = _image_buffer(x.shape, out.shape, filters, stride, padding, _lanes(x))
    group = _group(rows, stride * columns, x.shape[1] == out.shape[1])
    return [x.like((workers(), group, rows, stride * columns))]


def gradient_scratch(out: Spec, g: Spec, filters: Sizes, stride: int, padding: Sizes) -> list[Spec]:
    """The buffer of every worker, to compute the gradient of the images."""
    if stride == 1:
        return scratch(g, out, filters, 1, _flipped_padding(filters, padding))
    rows, columns, _, _ = _spread_buffer(g.shape, out.shape, filters, padding, _lanes(g))
    group = _group(rows, columns, g.shape[1] == out.shape[1])
    return [g.like((workers(), group, rows, columns))]


def sums_scratch(x: Spec, filters: Sizes) -> list[Spec]:
    """For every worker, a vector and a number in double precision for each tap."""
    taps = filters[2] * filters[3]
    return [x.like((workers(), taps * _lanes(x))), Spec((workers(), taps), np.float64)]


def _planes(images: Array) -> Array:
    return images.reshape(images.shape[0] * images.shape[1], *images.shape[2:])


def _least(a: Array) -> int:
    """The planes that are worth a thread."""
    return max(1, LEAST // max(1, a.shape[2] * a.shape[3]))


def forward(
    out: Array, x: Array, w: Array, b: Array | None, stride: int, padding: Sizes, buffer: Array
) -> None:
    """out = conv(x, w) + b; without a bias b is None."""
    bias = np.zeros(w.shape[0], w.dtype) if b is None else b
    module = _module(*w.shape[2:], stride, 0)
    share = w.shape[0] // x.shape[1]
    sizes = (x.shape[1], out.shape[1], share, 1, *padding[:2], buffer.shape[3] // stride)
    target, images, filters = _planes(out), _planes(x), w.reshape(-1)

    def work(part: int, lo: int, hi: int) -> None:
        module.forward(target, images, filters, bias, buffer[part], *sizes, lo, hi)

    split_numbered(work, len(target), _least(out))


def input_gradient(
    out: Array, g: Array, w: Array, stride: int, padding: Sizes, buffer: Array
) -> None:
    """out = the gradient of the images; all weights must be finite."""
    share = w.shape[0] // out.shape[1]
    target, gradients = _planes(out), _planes(g)
    adds = int(share > 1)
    if stride == 1:
        module = _module(*w.shape[2:], 1, adds)
        flipped = np.empty(w.size, w.dtype)
        copy(flipped.reshape(w.shape), w[:, :, ::-1, ::-1])
        bias = np.zeros(out.shape[1], w.dtype)
        pad = _flipped_padding(w.shape, padding)
        sizes = (g.shape[1], out.shape[1], 1, share, *pad, buffer.shape[3])

        def work(part: int, lo: int, hi: int) -> None:
            module.forward(target, gradients, flipped, bias, buffer[part], *sizes, lo, hi)

    else:
        module = _spread_module(*w.shape[2:], *padding[:2], adds)
        filters = w.reshape(-1)
        margins = _spread_buffer(g.shape, out.shape, w.shape, padding, _lanes(g))[2:]

        def work(part: int, lo: int, hi: int) -> None:
            module.spread(
                target, gradients, filters, buffer[part], g.shape[1], out.shape[1], share,
                *margins, lo, hi,
            )  # fmt: skip

    split_numbered(work, len(target), _least(out))


def weight_gradient(
    out: Array, x: Array, g: Array, stride: int, padding: Sizes, scratch: tuple[Array, ...]
) -> None:
    """out = the gradient of the filters."""
    buffer, sums, totals = scratch
    module = _module(*out.shape[2:], stride, 0)
    images, gradients, filters = _planes(x), _planes(g), out.reshape(out.shape[0], -1)
    share = out.shape[0] // x.shape[1]
    sizes = (x.shape[0], x.shape[1], share, *padding[:2], buffer.shape[3] // stride)

    def work(part: int, lo: int, hi: int) -> None:
        module.weight_gradient(
            filters, images, gradients, buffer[part], sums[part], totals[part], *sizes, lo, hi
        )

    least = max(1, LEAST // max(1, g.shape[0] * g.shape[2] * g.shape[3]))
    split_numbered(work, out.shape[0], least)


def _for_rows(call: str, indent: int) -> str:
    """A call for each number of rows of a tile, with the number as a literal."""
    lines = []
    for rows in range(ROWS, 0, -1):
        lines.append(f"{'if' if rows == ROWS else 'elif'} rows == {rows}:")
        lines.append(f"    {call.replace('ROWS', str(rows))}")
    return ("\n" + " " * indent).join(lines)


@cache
def _module(kh: int, kw: int, stride: int, adds: int) -> ModuleType:
    convolve = (
        "tiles.convolve_rows(kind, target, wide, line, pitch, phase, weights, bias, wide, ROWS, "
        f"{kh}, {kw}, {stride}, {adds})"
    )
    add_up = (
        "tiles.sum_rows(kind, vectors, source, wide, line, pitch, phase, wide, ROWS, "
        f"{kh}, {kw}, {stride})"
    )
    return generated_module(
        _SOURCE.format(
            kh=kh, kw=kw, stride=stride, adds=adds, taps=kh * kw, most=ROWS, flush=FLUSH,
            convolve=_for_rows(convolve, 20), add_up=_for_rows(add_up, 20),
        )
    )  # fmt: skip


@cache
def _spread_module(kh: int, kw: int, top: int, left: int, adds: int) -> ModuleType:
    source = _SPREAD_SOURCE.format(kh=kh, kw=kw, top=top, left=left, adds=adds, taps=kh * kw)
    return generated_module(source)


_SOURCE = '''\
from pareo.backends.compiled.conv import depthwise_tiles as tiles
from pareo.backends.compiled.runtime.jit import jit


@jit
def fill(kind, size, buffer, pitch, phase, image, wide, first, last, top, left):
    """Copy rows first to last of the image at an address to their places in a buffer."""
    for r in range(first, last):
        source = image + r * wide * size
        line = buffer + (r + top) * pitch * size
        if {stride} == 1:
            tiles.copy_row(kind, line + left * size, source, wide)
        else:
            even = line + (left % 2 * phase + left // 2) * size
            odd = line + ((left + 1) % 2 * phase + (left + 1) // 2) * size
            tiles.copy_row_by_parity(kind, even, odd, source, wide)


@jit
def forward(out, x, w, b, buffers, ins, outs, share, terms, top, left, phase, lo, hi):
    kind, size = x.dtype.type(0), x.itemsize
    high, wide = out.shape[1:]
    tall, broad = x.shape[1:]
    group, slot, pitch = buffers.shape[0], buffers.shape[1] * buffers.shape[2], buffers.shape[2]
    memory, images, results = buffers.ctypes.data, x.ctypes.data, out.ctypes.data
    filters, biases = w.ctypes.data, b.ctypes.data
    buffers[:] = 0
    for begin in range(lo, hi, group):
        end = min(begin + group, hi)
        for plane in range(begin, end if group > 1 else begin):
            source = images + (plane // outs * ins + plane % outs // share) * tall * broad * size
            buffer = memory + (plane - begin) * slot * size
            fill(kind, size, buffer, pitch, phase, source, broad, 0, tall, top, left)
        for plane in range(begin, end):
            n, c = plane // outs, plane % outs
            if {adds}:
                out[plane] = 0
            bias = biases + c * size
            buffer = memory + (plane - begin) * slot * size
            for k in range(c * terms, c * terms + terms):
                source = images + (n * ins + k // share) * tall * broad * size
                weights = filters + k * {taps} * size
                ready = tall if group > 1 else 0
                for i in range(0, high, {most}):
                    rows = min({most}, high - i)
                    need = min(tall, (i + rows - 1) * {stride} + {kh} - top)
                    if need > ready:
                        fill(
                            kind, size, buffer, pitch, phase, source, broad, ready, need, top, left
                        )
                        ready = need
                    line = buffer + i * {stride} * pitch * size
                    target = results + (plane * high + i) * wide * size
                    {convolve}


@jit
def flush(totals, sums):
    lanes = sums.size // {taps}
    for tap in range({taps}):
        part = sums.dtype.type(0)
        for lane in range(tap * lanes, tap * lanes + lanes):
            part += sums[lane]
        totals[tap] += part
    sums[:] = 0


@jit
def weight_gradient(
    gw, x, g, buffers, sums, totals, images, ins, share, top, left, phase, lo, hi
):
    kind, size = x.dtype.type(0), x.itemsize
    high, wide = g.shape[1:]
    tall, broad = x.shape[1:]
    group, slot, pitch = buffers.shape[0], buffers.shape[1] * buffers.shape[2], buffers.shape[2]
    memory, pixels, gradients = buffers.ctypes.data, x.ctypes.data, g.ctypes.data
    vectors = sums.ctypes.data
    outs = ins * share
    buffers[:] = 0
    sums[:] = 0
    added = 0
    for k in range(lo, hi):
        totals[:] = 0
        for begin in range(0, images, group):
            end = min(begin + group, images)
            for n in range(begin, end if group > 1 else begin):
                image = pixels + (n * ins + k // share) * tall * broad * size
                buffer = memory + (n - begin) * slot * size
                fill(kind, size, buffer, pitch, phase, image, broad, 0, tall, top, left)
            for n in range(begin, end):
                image = pixels + (n * ins + k // share) * tall * broad * size
                buffer = memory + (n - begin) * slot * size
                ready = tall if group > 1 else 0
                for i in range(0, high, {most}):
                    rows = min({most}, high - i)
                    need = min(tall, (i + rows - 1) * {stride} + {kh} - top)
                    if need > ready:
                        fill(
                            kind, size, buffer, pitch, phase, image, broad, ready, need, top, left
                        )
                        ready = need
                    line = buffer + i * {stride} * pitch * size
                    source = gradients + ((n * outs + k) * high + i) * wide * size
                    {add_up}
                    added += rows
                    if added >= {flush}:
                        flush(totals, sums)
                        added = 0
        flush(totals, sums)
        added = 0
        for tap in range({taps}):
            gw[k, tap] = totals[tap]
'''

_SPREAD_SOURCE = """\
from pareo.backends.compiled.conv import depthwise_tiles as tiles
from pareo.backends.compiled.runtime.jit import jit


@jit
def fill(kind, size, buffer, pitch, source, wide, first, last):
    for r in range(first, last):
        tiles.copy_row(kind, buffer + r * pitch * size, source + r * wide * size, wide)


@jit
def spread(out, g, w, buffers, ins, outs, share, above, before, lo, hi):
    kind, size = g.dtype.type(0), g.itemsize
    high, wide = out.shape[1:]
    tall, broad = g.shape[1:]
    group, slot, pitch = buffers.shape[0], buffers.shape[1] * buffers.shape[2], buffers.shape[2]
    memory = buffers.ctypes.data + (above * pitch + before) * size
    gradients, results, filters = g.ctypes.data, out.ctypes.data, w.ctypes.data
    buffers[:] = 0
    for begin in range(lo, hi, group):
        end = min(begin + group, hi)
        for plane in range(begin, end if group > 1 else begin):
            source = gradients + (plane // outs * ins + plane % outs) * tall * broad * size
            fill(kind, size, memory + (plane - begin) * slot * size, pitch, source, broad, 0, tall)
        for plane in range(begin, end):
            n, c = plane // outs, plane % outs
            buffer = memory + (plane - begin) * slot * size
            if {adds}:
                out[plane] = 0
            for k in range(c * share, c * share + share):
                source = gradients + (n * ins + k) * tall * broad * size
                weights = filters + k * {taps} * size
                ready = tall if group > 1 else 0
                for i in range(0, high, 2):
                    need = min(tall, i // 2 + (1 + {top}) // 2 + 1)
                    if need > ready:
                        fill(kind, size, buffer, pitch, source, broad, ready, need)
                        ready = need
                    line = buffer + i // 2 * pitch * size
                    target = results + (plane * high + i) * wide * size
                    if i + 1 < high:
                        tiles.spread_rows(
                            kind, target, wide, line, pitch, weights, wide, 2, {kh}, {kw}, {top},
                            {left}, {adds},
                        )
                    else:
                        tiles.spread_rows(
                            kind, target, wide, line, pitch, weights, wide, 1, {kh}, {kw}, {top},
                            {left}, {adds},
                        )
"""
