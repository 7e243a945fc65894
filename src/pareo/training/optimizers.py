"""Optimizers: how a gradient moves a parameter, and the arrays kept for each parameter."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import ClassVar

import numpy as np

import pareo.operators as op
from pareo.array import Array
from pareo.training.checks import SettingError, number, real


class Optimizer(ABC):
    """The rule of a step.

    slots:    names of the arrays kept for each parameter, zero at first and of its shape
    numbers:  what changes from step to step, as scalars of the program: the rate first
    update:   the new parameter and its new slots, in operators

    >>> Adam().slots, Adam().numbers(step=0, rate=0.5)
    (('first', 'second'), (0.5, 0.09999999999999998, 0.0010000000000000009))
    """

    name: ClassVar[str]

    @property
    @abstractmethod
    def slots(self) -> tuple[str, ...]:
        """The names of the arrays kept for each parameter."""

    def numbers(self, step: int, rate: float) -> tuple[float, ...]:
        """The scalars of a step, counted from 0; the rate is the first."""
        return (rate,)

    def numbers_of(self, first: int, rates: Array) -> Array:
        """The scalars of the steps from `first` on, a row for each rate."""
        if type(self).numbers is Optimizer.numbers:  # a list would take longer than a small step
            return rates.reshape(-1, 1)
        rows = [self.numbers(first + row, float(rate)) for row, rate in enumerate(rates)]
        return np.array(rows).reshape(len(rates), self.count)

    @property
    def count(self) -> int:
        """How many scalars a step takes."""
        return len(self.numbers(0, 1.0))

    @abstractmethod
    def update(
        self,
        parameter: Array,
        gradient: Array,
        slots: Mapping[str, Array],
        numbers: Sequence[Array],
        decay: float,
    ) -> tuple[Array, dict[str, Array]]:
        """The parameter after a step with this weight decay, and its new slots."""

    def __str__(self) -> str:
        """The text from which `parse` makes this optimizer: its name, and numbers if unusual.

        >>> str(Lion()), str(Lion(0.95))
        ('lion', 'lion:0.95:0.99')
        """
        if self == type(self)():
            return self.name
        return ":".join((self.name, *map(number, astuple(self))))  # type: ignore[call-overload]


@dataclass(frozen=True)
class SGD(Optimizer):
    """Stochastic gradient descent, with momentum, and with that of Nesterov.

    The decay is added to the gradient: gradient + decay * parameter.

    >>> SGD().slots, SGD(momentum=0.9).slots
    ((), ('velocity',))
    """

    momentum: float = 0.0
    nesterov: bool = False
    name: ClassVar[str] = "sgd"

    def __post_init__(self) -> None:
        real("a momentum from 0 to below 1", self.momentum, lambda value: 0 <= value < 1)
        if not isinstance(self.nesterov, bool):
            raise SettingError(f"fit expects nesterov to be True or False; got {self.nesterov!r}")
        if self.nesterov and not self.momentum:
            raise SettingError("fit expects a momentum above 0 with nesterov; got 0")

    def __str__(self) -> str:
        name = "nesterov" if self.nesterov else self.name
        return f"{name}:{number(self.momentum)}" if self.momentum else name

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def update(
        self, parameter: Array, gradient: Array, slots: Mapping[str, Array],
        numbers: Sequence[Array], decay: float,
    ) -> tuple[Array, dict[str, Array]]:  # fmt: skip
        (rate,) = numbers
        if self.momentum:
            moved, velocity = op.sgd(
                parameter, gradient, slots["velocity"], rate, self.momentum, decay, self.nesterov
            )
            return moved, {"velocity": velocity}
        if decay:
            gradient = op.add(gradient, op.scale(decay, parameter))
        return op.sub(parameter, op.scale(rate, gradient)), {}


@dataclass(frozen=True)
class Adam(Optimizer):
    """Adam (Kingma and Ba, 2015); the decay is added to the gradient, as in `SGD`.

    >>> Adam(beta1=1.0)
    Traceback (most recent call last):
    pareo.training.checks.SettingError: fit expects a beta1 from 0 to below 1; got 1.0
    """

    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    name: ClassVar[str] = "adam"
    decoupled: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _betas(self.beta1, self.beta2)
        real("an epsilon above 0", self.epsilon, lambda value: value > 0)

    @property
    def slots(self) -> tuple[str, ...]:
        return "first", "second"

    def numbers(self, step: int, rate: float) -> tuple[float, ...]:
        return rate, 1 - self.beta1 ** (step + 1), 1 - self.beta2 ** (step + 1)

    def update(
        self, parameter: Array, gradient: Array, slots: Mapping[str, Array],
        numbers: Sequence[Array], decay: float,
    ) -> tuple[Array, dict[str, Array]]:  # fmt: skip
        moved, first, second = op.adam(
            parameter, gradient, slots["first"], slots["second"], *numbers,
            self.beta1, self.beta2, self.epsilon, decay, self.decoupled,
        )  # fmt: skip
        return moved, {"first": first, "second": second}


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled decay (Loshchilov and Hutter, 2019): parameter * (1 - rate * decay)."""

    name: ClassVar[str] = "adamw"
    decoupled: ClassVar[bool] = True


@dataclass(frozen=True)
class Lion(Optimizer):
    """Lion (Chen et al., 2023): steps of one size, the sign of a moving average; decay as AdamW's.

    Its rate should be three to ten times smaller than Adam's, and its decay as much larger.
    """

    beta1: float = 0.9
    beta2: float = 0.99
    name: ClassVar[str] = "lion"

    def __post_init__(self) -> None:
        _betas(self.beta1, self.beta2)

    @property
    def slots(self) -> tuple[str, ...]:
        return ("velocity",)

    def update(
        self, parameter: Array, gradient: Array, slots: Mapping[str, Array],
        numbers: Sequence[Array], decay: float,
    ) -> tuple[Array, dict[str, Array]]:  # fmt: skip
        (rate,) = numbers
        moved, velocity = op.lion(
            parameter, gradient, slots["velocity"], rate, self.beta1, self.beta2, decay
        )
        return moved, {"velocity": velocity}


def _betas(beta1: float, beta2: float) -> None:
    for name, value in (("beta1", beta1), ("beta2", beta2)):
        real(f"a {name} from 0 to below 1", value, lambda number: 0 <= number < 1)


KINDS: dict[str, type[Adam] | type[AdamW] | type[Lion]] = {
    kind.name: kind for kind in (Adam, AdamW, Lion)
}
NAMES = ("sgd", "nesterov", *KINDS)


def parse(text: str) -> Optimizer:
    """The optimizer that a text names, with its usual numbers or with others after colons.

    >>> parse("nesterov"), parse("adamw:0.9:0.98:1e-6")
    (SGD(momentum=0.9, nesterov=True), AdamW(beta1=0.9, beta2=0.98, epsilon=1e-06))
    >>> parse("adagrad")
    Traceback (most recent call last):
    pareo.training.checks.SettingError: fit expects an optimizer of sgd, nesterov, adam, adamw or \
lion; got 'adagrad'
    """
    try:
        name, *rest = text.split(":")
        numbers = [float(part) for part in rest]
        if name in ("sgd", "nesterov"):
            (momentum,) = numbers or [0.9 if name == "nesterov" else 0.0]
            return SGD(momentum, nesterov=name == "nesterov")
        return KINDS[name](*numbers)
    except SettingError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError):
        known = f"{', '.join(NAMES[:-1])} or {NAMES[-1]}"
        raise SettingError(f"fit expects an optimizer of {known}; got {text!r}") from None
