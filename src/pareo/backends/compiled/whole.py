"""Training over images in one compiled loop, for networks so small that calls would cost the most.

From the gradient program of one image a module is generated that you can read: for every step, each
worker runs its share of the batch image by image, with all that is in between in the nearest cache,
and adds up its gradients; then the workers meet, one of them moves the parameters, and they go on.
The module lies in the cache folder beside the machine code that Numba makes of it.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pareo.backends.base import Fusion
from pareo.backends.compiled import templates, tiles
from pareo.backends.compiled.generated import generated
from pareo.device import carried
from pareo.operators.core import Operator
from pareo.operators.loss import check_labels

MOST_PARAMETERS = 1 << 14
MOST_BYTES = 1 << 18  # of one image's values: what a core's own cache holds


class _Unsuited(Exception):
    """Something in a program that no generated line stands for."""


class _Writer:
    """Writes the lines of one image's pass."""

    def __init__(self, program: Any, layout: Any, sums: dict[int, str]) -> None:
        self.program = program
        self.layout = layout
        self.sums = sums  # results that are added up, and the names of their sums
        self.functions: list[str] = []
        self.before: list[str] = []
        self.lines: list[str] = []

    def spec(self, number: int) -> Any:
        return self.program.specs[number]

    def shape(self, number: int) -> tuple[int, ...]:
        return self.spec(number).shape

    def name(self, number: int) -> str:
        return f"v{number}"

    def flat(self, number: int) -> str:
        return f"v{number}.reshape(-1)"

    def turned(self, number: int) -> int | None:
        """The value that this one is the transpose of."""
        for instruction in self.program.instructions:
            if instruction.outputs[0] == number and instruction.name == "transpose":
                return int(instruction.inputs[0])
        return None

    def place(self, number: int) -> int | None:
        """Where a value's memory begins; None outside the arena."""
        while number in self.layout.views:
            number = self.layout.views[number]
        return self.layout.offsets.get(number)

    def add(self, line: str) -> None:
        self.lines.append(line)

    def function(self, template: templates.Template, **sizes: int) -> str:
        """A function from a template, with its sizes written in; its name."""
        name = f"{template.__name__}_{len(self.functions)}"
        self.functions.append(template(name, **sizes))
        return name

    def collect(self, number: int) -> None:
        """A finished result joins its sum."""
        if number in self.sums:
            self.add(f"parts.add_to({self.sums[number]}.reshape(-1), {self.flat(number)})")

    def partner(self, instruction: Any, name: str, shared: int) -> Any:
        """The instruction of a name, right before or after, that reads the same errors."""
        at = self.program.instructions.index(instruction)
        for other in self.program.instructions[max(0, at - 1) : at + 2]:
            if other.name == name and shared in other.inputs:
                return other
        return None

    def write(self) -> None:
        for instruction in self.program.instructions:
            operator = instruction.operator
            if isinstance(operator, Operator) and operator.look is not None:
                self._view(instruction)
                continue
            emit = EMITTERS.get(instruction.name)
            if emit is None:
                raise _Unsuited(instruction.name)
            emit(self, instruction)

    def _view(self, instruction: Any) -> None:
        source, result = instruction.inputs[0], instruction.outputs[0]
        if instruction.name == "transpose":
            return  # the products that read it know how
        if instruction.name != "reshape":
            raise _Unsuited(instruction.name)
        line = f"v{result} = v{source}.reshape({self.shape(result)})"
        # What is not part of an image lies where it lies for the whole run.
        target = self.lines if source in self._of_image() else self.before
        target.append(line)
        self.collect(result)

    def _of_image(self) -> set[int]:
        return set(self.program.inputs[-2:])


def _elementwise(name: str) -> Callable[[_Writer, Any], None]:
    def emit(w: _Writer, i: Any) -> None:
        _activate(w, name, i.outputs[0], *i.inputs)
        w.collect(i.outputs[0])

    return emit


def _activate(w: _Writer, name: str, out: int, first: int, *rest: int) -> None:
    """An elementwise loop, in place where the plan put the result where the operand is."""
    here = out == first or w.place(out) == w.place(first)
    given = (first, *rest) if here else (out, first, *rest)
    w.add(f"loops.{name}{'_here' if here else ''}({', '.join(w.flat(n) for n in given)})")


