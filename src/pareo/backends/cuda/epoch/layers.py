"""The layers of a small network, found in the gradient program of one image."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pareo.program.ir import Program
from pareo.program.kernel import Fusion

ACTIVATIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu"}


class UnsupportedNetwork(Exception):
    """A program or network that no kernel template covers."""


@dataclass(frozen=True)
class Windows:
    """A convolution and its activation, subsampled in windows, and another activation."""

    image: tuple[int, int, int]
    filters: int
    kernel: tuple[int, int]
    window: tuple[int, int]
    inner: str
    outer: str

    @property
    def outputs(self) -> int:
        """The number of its values, and of the threads that it needs."""
        _, height, width = self.image
        (kh, kw), (ph, pw) = self.kernel, self.window
        return self.filters * ((height - kh + 1) // ph) * ((width - kw + 1) // pw)

    @property
    def taps(self) -> int:
        """The weights of one filter."""
        return self.image[0] * self.kernel[0] * self.kernel[1]

    @property
    def sizes(self) -> list[int]:
        """The sizes of its parameters."""
        return [self.filters * self.taps, self.filters, self.window[0] * self.window[1], 1]

    @property
    def parameters(self) -> int:
        return sum(self.sizes)

    @property
    def registers(self) -> int:
        """The registers that a thread needs at least."""
        (kh, kw), (ph, pw) = self.kernel, self.window
        return self.image[0] * (ph + kh - 1) * (pw + kw - 1) + ph * pw + self.taps

    @property
    def room(self) -> int:
        """Floats of shared memory for the terms of its gradients."""
        terms = self.taps + self.window[0] * self.window[1] + 2
        return self.outputs * (terms | 1)

    @property
    def type(self) -> str:
        """Its type in the kernel."""
        sizes = (*self.image, self.filters, *self.kernel, *self.window)
        return f"Windows<{', '.join(map(str, sizes))}, {self.inner}, {self.outer}>"


@dataclass(frozen=True)
class Dense:
    """A dense layer and its activation."""

    inputs: int
    outputs: int
    outer: str

    @property
    def sizes(self) -> list[int]:
        """The sizes of its parameters."""
        return [self.inputs * self.outputs, self.outputs]

    @property
    def parameters(self) -> int:
        return sum(self.sizes)

    @property
    def type(self) -> str:
        """Its type in the kernel."""
        return f"Dense<{self.inputs}, {self.outputs}, {self.outer}>"


Layer = Windows | Dense


@dataclass(frozen=True)
class _Call:
    """One operator of a program, whether or not a backend fused it with others."""

    name: str
    operands: tuple[Any, ...]
    result: Any
    attributes: dict[str, Any]


def layers_of(program: Program) -> list[Layer]:
    """The layers from the image to the loss; UnsupportedNetwork if there is anything else."""
    reader = _Reader(program)
    found: list[Layer] = []
    if reader.next_is("conv"):
        found.append(reader.windows())
    while not reader.next_is("cross_entropy"):
        found.append(reader.dense())
    if reader.used != list(program.inputs[:-2]):
        raise UnsupportedNetwork("parameters in another order")
    return found


class _Reader:
    """Follows the operators that lead from the image to the loss."""

    def __init__(self, program: Program) -> None:
        self.specs = program.specs
        self.calls = _leading_to(program.outputs[0], list(_calls(program)))
        self.value = program.inputs[-2]
        self.shape = self.specs[self.value].shape[1:]
        self.used: list[int] = []  # parameters

    def next_is(self, *names: str) -> bool:
        while self.calls and self.calls[0].name == "reshape":
            self.take("reshape")
        return bool(self.calls) and self.calls[0].name in names

    def take(self, name: str) -> _Call:
        """The next operator, which must have this name and read the last one's value."""
        if not self.calls or self.calls[0].name != name or self.calls[0].operands[0] != self.value:
            raise UnsupportedNetwork(
                f"{self.calls[0].name if self.calls else 'nothing'} instead of {name}"
            )
        call = self.calls.pop(0)
        self.value = call.result
        self.used += call.operands[1:]
        return call

    def activation(self) -> str:
        for name, type_ in ACTIVATIONS.items():
            if self.next_is(name):
                self.take(name)
                return type_
        return "Linear"

    def windows(self) -> Windows:
        conv = self.take("conv")
        filters, _, *kernel = self.specs[conv.operands[1]].shape
        how, one = conv.attributes, (1, 1)
        plain = how["stride"] == one == how["dilation"] and how["groups"] == 1
        if not plain or any(how["padding"]) or len(self.shape) != 3:
            raise UnsupportedNetwork("conv with stride, padding, dilation or groups")
        self.take("add_bias")
        inner = self.activation()
        shrunk = self.take("subsample") if self.next_is("subsample") else None
        if shrunk is None:
            raise UnsupportedNetwork("conv without subsampling")
        window = self.specs[shrunk.operands[1]].shape
        rest = [(n - k + 1) % p for n, k, p in zip(self.shape[1:], kernel, window, strict=True)]
        if shrunk.attributes["stride"] != window or any(rest):
            raise UnsupportedNetwork("windows that overlap or leave a remainder")
        outer = self.activation()
        made = Windows(
            self.shape, filters, (kernel[0], kernel[1]), (window[0], window[1]), inner, outer
        )
        self.shape = (made.outputs,)
        return made

    def dense(self) -> Dense:
        inputs, outputs = self.specs[self.take_dot().operands[1]].shape
        self.take("add_bias")
        return Dense(inputs, outputs, self.activation())

    def take_dot(self) -> _Call:
        self.next_is("dot")  # after a reshape
        return self.take("dot")


def _calls(program: Program) -> Iterator[_Call]:
    """All operators, in order; values inside a fusion are named (position, variable)."""
    from pareo.program.fuse import parse

    for position, instruction in enumerate(program.instructions):
        operator, attributes = instruction.operator, dict(instruction.attributes)
        if not isinstance(operator, Fusion):
            yield _Call(instruction.name, instruction.inputs, instruction.outputs[0], attributes)
            continue
        if not operator.pattern:
            raise UnsupportedNetwork(f"{instruction.name}, whose operators are not known")
        outside = dict(zip(operator.inputs, instruction.inputs, strict=True))
        outside |= dict(zip(operator.outputs, instruction.outputs, strict=True))
        for step in parse(operator.pattern):
            names = [outside.get(n, (position, n)) for n in (*step.operands, step.result)]
            yield _Call(
                step.operator, tuple(names[:-1]), names[-1], attributes | dict(step.literals)
            )


def _leading_to(value: Any, calls: list[_Call]) -> list[_Call]:
    """The calls that a value is computed from."""
    needed, found = {value}, []
    for call in reversed(calls):
        if call.result in needed:
            needed.update(call.operands)
            found.append(call)
    return found[::-1]
