"""Lines of normalisations."""

from pareo.backends.compiled.loops.groups.emitters.moves import split
from pareo.backends.compiled.loops.groups.emitters.operands import operand
from pareo.backends.compiled.loops.groups.segments import Node
from pareo.backends.compiled.loops.groups.source import GroupSource
from pareo.backends.compiled.loops.source import Unsupported

LINE = 8  # numbers of double precision in a cache line


def _channels(s: GroupSource, number: int, *first: int) -> str:
    """A value as an array of channels, and pixels with the images; perhaps with an axis before."""
    channels = s.shape(number)[1]
    return s.view(number, *first, channels, s.size(number) // channels * s.lanes)


def _pixels(s: GroupSource, number: int) -> int:
    """Elements of a channel of one image."""
    return s.size(number) // s.shape(number)[1]


def _shared(s: GroupSource, channels: int, width: int) -> tuple[str, str]:
    """A worker's numbers for each channel, and those of all workers."""
    start, each = s.moments, -(-channels * width // LINE) * LINE
    s.moments += each
    at = f"moments + {8 * start} * workers"
    every = s.once(f"moves.doubles({at}, workers, {each})")
    own = s.once(f"moves.doubles({at} + {8 * each} * worker, {channels}, {width})")
    s.per_step.append(f"{own}[:] = 0")
    return own, every


def _merged(s: GroupSource, what: str, channels: int, width: int) -> str:
    """A worker's copy of numbers for each channel, which follow from those of all workers."""
    start = s.merged
    s.merged += channels * width
    s.kept[what] = s.once(f"moves.doubles(merged + {8 * start}, {width}, {channels})")
    return s.kept[what]


def _of_batch(s: GroupSource, mean: int) -> str:
    """Mean, variance and 1 / deviation of a batch normalisation."""
    if f"statistics of {mean}" not in s.kept:
        raise Unsupported("batch_norm_gradient with given statistics")
    return s.kept[f"statistics of {mean}"]


def statistics(s: GroupSource, node: Node, position: int) -> None:
    """What mean and variance of a batch need; both, and the state, when all groups have passed."""
    (x,), (mean, variance) = node.inputs, node.outputs
    channels, pixels = s.shape(operand(s, x))[1], _pixels(s, x)
    own, every = _shared(s, channels, 3)
    at = s.arena.take(pixels * s.lanes)
    rest = s.array(s.arena.address(at), pixels * s.lanes)
    s.add(f"batch_norm.add_statistics({own}, {_channels(s, x, 1)}, {s.lanes}, valid, {rest})")
    s.arena.release(at, pixels * s.lanes)
    found = _merged(s, f"statistics of {mean}", channels, 3)
    epsilon = node.attributes["epsilon"]
    end = s.ends[node.segment]
    end.append(f"batch_norm.finish_statistics({found}, {every}, {epsilon!r})")
    for average in s.averages:
        if average.statistic == mean:
            share, row = repr(average.share), 0
        elif average.statistic == variance:
            # The program is that of one image; the variance is that of a sample, over all images.
            share = f"{average.share * (pixels - 1) / pixels!r} * unbiased"
            row = 1
            end.append(f"unbiased = batch * {pixels} / max(1, batch * {pixels} - 1)")
        else:
            continue
        s.averaged.add(average.parameter)
        end.append("if worker == 0:")
        given = f"{s.parameter(average.parameter)}, {found}[{row}], {average.kept!r}, {share}"
        end.append(f"    batch_norm.move({given})")


def batch_norm(s: GroupSource, node: Node, position: int) -> None:
    x, scale, shift, mean = node.inputs
    s.allocate(node.outputs[0])
    given = [s.parameter(s.parameter_of(n, "batch_norm")) for n in (scale, shift)]
    views = [_channels(s, n) for n in (node.outputs[0], operand(s, x))]
    s.add(f"batch_norm.normalise({', '.join([*views, _of_batch(s, mean), *given])})")


def sums(s: GroupSource, node: Node, position: int) -> None:
    """Two sums over the batch, which are the gradients of shift and of scale, too."""
    (g, x, mean), (link, by_scale, by_shift) = node.inputs, node.outputs
    channels, found = s.shape(operand(s, x))[1], _of_batch(s, mean)
    own, every = _shared(s, channels, 2)
    views = [_channels(s, n) for n in (operand(s, g), x)]
    s.add(f"batch_norm.add_sums({own}, {', '.join(views)}, {found})")
    end = s.ends[node.segment]
    totals = _merged(s, f"sums of {link}", channels, 2)
    end.append(f"batch_norm.finish_sums({totals}, {every})")
    for row, gradient in enumerate((by_shift, by_scale)):
        place = s.sum_of(gradient)
        if place is None:
            raise Unsupported("batch_norm with a gradient that is used")
        target = s.array(s.at_sum(place), channels)
        end.append(f"batch_norm.add_gradient({target}, {own}, {row}, {found})")


def batch_norm_gradient(s: GroupSource, node: Node, position: int) -> None:
    (g, x, scale, mean, link), out = node.inputs, node.outputs[0]
    given = s.parameter(s.parameter_of(scale, "batch_norm"))
    totals, count = s.kept[f"sums of {link}"], f"batch * {_pixels(s, x)}"
    rest = f"{_of_batch(s, mean)}, {given}, {totals}, {count}, {s.lanes}, valid"
    if s.can_take_over(out, g, position):
        s.take_over(out, g)
        s.add(f"batch_norm.gradient_in_place({_channels(s, out)}, {_channels(s, x)}, {rest})")
    else:
        s.allocate(out)
        views = [_channels(s, n) for n in (out, g, x)]
        s.add(f"batch_norm.gradient({', '.join(views)}, {rest})")


def _lrn_numbers(s: GroupSource, node: Node) -> str:
    how = node.attributes
    numbers = [how["alpha"] / how["size"], how["beta"], how["k"]]
    return f"{how['size']}, " + s.once(f"np.array({numbers}, np.float32)")


def lrn(s: GroupSource, node: Node, position: int) -> None:
    x, out = operand(s, node.inputs[0]), node.outputs[0]
    s.allocate(out)
    work = s.once(f"np.empty((1, {_pixels(s, x) * s.lanes}), np.float32)")
    views = ", ".join(_channels(s, n, 1) for n in (out, x))
    s.add(f"channels.lrn({views}, {work}, {_lrn_numbers(s, node)})")


def lrn_gradient(s: GroupSource, node: Node, position: int) -> None:
    (g, x), out = (operand(s, n) for n in node.inputs), node.outputs[0]
    s.allocate(out)
    work = s.once(f"np.empty(({2 + s.shape(x)[1]}, {_pixels(s, x) * s.lanes}), np.float32)")
    views = ", ".join(_channels(s, n, 1) for n in (out, g, x))
    s.add(f"channels.lrn_gradient({views}, {work}, {_lrn_numbers(s, node)})")


def _along(s: GroupSource, number: int, axis: int) -> str:
    """A value with all before an axis, the axis, and all after it with the images."""
    before, along, after = split(s.shape(number), [axis])
    return s.view(number, before, along, after * s.lanes)


def layer_norm(s: GroupSource, node: Node, position: int) -> None:
    x, scale, shift = node.inputs
    axis, out = node.attributes["axis"], node.outputs[0]
    if s.shape(operand(s, x))[axis] == 1:
        raise Unsupported("layer_norm of single numbers")
    s.allocate(out)
    given = [s.parameter(s.parameter_of(n, "layer_norm")) for n in (scale, shift)]
    views = [_along(s, n, axis) for n in (out, x)]
    s.add(f"channels.layer_norm({', '.join([*views, *given])}, {node.attributes['epsilon']!r})")


def layer_norm_gradient(s: GroupSource, node: Node, position: int) -> None:
    (g, x, scale), (out, *gradients) = node.inputs, node.outputs
    axis = node.attributes["axis"]
    starts = [s.sum_of(gradient) for gradient in gradients]
    if None in starts or s.shape(operand(s, x))[axis] == 1:
        raise Unsupported("layer_norm with a gradient that is used")
    sums = [s.array(s.at_sum(start), s.size(scale)) for start in starts if start is not None]
    operand(s, g)
    s.allocate(out)
    to, *of = (_along(s, n, axis) for n in (out, g, x))
    given = s.parameter(s.parameter_of(scale, "layer_norm"))
    work = s.once(f"np.empty((2, {s.size(scale)}))")
    rest = [*of, given, work, repr(node.attributes["epsilon"])]
    s.add(f"channels.layer_norm_gradient({', '.join([to, *sums, *rest])})")