def _conv(activation: str) -> Callable[[_Writer, Any], None]:
    def emit(w: _Writer, i: Any) -> None:
        (x, filters, bias), y = i.inputs, i.outputs[0]
        _plain(i.attributes)
        _, count, height, width = w.shape(y)
        _, _, kh, kw = w.shape(filters)
        wide = w.shape(x)[3]
        if not tiles.suits(w.shape(y), w.shape(filters)):
            raise _Unsuited("conv")
        plane = height * width
        w.add(f"for i in range({height}):")
        w.add(f"    for k in range(0, {count}, 3):")
        w.add(
            f"        tiles.forward_row(v{y}.ctypes.data + 4 * (k * {plane} + i * {width}), "
            f"v{x}.ctypes.data + 4 * i * {wide}, v{filters}.ctypes.data + 4 * k * {kh * kw}, "
            f"v{bias}.ctypes.data + 4 * k, {plane}, {width}, {wide}, {kh}, {kw})"
        )
        if activation:
            _activate(w, activation, y, y)

    return emit


def _conv_gradient(activation: str) -> Callable[[_Writer, Any], None]:
    def emit(w: _Writer, i: Any) -> None:
        (x, g, y), (gw, gb) = i.inputs, i.outputs
        _plain(i.attributes)
        if gw not in w.sums or gb not in w.sums:
            raise _Unsuited("conv gradient that is used")
        _, count, height, width = w.shape(g)
        _, _, kh, kw = w.shape(gw)
        wide = w.shape(x)[3]
        plane = height * width
        _activate(w, f"{activation}_gradient", g, g, y)
        w.add(f"parts.add_planes({w.sums[gb]}, v{g}.reshape(({count}, {plane})))")
        w.add(f"for k in range(0, {count}, 3):")
        w.add(f"    for u in range({kh}):")
        w.add(
            f"        tiles.gradient_row({w.sums[gw]}.ctypes.data + 4 * (k * {kh * kw} + u * {kw}),"
            f" v{x}.ctypes.data + 4 * u * {wide}, v{g}.ctypes.data + 4 * k * {plane}, "
            f"{height}, {width}, {wide}, {kh}, {kw})"
        )

    return emit


def _plain(how: Any) -> None:
    one = (1, 1)
    if how["stride"] != one or how["dilation"] != one or any(how["padding"]) or how["groups"] != 1:
        raise _Unsuited("conv with stride, padding, dilation or groups")


def _dot(w: _Writer, i: Any) -> None:
    (a, b), out = i.inputs, i.outputs[0]
    left, right = w.turned(a), w.turned(b)
    rows, columns = w.shape(out)
    sizes = {"rows": rows, "columns": columns, "depth": w.shape(a)[1]}
    if left is not None and right is None and out in w.sums:
        name = w.function(templates.add_outer, **sizes)
        w.add(f"{name}({w.sums[out]}, v{left}, v{b})")
        return
    if left is not None:
        raise _Unsuited("dot of a transpose")
    if right is None:
        w.add(f"{w.function(templates.dot, **sizes)}(v{out}, v{a}, v{b})")
    else:
        name = w.function(templates.dot_turned, **sizes)
        w.add(f"{name}(v{out}, v{a}, v{right})")
    w.collect(out)


def _dense(activation: str) -> Callable[[_Writer, Any], None]:
    def emit(w: _Writer, i: Any) -> None:
        (x, matrix, bias), y = i.inputs, i.outputs[0]
        if w.turned(x) is not None or w.turned(matrix) is not None:
            raise _Unsuited("dense layer of transposes")
        (rows, depth), columns = w.shape(x), w.shape(y)[1]
        name = w.function(templates.dot, rows=rows, columns=columns, depth=depth)
        w.add(f"{name}(v{y}, v{x}, v{matrix})")
        w.add(f"parts.add_rows(v{y}, v{y}, v{bias})")
        if activation:
            _activate(w, activation, y, y)

    return emit


def _dense_gradient(activation: str) -> Callable[[_Writer, Any], None]:
    def emit(w: _Writer, i: Any) -> None:
        (g, y), (d, sums) = i.inputs, i.outputs
        _activate(w, f"{activation}_gradient", d, g, y)
        # One image has one row: it is its own sum.
        w.add(f"{w.flat(sums)}[:] = {w.flat(d)}")
        w.collect(sums)

    return emit


def _subsample(w: _Writer, i: Any) -> None:
    (x, filters, bias), y = i.inputs, i.outputs[0]
    kh, kw = _windows(w.shape(filters), i.attributes["stride"], w.shape(x))
    planes, height, width = w.shape(y)[1:]
    sizes = {"planes": planes, "height": height, "width": width, "kh": kh, "kw": kw}
    name = w.function(templates.shrink, **sizes)
    w.add(
        f"{name}(v{y}.reshape({(planes, height, width)}), "
        f"v{x}.reshape({(planes, height * kh, width * kw)}), {w.flat(filters)}, "
        f"{w.flat(bias)}[0], {_room(w, y, (kh, width * kw), (width * kw,))})"
    )


