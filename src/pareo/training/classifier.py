"""`Classifier`: a network as a scikit-learn classifier, for pipelines and searches too."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.data import Dataset
from pareo.device import Device, current
from pareo.errors import ShapeError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training.evaluate import Evaluator, probabilities
from pareo.training.fit import DivergenceError, fit
from pareo.training.history import Epoch
from pareo.training.settings import SettingError

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "pareo.Classifier needs scikit-learn 1.6 or later: pip install scikit-learn"
    ) from error

HIDDEN = (64,)
SCALE = "scale the features first: make_pipeline(StandardScaler(), Classifier())"


class Classifier(ClassifierMixin, BaseEstimator):
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
    ) -> None:
        self.network = network
        self.epochs = epochs
        self.batch_size = batch_size
        self.rate = rate
        self.momentum = momentum
        self.decay = decay
        self.device = device
        self.seed = seed

    def fit(self, X: Any, y: Any) -> "Classifier":
        """Train on examples (N, features) with labels (N,), from new weights; returns itself.

        Examples of more dimensions, such as images (N, C, H, W), are flattened first.

        Raises:
            ValueError: the examples, the labels, the network or a setting do not fit together.
            DivergenceError: the loss became NaN or infinite.

        Warns:
            ConvergenceWarning: the network does no better than guessing.
        """
        X, y = validate_data(self, _flat(X), y, dtype=np.float32)
        check_classification_targets(y)
        classes, labels = np.unique(y, return_inverse=True)
        network = self._built(len(classes))
        images = _shaped(X, network)
        data = Dataset(
            "the data given to fit",
            images,
            labels,
            images[:0],
            labels[:0],
            classes=len(classes),
        )
        try:
            result = fit(
                network,
                data,
                epochs=self.epochs,
                batch_size=self.batch_size,
                rate=self.rate,
                momentum=self.momentum,
                decay=self.decay,
                device=self.device,
                seed=self.seed,
                progress=False,
            )
        except DivergenceError as error:
            raise DivergenceError(f"{error}, or {SCALE}") from error
        # `pareo.training.fit` ends early without an error; a search would go on with the next one.
        if result.interrupted:
            raise KeyboardInterrupt
        self.classes_ = classes
        self.network_ = network
        self.parameters_ = result.parameters
        self.history_ = result.history
        _warn_of_guessing(result.history[-1], labels)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of each class for each example: (N, classes)."""
        check_is_fitted(self, "parameters_")
        X = validate_data(self, _flat(X), reset=False, dtype=np.float32)
        device = Device(self.device) if isinstance(self.device, str) else self.device or current()
        # Padded batches of one size: the result of an example does not depend on the others.
        forward = Evaluator(self.network_, device, self.batch_size)
        logits = forward.logits(self.parameters_, X.reshape(len(X), *self.network_.inputs))
        return np.asarray(probabilities(logits[:, : len(self.classes_)]))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable label of each example: (N,)."""
        found = self.predict_proba(X).argmax(axis=1)
        return self.classes_[found]

    def _built(self, classes: int) -> Sequential:
        """The network for the features and this number of classes."""
        features = self.n_features_in_
        chosen = HIDDEN if self.network is None else self.network
        if isinstance(chosen, (tuple, list)):
            return networks.mlp([features, *chosen, classes])
        if isinstance(chosen, str):
            chosen = networks.by_name(chosen)
        if not isinstance(chosen, Sequential):
            raise SettingError(
                "Classifier expects network to be None, widths such as (64,), a name or a "
                f"Sequential; got {chosen!r}"
            )
        if int(np.prod(chosen.inputs)) != features:
            raise ShapeError(
                f"{chosen.name} expects inputs of shape {chosen.inputs}, which is "
                f"{int(np.prod(chosen.inputs)):,} features; got {features:,}"
            )
        if chosen.classes < classes:
            raise ShapeError(
                f"{chosen.name} has {chosen.classes:,} outputs, too few for {classes:,} classes"
            )
        return chosen


def _flat(X: Any) -> Any:
    """Images as rows of features; scikit-learn checks everything else."""
    return X.reshape(len(X), -1) if isinstance(X, np.ndarray) and X.ndim > 2 and len(X) else X


def _shaped(X: NDArray[Any], network: Sequential) -> NDArray[Any]:
    """Rows as images of a shape that both a `Dataset` and the network take."""
    sizes = network.inputs
    return X.reshape(len(X), *((1, *sizes) if len(sizes) == 2 else sizes))


def _warn_of_guessing(last: Epoch, labels: NDArray[Any]) -> None:
    """Warn if the network has learned nothing: large features can disable all ReLUs at once."""
    shares = np.bincount(labels) / len(labels)
    guessing = -float(shares @ np.log(shares))
    if len(shares) > 1 and last.loss >= 0.99 * guessing:
        warnings.warn(
            f"after {last.number} epochs the loss, {last.loss:.3g}, is no better than that of "
            f"guessing, {guessing:.3g}: try more epochs or another rate, or {SCALE}",
            ConvergenceWarning,
            stacklevel=3,
        )
