"""What a training step does besides the network: augmentation, loss, clipping, update, average."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pareo.operators as op
from pareo.array import Array
from pareo.nn.layers import Parameter
from pareo.nn.network import Sequential
from pareo.training.augmentation import Augmentation
from pareo.training.checks import SettingError
from pareo.training.losses import CrossEntropy, Loss
from pareo.training.optimizers import SGD, Optimizer

AVERAGE = "average"  # the slot of the moving average


@dataclass(frozen=True)
class Recipe:
    """How one step trains a network.

    decay:        weight decay, of what the layers say decays: not of biases and normalisations
    decay_biases: whether it applies to all parameters
    clip:         the largest norm of all gradients together; larger ones are scaled down to it
    average:      the share that the moving average of the parameters keeps at each step
    train_only:   the start of the paths that are trained; all others stay as they are
    """

    optimizer: Optimizer = field(default_factory=SGD)
    decay: float = 0.0
    decay_biases: bool = False
    loss: Loss = field(default_factory=CrossEntropy)
    clip: float | None = None
    augment: Augmentation | None = None
    average: float | None = None
    train_only: tuple[str, ...] | None = None

    @property
    def seeds(self) -> int:
        """How many seeds a step takes besides those of the network."""
        return int(self.augment is not None)

    def trained(self, parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
        """The paths that gradients move."""
        return tuple(path for path, p in parameters.items() if p.trained and self._chosen(path))

    def fixed(self, parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
        """The paths of state that stays as it is, because its layer is not trained."""
        return tuple(
            path for path, p in parameters.items() if not p.trained and not self._chosen(path)
        )

    def _chosen(self, path: str) -> bool:
        if self.train_only is None:
            return True
        return any(path == start or path.startswith(f"{start}.") for start in self.train_only)

    def check(self, network: Sequential) -> None:
        """Raise an error where nothing of a network would be trained."""
        parameters = network.parameters(network.inputs)
        for start in self.train_only or ():
            if not any(path == start or path.startswith(f"{start}.") for path in parameters):
                raise SettingError(f"fit expects train_only to name layers; {start!r} is none")
        if not any(one.trained for one in parameters.values()):
            raise SettingError(f"{network.name or 'the network'} has no parameters to train")
        if not self.trained(parameters):
            raise SettingError("fit expects train_only to name layers with parameters")

    def slots(self, parameters: Mapping[str, Parameter]) -> tuple[tuple[str, str], ...]:
        """The slots of a step: the name of each and the path of the parameter it belongs to."""
        trained = self.trained(parameters)
        found = [(slot, path) for slot in self.optimizer.slots for path in trained]
        if self.average is not None:
            found += [(AVERAGE, path) for path in parameters]
        return tuple(found)

    def decay_of(self, parameter: Parameter) -> float:
        """The weight decay of one parameter."""
        return self.decay if parameter.decays or self.decay_biases else 0.0

    def clipped(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """The gradients, scaled down where their norm is larger than `clip`."""
        if self.clip is None or not gradients:
            return dict(gradients)
        # As torch.nn.utils.clip_grad_norm_ does: the factor is clip / (norm + 1e-6), at most 1.
        norm = op.norm(list(gradients.values()))
        factor = op.clip(op.div(self.clip, op.add(norm, 1e-6)), 0.0, 1.0)
        return {path: op.scale(factor, gradient) for path, gradient in gradients.items()}

    def loops(self, parameters: Mapping[str, Parameter]) -> bool:
        """Whether a step is plain SGD on the cross-entropy, which backends may run as a loop."""
        sgd = isinstance(self.optimizer, SGD) and not self.optimizer.nesterov
        even = len({self.decay_of(p) for p in parameters.values() if p.trained}) <= 1
        other = (self.clip, self.augment, self.average, self.train_only)
        plain = self.loss == CrossEntropy() and all(value is None for value in other)
        return sgd and even and plain

    @property
    def momentum(self) -> float:
        """The momentum of plain SGD; 0 for other optimizers."""
        return self.optimizer.momentum if isinstance(self.optimizer, SGD) else 0.0