def _room(w: _Writer, number: int, *shapes: tuple[int, ...]) -> str:
    """The names of small work arrays, made once before the loop."""
    names = [f"room{number}_{which}" for which in range(len(shapes))]
    w.before += [f"{n} = np.zeros({s}, np.float32)" for n, s in zip(names, shapes, strict=True)]
    return ", ".join(names)


def _windows(window: Sequence[int], stride: Sequence[int], image: Sequence[int]) -> Any:
    kh, kw = window[-2:]
    if tuple(stride) != (kh, kw) or image[-2] % kh or image[-1] % kw:
        raise _Unsuited("windows that overlap or leave a rest")
    return kh, kw


def _grow(w: _Writer, i: Any) -> None:
    """Back through subsampling, as the two gradients of a convolution that it is traced as."""
    (g, filters), gx = i.inputs, i.outputs[0]
    other = w.partner(i, "conv_weight_gradient", g)
    if w.shape(filters)[:2] != (1, 1) or any(i.attributes["padding"]) or other is None:
        raise _Unsuited("gradient of a convolution")
    x, gw = other.inputs[0], other.outputs[0]
    kh, kw = _windows(w.shape(filters), i.attributes["stride"], w.shape(gx))
    planes, _, height, width = w.shape(g)
    sizes = {"planes": planes, "height": height, "width": width, "kh": kh, "kw": kw}
    name = w.function(templates.shrink_back, **sizes)
    block = (kh * width * kw,)
    w.add(f"{w.flat(gw)}[:] = 0")
    arrays = ", ".join(w.flat(n) for n in (gx, gw, x, g, filters))
    w.add(f"{name}({arrays}, {_room(w, gx, block, block, block)})")
    w.collect(gw)


def _with_partner(w: _Writer, i: Any) -> None:
    """Written already, together with the gradient of the images."""
    if w.partner(i, "conv_input_gradient", i.inputs[1]) is None:
        raise _Unsuited("gradient of a convolution")


def _sum(w: _Writer, i: Any) -> None:
    a, out = i.inputs[0], i.outputs[0]
    if w.spec(out).size == 1:
        w.add(f"{w.flat(out)}[:] = 0")
        w.add(f"parts.add_planes({w.flat(out)}, v{a}.reshape((1, {w.spec(a).size})))")
    elif w.spec(out).size == w.spec(a).size:
        w.add(f"{w.flat(out)}[:] = {w.flat(a)}")
    else:
        raise _Unsuited("sum")
    w.collect(out)


def _loss(w: _Writer, i: Any) -> None:
    (_, logits, labels), (out, d) = i.inputs, i.outputs
    w.add(f"{w.flat(out)}[0] = loss.cross_entropy_rows(v{d}, v{logits}, v{labels}, 1.0, True)")


EMITTERS: dict[str, Callable[[_Writer, Any], None]] = {
    **{
        name: _elementwise(name)
        for name in ("sigmoid", "tanh", "relu", "sigmoid_gradient", "tanh_gradient",
                     "relu_gradient")
    },
    "conv_bias": _conv(""),
    "dot": _dot,
    "dot_bias": _dense(""),
    "subsample": _subsample,
    "conv_input_gradient": _grow,
    "conv_weight_gradient": _with_partner,
    "sum": _sum,
    "cross_entropy_with_gradient": _loss,
}  # fmt: skip
for _name in ("sigmoid", "tanh", "relu"):
    EMITTERS[f"conv_bias_{_name}"] = _conv(_name)
    EMITTERS[f"conv_bias_{_name}_gradient"] = _conv_gradient(_name)
    EMITTERS[f"dot_bias_{_name}"] = _dense(_name)
    EMITTERS[f"{_name}_bias_gradient"] = _dense_gradient(_name)

TEMPLATE = '''"""Generated by pareo.backends.compiled.whole: steps of training, image by image."""

import numpy as np

from pareo.backends.compiled import loops, loss, parts, tiles
from pareo.backends.compiled.jit import jit
{functions}

@jit
def run(
    worker, counter, order, images, labels, rate, momentum, decay, losses, shares, sums,
    {names},
):
    workers = sums.shape[0]
    batch = order.shape[1]
    first = batch * worker // workers
    last = batch * (worker + 1) // workers
    met = 0
{views}
    for step in range(order.shape[0]):
        sums[worker] = 0
        total = 0.0
        for place in range(first, last):
            chosen = order[step, place]
            {image} = images[chosen : chosen + 1]
            {label} = labels[chosen : chosen + 1]
{lines}
            total += {loss}
        shares[worker] = total
        met += workers
        parts.wait_for_all(counter.ctypes.data, met)
        if worker == 0:
            share = {one} / {one_of}(batch)
            parts.gather(sums)
            losses[step] = shares.sum() / batch
{updates}
        met += workers
        parts.wait_for_all(counter.ctypes.data, met)
'''


