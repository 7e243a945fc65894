"""`Regressor`: a network as a scikit-learn regressor, for pipelines and searches too."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.data import Dataset
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.training.estimator import Estimator, flat, shaped
from pareo.training.losses import SquaredError
from pareo.training.settings import SettingError, Settings

# After pareo's own, whose error says what to install.
from sklearn.base import RegressorMixin  # isort: skip
from sklearn.utils.validation import validate_data  # isort: skip


class Regressor(RegressorMixin, Estimator):
    """A network that is trained to predict numbers, as a scikit-learn regressor.

    Features are used as they are, in float32: put a `StandardScaler` before it where they are not
    of about unit size. Targets are brought to mean 0 and deviation 1 for the training, and
    predictions are brought back.

    Args:
        network: None for an MLP with one hidden layer of 64; the widths of its hidden layers,
            such as `(32, 32)`; or a `Sequential` with as many inputs as there are features, and
            one output for each target.
        epochs: passes over the data.
        batch_size: examples in one step, and in one batch of `predict`.
        rate: the learning rate.
        momentum: from 0 to below 1.
        decay: weight decay.
        device: a name such as `"compiled"`, or a `Device`; None is the one in scope at `fit`,
            and again at `predict`. NumPy starts fastest, which suits small data.
        seed: of the initial weights and the order of the examples; the same seed gives the same
            bits.
        clip: the largest norm of all gradients together, so that an example far off does not
            throw the weights far off; None for no limit.
        settings: a `pareo.training.Settings` with the loss 'squared-error', in place of the
            arguments that it has, too: for another optimizer, a schedule and so on.

    Attributes:
        n_features_in_: how many features an example has.
        network_: the `Sequential` that was trained.
        parameters_: its parameters by path.
        history_: one `Epoch` for each pass over the data.

    Example:
        >>> X = np.linspace(-1, 1, 200)[:, None]
        >>> model = Regressor(epochs=50).fit(X, 300 * X[:, 0] ** 2)
        >>> model.score(X, 300 * X[:, 0] ** 2) > 0.98
        True
    """

    def __init__(
        self,
        network: Sequential | str | tuple[int, ...] | None = None,
        epochs: int = 50,
        batch_size: int = 16,
        rate: float = 0.01,
        momentum: float = 0.9,
        decay: float = 0.0,
        device: Device | str | None = "vectorized",
        seed: int = 0,
        clip: float | None = 1.0,
        settings: Settings | None = None,
    ) -> None:
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.rate = rate
        self.momentum = momentum
        self.decay = decay
        self.device = device
        self.seed = seed
        self.clip = clip
        self.settings = settings

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> "Regressor":
        """Train on examples (N, features) with targets (N,) or (N, targets); returns itself.

        Examples of more dimensions, such as images (N, C, H, W), are flattened first.

        Raises:
            ValueError: the examples, the targets, the network or a setting do not fit together.
            DivergenceError: the loss became NaN or infinite.
        """
        X, y = validate_data(
            self, flat(X), y, dtype=np.float32, multi_output=True, y_numeric=True
        )  # fmt: skip
        targets = np.asarray(y, np.float64)
        settings = self._settings(loss="squared-error", clip=self.clip)
        if settings.loss != SquaredError():
            raise SettingError(
                f"Regressor expects settings with the loss squared-error; got {settings.loss.name}"
            )
        self._single = targets.ndim == 1
        targets = targets.reshape(len(targets), -1)
        self._mean, deviation = targets.mean(axis=0), targets.std(axis=0)
        self._scale = np.where(deviation > 0, deviation, 1.0)
        network = self._built(targets.shape[1], exact=True)
        images = shaped(X, network)
        labels = ((targets - self._mean) / self._scale).astype(settings.dtype)
        data = Dataset("the data given to fit", images, labels, images[:0], labels[:0], classes=0)
        self._trained(data, network, settings)
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """Return the predicted targets of each example: (N,) or (N, targets)."""
        outputs = self._outputs(X)
        found = outputs.astype(np.float64) * self._scale + self._mean
        return found[:, 0] if self._single else found
