"""`Classifier`: a network as a scikit-learn classifier, for pipelines and searches too."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.data import Dataset
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.training.estimator import Estimator, advice, flat, shaped
from pareo.training.evaluate import probabilities
from pareo.training.history import Epoch
from pareo.training.settings import Settings

# After pareo's own, whose error says what to install.
from sklearn.base import ClassifierMixin  # isort: skip
from sklearn.exceptions import ConvergenceWarning  # isort: skip
from sklearn.utils.multiclass import check_classification_targets  # isort: skip
from sklearn.utils.validation import validate_data  # isort: skip


class Classifier(ClassifierMixin, Estimator):
    """A network that is trained by stochastic gradient descent, as a scikit-learn classifier.

    Numbers are used as they are, in float32: nothing is scaled, not even pixels from 0 to 255.
    Training works best with features of about unit size, so put a `StandardScaler` before it, or
    divide pixels by 255. Labels may be anything that scikit-learn accepts as classes.

    Args:
        network: None for an MLP with one hidden layer of 64; the widths of its hidden layers,
            such as `(32, 32)`; a name that `pareo networks` lists; or a `Sequential`. It must
            have as many inputs as there are features, and at least as many outputs as there are
            classes; surplus outputs are ignored.
        epochs: passes over the data.
        batch_size: examples in one step, and in one batch of `predict`.
        rate: the learning rate.
        momentum: from 0 to below 1.
        decay: weight decay.
        device: a name such as `"compiled"`, or a `Device`; None is the one in scope at `fit`,
            and again at `predict`. NumPy starts fastest, which suits small data.
        seed: of the initial weights and the order of the examples; the same seed gives the same
            bits.
        settings: a `pareo.training.Settings` in place of the five arguments from `batch_size` on
            that it has, too: for another optimizer, a schedule, label smoothing and so on.

    Attributes:
        classes_: the labels, sorted, in the order of the columns of `predict_proba`.
        n_features_in_: how many features an example has.
        network_: the `Sequential` that was trained.
        parameters_: its parameters by path.
        history_: one `Epoch` for each pass over the data.

    Example:
        >>> from pareo.data import load
        >>> data = load("synthetic:30:3:120")
        >>> model = Classifier(epochs=20).fit(data.images, data.labels)
        >>> model.score(data.test_images, data.test_labels)
        1.0
        >>> model.predict_proba(data.test_images).shape
        (20, 3)
    """

    classes_: NDArray[Any]
    n_features_in_: int

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
        self.settings = settings

    def fit(self, X: Any, y: Any) -> "Classifier":
        """Train on examples (N, features) with labels (N,), from new weights; returns itself.

        Examples of more dimensions, such as images (N, C, H, W), are flattened first.

        Raises:
            ValueError: the examples, the labels, the network or a setting do not fit together.
            DivergenceError: the loss became NaN or infinite.

        Warns:
            ConvergenceWarning: the network does no better than guessing.
        """
        X, y = validate_data(self, flat(X), y, dtype=np.float32)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        network = self._built(len(classes), exact=False)
        images = shaped(X, network)
        data = Dataset(
            "the data given to fit",
            images,
            labels,
            images[:0],
            labels[:0],
            classes=len(classes),
        )
        result = self._trained(data, network, self._settings())
        self.classes_ = classes
        _warn_of_guessing(result.history[-1], labels)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class for each example: (N, classes)."""
        logits = self._outputs(X)
        return np.asarray(probabilities(logits[:, : len(self.classes_)]))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each example: (N,)."""
        found = self.predict_proba(X).argmax(axis=1)
        return self.classes_[found]


def _warn_of_guessing(last: Epoch, labels: NDArray[Any]) -> None:
    """Warn if the network has learned nothing: large features can disable all ReLUs at once."""
    shares = np.bincount(labels) / len(labels)
    guessing = -float(shares @ np.log(shares))
    if len(shares) > 1 and last.loss >= 0.99 * guessing:
        warnings.warn(
            f"after {last.number} epochs the loss, {last.loss:.3g}, is no better than that of "
            f"guessing, {guessing:.3g}: try more epochs or another rate, or {advice('Classifier')}",
            ConvergenceWarning,
            stacklevel=3,
        )
