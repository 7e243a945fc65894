"""Lines of convolutions and trained pooling."""

import math
from collections.abc import Sequence

from pareo.backends.compiled.loops.groups.emitters.operands import operand, result, with_bias
from pareo.backends.compiled.loops.groups.kernels import conv
from pareo.backends.compiled.loops.groups.segments import Node
from pareo.backends.compiled.loops.groups.source import GroupSource
from pareo.backends.compiled.loops.source import Unsupported
from pareo.backends.compiled.runtime import registers

FEW_FILTERS = 8  # with fewer, copies of windows take longer than products


class _Layer:
    """The sizes of a convolution from x to y; its filters may be in groups.

    A filter as large as a single image is a row of a dense layer's weights, transposed.
    """

    def __init__(self, s: GroupSource, node: Node, x: int, y: int, w: Sequence[int]) -> None:
        how = node.attributes
        self.groups = how["groups"]
        images, channels, *pixels = s.shape(x)
        _, filters, *out = s.shape(y)
        self.w = (filters // self.groups, *w[1:])  # of one group
        self.steps = [
            4 * s.lanes * (filters // self.groups) * out[0] * out[1],
            4 * s.lanes * (channels // self.groups) * pixels[0] * pixels[1],
        ]
        self.sizes = [
            s.lanes, images, self.w[0], self.w[1], *pixels, *out, *w[2:], *how["stride"],
            *how["padding"][:2], *how["dilation"],
        ]  # fmt: skip

        self.flat = self.w[0], math.prod(self.w[1:])  # filters, and the elements of each
        whole = list(w[2:]) == pixels and out == [1, 1] and not any(how["padding"])
        alone = s.lanes == 1 and self.groups == 1
        self.is_row = alone and whole
        self.has_few_places = (
            alone and images == 1 and 2 * out[1] <= registers.LANES and filters >= FEW_FILTERS
        )
        self.channels, self.pixels, self.places = channels, pixels, out[0] * out[1]
        self.window = [
            *w[2:], *how["stride"], *how["padding"][:2], *how["dilation"], *out,
        ]  # fmt: skip

    def call(
        self, s: GroupSource, kernel: str, addresses: list[tuple[str, int]], *more: int
    ) -> None:
        """Call a kernel, for each group at addresses that are some bytes apart."""
        if self.groups == 1:
            s.call(kernel, [address for address, _ in addresses], *self.sizes, *more)
            return
        s.add(f"for k in range({self.groups}):")
        moved = [f"{address} + k * {step}" for address, step in addresses]
        s.call(f"    {kernel}", moved, *self.sizes, *more)


def _packed(
    s: GroupSource, weights: int, shape: Sequence[int], turned: bool, groups: int = 1
) -> tuple[str, int]:
    """The address of packed weights, which are packed once for each step, and a group's bytes."""
    parameter = s.parameter_of(weights, "conv with filters that are no parameter")
    filters, channels, kh, kw = shape
    steps = channels * kh * kw, kh * kw
    each = filters * channels * kh * kw
    if turned:
        filters, channels, steps = channels, filters, steps[::-1]
    key = f"v{parameter} {shape} {turned}"
    size = conv.packed_size(filters, channels, kh * kw, s.lanes)
    if key not in s.kept:
        block = conv.block_of(filters, s.lanes)
        s.kept[key] = s.arena.address(s.arena.keep(groups * size))
        view = s.array(s.kept[key], groups, size)
        source = s.array(s.at_parameter(parameter), groups, each)
        given = [filters, channels, kh, kw, block, conv.padded(block), *steps]
        s.per_step.append(f"conv.pack({view}, {source}, {s.integers(*given)})")
    return s.kept[key], 4 * size


def _rows(s: GroupSource, weights: int, layer: _Layer) -> str:
    """Filters as the rows of a matrix."""
    parameter = s.parameter_of(weights, "conv with filters that are no parameter")
    return s.array(s.at_parameter(parameter), *layer.flat)


class _Columns:
    """Memory for the windows of a layer with few places, and for its results, as rows."""

    def __init__(self, s: GroupSource, layer: _Layer) -> None:
        self.s, self.places = s, layer.places
        self.filters, self.elements = layer.flat
        kh, kw, sh, sw, top, left, dh, dw, out_high, out_wide = layer.window
        self._image = layer.channels, *layer.pixels
        # Of the padded image, as far as windows reach.
        high, wide = (
            (out_high - 1) * sh + (kh - 1) * dh + 1,
            (out_wide - 1) * sw + (kw - 1) * dw + 1,
        )
        counts = self.filters * self.places, self.places * self.elements
        self._taken = [(s.arena.take(n), n) for n in (*counts, layer.channels * high * wide)]
        self.results, self.windows, padded = (s.arena.address(at) for at, _ in self._taken)
        self.result_rows = s.array(self.results, self.places, self.filters)
        self._window_rows = s.array(self.windows, self.places, self.elements)
        self._padded = s.array(padded, layer.channels, high, wide)
        sizes = layer.channels, high, wide, kh, kw, dh, dw
        self._offsets = s.once(f"columns.offsets({', '.join(map(str, sizes))})")
        self._how = f"{top}, {left}, {out_wide}, {sh}, {sw}"

    def gather(self, x: str) -> None:
        """Fill the windows from the image at an address."""
        arrays = self._window_rows, self.s.array(x, *self._image), self._padded, self._offsets
        self.s.add(f"columns.gather({', '.join(arrays)}, {self._how})")

    def scatter(self, x: str) -> None:
        """Add the windows up in the image at an address."""
        arrays = self.s.array(x, *self._image), self._window_rows, self._padded, self._offsets
        self.s.add(f"columns.scatter({', '.join(arrays)}, {self._how})")

    def release(self) -> None:
        """Let others use the memory."""
        for offset, floats in self._taken:
            self.s.arena.release(offset, floats)


def forward(s: GroupSource, node: Node, position: int) -> None:
    x, w = node.inputs
    layer = _Layer(s, node, operand(s, x), node.outputs[0], s.shape(w))
    if layer.is_row:
        y, bias, biased = with_bias(s, node, "")
        rows = _rows(s, w, layer)
        given = s.array(bias, layer.flat[0]) if biased else s.array(s.at(x), 0)
        s.add(f"row.transposed({s.array(y, layer.flat[0])}, {s.view(x)}, {rows}, {given})")
        return
    if layer.has_few_places:
        at = s.at_parameter(s.parameter_of(w, "conv with filters that are no parameter"))
        y, bias, biased = with_bias(s, node, at)
        c = _Columns(s, layer)
        c.gather(s.at(x))
        sizes = c.places, c.filters, c.elements
        s.add(f"small_batch.transposed({c.results}, {c.windows}, {at}, {sizes}, 0, {c.filters})")
        given = s.array(bias, c.filters if biased else 0)
        s.add(f"columns.from_rows({s.array(y, c.filters, c.places)}, {c.result_rows}, {given})")
        c.release()
        return
    weights = _packed(s, w, layer.w, False, layer.groups)
    y, bias, biased = with_bias(s, node, weights[0])
    of_y, of_x = layer.steps
    of_bias = 4 * layer.w[0] if biased else 0
    addresses = [(y, of_y), (s.at(x), of_x), weights, (bias, of_bias)]
    layer.call(s, "conv.forward", addresses, int(biased))


def input_gradient(s: GroupSource, node: Node, position: int) -> None:
    (g, w), d = node.inputs, node.outputs[0]
    layer = _Layer(s, node, d, operand(s, g), s.shape(w))
    if layer.is_row:
        to, nothing = s.array(result(s, node), s.size(d)), s.array(s.at(g), 0)
        s.add(f"row.forward({to}, {s.view(g)}, {_rows(s, w, layer)}, {nothing})")
        return
    if layer.has_few_places:
        at = s.at_parameter(s.parameter_of(w, "conv with filters that are no parameter"))
        d_at = result(s, node)
        c = _Columns(s, layer)
        s.add(f"moves.to_rows({c.result_rows}, {s.view(g, c.filters, c.places)})")
        sizes = c.places, c.elements, c.filters
        s.add(f"small_batch.forward({c.windows}, {c.results}, {at}, {sizes}, 0, {c.elements})")
        c.scatter(d_at)
        c.release()
        return
    weights = _packed(s, w, layer.w, True, layer.groups)
    of_y, of_x = layer.steps
    addresses = [(result(s, node), of_x), (s.at(g), of_y), weights]
    layer.call(s, "conv.input_gradient", addresses)


def weight_gradient(s: GroupSource, node: Node, position: int) -> None:
    (x, g), gw = node.inputs, node.outputs[0]
    total = s.sum_of(gw)
    if total is None:
        raise Unsupported("gradient of filters that is used")
    layer = _Layer(s, node, operand(s, x), operand(s, g), s.shape(gw))
    if layer.is_row:
        sums = s.array(s.at_sum(total), *layer.flat)
        s.add(f"row.weight_gradient({sums}, {s.view(g)}, {s.view(x)})")
        return
    if layer.has_few_places:
        c = _Columns(s, layer)
        c.gather(s.at(x))
        s.add(f"moves.to_rows({c.result_rows}, {s.view(g, c.filters, c.places)})")
        sizes = c.filters, c.elements, c.places
        s.add(
            f"small_batch.update({s.at_sum(total)}, {c.results}, {c.windows}, {sizes}, "
            f"np.float32(1), 0, {c.filters})"
        )
        c.release()
        return
    of_y, of_x = layer.steps
    each = 4 * s.size(gw) // layer.groups
    addresses = [(s.at_sum(total), each), (s.at(x), of_x), (s.at(g), of_y)]
    layer.call(s, "filter_gradient.weight_gradient", addresses)


def subsample(s: GroupSource, node: Node, position: int) -> None:
    """One filter for all channels, which are images of one channel here."""
    (x, w, b), y = node.inputs, node.outputs[0]
    kh, kw = s.shape(w)
    weights, _ = _packed(s, w, (1, 1, kh, kw), False)
    bias = s.at_parameter(s.parameter_of(b, "subsample"))
    (_, channels, high, wide), (out_high, out_wide) = s.shape(operand(s, x)), s.shape(y)[2:]
    s.call(
        "conv.forward", [result(s, node), s.at(x), weights, bias], s.lanes,
        s.shape(x)[0] * channels, 1, 1, high, wide, out_high, out_wide, kh, kw,
        *node.attributes["stride"], 0, 0, 1, 1, 1,
    )  # fmt: skip
