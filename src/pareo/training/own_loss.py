"""Losses by any name: pareo's own, and those of the user's in a Python file or as an object."""

import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from pareo.array import Array
from pareo.device import Device
from pareo.errors import PareoError
from pareo.nn.network import Sequential
from pareo.program import trace, value_and_grad
from pareo.spec import Spec
from pareo.training import losses
from pareo.training.losses import Loss
from pareo.training.own import failed, object_of, shown

KINDS = "a function of outputs and labels, or a pareo.training.losses.Loss"


@dataclass(frozen=True)
class OwnLoss(Loss):
    """A loss of the user's own, which other processes find by its source.

    source: FILE.py:OBJECT or PACKAGE.MODULE:OBJECT, or a function that can be pickled. The object
        is a function of outputs and labels, or a `Loss`.
    """

    source: str | Callable[..., Any]

    @property
    def label(self) -> str:
        found = self._found
        if isinstance(found, Loss):
            return found.name
        return shown(self.source) if isinstance(self.source, str) else found.__name__

    @property
    def _found(self) -> Any:
        return _loaded(self.source) if isinstance(self.source, str) else self.source

    def targets(self, batch: int, outputs: int, dtype: DTypeLike = "float32") -> Spec:
        if isinstance(self._found, Loss):
            return self._found.targets(batch, outputs, dtype)
        return Spec((batch,), "int64", batch=0)

    def __call__(self, outputs: Array, labels: Array) -> Array:
        try:
            found: Array = self._found(outputs, labels)
        except PareoError as error:
            raise PareoError(f"the loss {self.label} failed: {error}") from error
        except Exception as error:  # whatever its code raises
            raise failed(f"the loss {self.label}", error) from error
        return found


def loss_of(loss: Any) -> Loss:
    """The loss of a name, as `--loss` takes it, or of an object.

    >>> loss_of("squared-error")
    SquaredError()
    """
    if isinstance(loss, str):
        if ":" in loss or loss.endswith(".py"):
            _loaded(loss)
            return OwnLoss(loss)
        if loss in losses.KINDS:
            return losses.by_name(loss)
        known = ", ".join(losses.KINDS)
        raise PareoError(f"a loss is one of {known}, or FILE.py:OBJECT; got {loss!r}")
    if not _is_loss(loss):
        raise PareoError(f"expected the name of a loss, or {KINDS}; got {loss!r:.60}")
    _check_importable(loss)
    return loss if isinstance(loss, Loss) else OwnLoss(loss)


def name_of(loss: Loss) -> str:
    """What to call a loss.

    >>> name_of(losses.CrossEntropy()), name_of(losses.CrossEntropy(0.1))
    ('cross-entropy', 'cross-entropy (smoothing=0.1)')
    """
    if isinstance(loss, OwnLoss):
        return loss.label
    usual = type(loss)().plain() if losses.is_pareos(loss) else {}
    changed = [f"{k}={v}" for k, v in loss.plain().items() if k != "name" and v != usual.get(k)]
    return f"{loss.name} ({', '.join(changed)})" if changed else loss.name


def check(loss: Loss, network: Sequential, batch: int) -> None:
    """Refuse a loss that is not one number with a gradient, in float32 or in float64."""
    name = name_of(loss)
    for dtype in ("float32", "float64"):
        outputs = Spec((batch, network.classes), dtype)
        try:
            targets = loss.targets(batch, network.classes, dtype)
            program = trace(loss, outputs, targets)
        except PareoError as error:
            said = str(error).removeprefix(f"the loss {name} failed: ")
            if isinstance(loss, OwnLoss) and "int64" in said:
                said += " (its labels are classes, as whole numbers)"
            raise PareoError(
                f"the loss {name} failed on outputs of shape {outputs.shape} in {dtype}: {said}"
            ) from error
        results = [program.specs[number] for number in program.outputs]
        if [(one.shape, one.dtype) for one in results] != [((), outputs.dtype)]:
            got = ", ".join(f"{one.dtype}{list(one.shape)}" for one in results) or "nothing"
            raise PareoError(f"the loss {name} should be one number of {dtype}; it is {got}")
        gradients = trace(value_and_grad(loss), outputs, targets)
        if gradients.outputs[1] in gradients.constants:
            raise PareoError(f"the loss {name} has no gradient with respect to the outputs")


def is_mean(loss: Loss, outputs: int) -> bool:
    """Whether a batch that repeats a few examples has the loss and gradients of those few.

    >>> is_mean(losses.SquaredError(), 3)
    True
    """
    if losses.is_pareos(loss):
        return True
    draw, few = np.random.default_rng(0), 2
    x = draw.standard_normal((few, outputs))
    spec = loss.targets(few, outputs, "float64")
    labels = draw.integers(0, outputs, spec.shape)
    y = labels if spec.dtype.kind in "iu" else labels / max(1, outputs - 1)
    once = _with_gradient(loss, x, y)
    twice = _with_gradient(loss, np.tile(x, (2, 1)), np.concatenate([y, y]))
    halves = twice[1][:few] + twice[1][few:]
    return bool(np.allclose(once[0], twice[0]) and np.allclose(once[1], halves))


def _with_gradient(loss: Loss, outputs: Any, labels: Any) -> tuple[Any, Any]:
    with Device("vectorized"):
        found, gradient = value_and_grad(loss)(outputs, labels)
        return np.array(found), np.array(gradient)


def _could_be_loss(found: Any) -> bool:
    kind = isinstance(found, type) and issubclass(found, Loss) and found is not Loss
    return kind or isinstance(found, Loss) or inspect.isfunction(found)


def _is_loss(found: Any) -> bool:
    return isinstance(found, Loss) or (callable(found) and not isinstance(found, type))


@cache
def _loaded(name: str) -> Any:
    """The object of this name; a subclass of `Loss` is called."""
    found = object_of(name, _could_be_loss)
    if isinstance(found, type) and issubclass(found, Loss):
        try:
            found = found()
        except Exception as error:  # whatever its code raises
            raise failed(f"{name}()", error) from error
    if not _is_loss(found):
        raise PareoError(f"{name} is of the type {type(found).__name__}; expected {KINDS}")
    return found


def _check_importable(loss: Any) -> None:
    """Refuse an object that processes that are started cannot import."""
    where = loss if hasattr(loss, "__qualname__") else type(loss)
    notebook = where.__module__ == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
    try:
        pickle.dumps(loss)
    except Exception:  # of any kind: a lambda, or what is local to a function
        notebook = True
    if notebook:
        name = getattr(where, "__qualname__", "it")
        raise PareoError(
            f"other processes cannot import the loss {name}: define it at the top of a file, and "
            "give it as FILE.py:OBJECT"
        )