class Loop:
    """Steps of training on one network, compiled as a whole."""

    def __init__(self, program: Any, layout: Any, threads: int) -> None:
        """`program` maps (parameters..., image, label) to (loss, gradients...), fused."""
        self.program = program
        self.threads = threads
        self._count = len(program.inputs) - 2
        self._sizes = [program.specs[n].size for n in program.inputs[: self._count]]
        self._layout = layout
        self.source = self._write()
        self._run = generated(self.source).run

    def _write(self) -> str:
        program = self.program
        parameters, (image, label) = program.inputs[: self._count], program.inputs[-2:]
        results = dict(zip(program.outputs[1:], range(self._count), strict=True))
        if len(results) != self._count:
            raise _Unsuited("parameters that share a gradient")
        writer = _Writer(program, self._layout, {n: f"s{k}" for n, k in results.items()})
        writer.write()
        own = list(self._layout.offsets)
        names = [f"v{n}" for n in parameters] + [f"m{k}" for k in range(self._count)]
        names += [f"v{n}" for n in own] + [f"v{n}" for n in program.constants]
        views, start = [], 0
        updates = []
        for n, size in zip(parameters, self._sizes, strict=True):
            k = parameters.index(n)
            shape = program.specs[n].shape
            views.append(f"s{k} = sums[worker, {start} : {start + size}].reshape({shape})")
            updates.append(
                f"parts.update(v{n}.reshape(-1), m{k}.reshape(-1), "
                f"sums[0, {start} : {start + size}], share, rate, momentum, decay)"
            )
            start += size
        return TEMPLATE.format(
            functions="\n".join(writer.functions),
            names=", ".join(names),
            views=_indented(views + writer.before, 4),
            image=f"v{image}",
            label=f"v{label}",
            lines=_indented(writer.lines, 12),
            loss=f"v{program.outputs[0]}.reshape(-1)[0]",
            one=f"v{parameters[0]}.dtype.type(1)",
            one_of=f"v{parameters[0]}.dtype.type",
            updates=_indented(updates, 12),
        )

    def __call__(
        self,
        parameters: Sequence[Any],
        velocities: Sequence[Any],
        images: Any,
        labels: Any,
        order: Any,
        rate: float,
        momentum: float,
        decay: float,
    ) -> Any:
        """Move parameters (and velocities) in place, one step for each row of order; the losses."""
        classes = self.program.specs[self._logits()].shape[1]
        check_labels(labels, classes)
        kind = parameters[0].dtype.type
        workers = max(1, min(self.threads, order.shape[1] // 4))
        losses, shares = np.zeros(len(order)), np.zeros(workers)
        sums = np.zeros((workers, sum(self._sizes)), parameters[0].dtype)
        counter = np.zeros(1, np.int64)
        empty = [np.zeros(0, parameters[0].dtype)] * self._count

        def work(worker: int) -> None:
            arena = np.zeros(self._layout.bytes, np.uint8)
            own = [
                arena[offset : offset + self.program.specs[n].nbytes]
                .view(self.program.specs[n].dtype)
                .reshape(self.program.specs[n].shape)
                for n, offset in self._layout.offsets.items()
            ]
            self._run(
                worker, counter, order, images, labels, kind(rate), kind(momentum), kind(decay),
                losses, shares, sums, *parameters, *(velocities or empty), *own,
                *self.program.constants.values(),
            )  # fmt: skip

        # Workers that wait for each other must all run: they are threads of their own, not tasks
        # that a pool might keep in its queue.
        others = [
            threading.Thread(target=carried(work), args=(worker,)) for worker in range(1, workers)
        ]
        for thread in others:
            thread.start()
        work(0)
        for thread in others:
            thread.join()
        return losses

    def _logits(self) -> int:
        for instruction in self.program.instructions:
            if isinstance(instruction.operator, Fusion) and "cross_entropy" in instruction.name:
                return int(instruction.inputs[1])
        raise _Unsuited("no cross-entropy")


def loop(program: Any, layout: Any, threads: int) -> Loop | None:
    """A loop for the gradient program of one image, or None where it would not pay or not work."""
    count = sum(program.specs[n].size for n in program.inputs[:-2])
    single = all(program.specs[n].dtype == np.float32 for n in program.inputs[:-1])
    if count > MOST_PARAMETERS or layout.bytes > MOST_BYTES or not single:
        return None
    try:
        return Loop(program, layout, threads)
    except _Unsuited:
        return None


def _indented(lines: list[str], spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in lines)
