"""What the estimators for scikit-learn share: their settings, their network, their outputs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pareo.data import Dataset
from pareo.device import Device, current
from pareo.errors import ShapeError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training.evaluate import Evaluator
from pareo.training.fit import DivergenceError, Result, fit
from pareo.training.settings import SettingError, Settings

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "pareo.Classifier and pareo.Regressor need scikit-learn 1.6 or later: "
        "pip install scikit-learn"
    ) from error

HIDDEN = (64,)


class Estimator(BaseEstimator):
    """A network with the settings of its training; `Classifier` and `Regressor` build on it."""

    n_features_in_: int
    network_: Sequential
    parameters_: dict[str, Any]

    # What the subclasses' __init__ sets, as scikit-learn wants it.
    network: Sequential | str | tuple[int, ...] | None
    epochs: int
    batch_size: int
    rate: float
    momentum: float
    decay: float
    device: Device | str | None
    seed: int
    settings: Settings | None

    def _settings(self, **more: Any) -> Settings:
        """How to train: `settings`, or else those that have an argument of their own."""
        if self.settings is not None:
            if not isinstance(self.settings, Settings):
                raise SettingError(
                    f"{type(self).__name__} expects settings to be None or a "
                    f"pareo.training.Settings; got {self.settings!r:.60}"
                )
            return self.settings
        return Settings(
            batch_size=self.batch_size, rate=self.rate, momentum=self.momentum, decay=self.decay,
            seed=self.seed, **more,
        )  # fmt: skip

    def _trained(self, data: Dataset, network: Sequential, settings: Settings) -> Result:
        name = type(self).__name__
        try:
            result = fit(
                network, data, settings, epochs=self.epochs, device=self.device, progress=False
            )
        except DivergenceError as error:
            raise DivergenceError(f"{error}, or {advice(name)}") from error
        # `pareo.training.fit` ends early without an error; a search would go on with the next one.
        if result.interrupted:
            raise KeyboardInterrupt
        self.network_ = network
        self.parameters_ = result.weights
        self.history_ = result.history
        return result

    def _outputs(self, X: Any) -> NDArray[Any]:
        """The outputs of the trained network for each example."""
        check_is_fitted(self, "parameters_")
        X = validate_data(self, flat(X), reset=False, dtype=np.float32)
        device = Device(self.device) if isinstance(self.device, str) else self.device or current()
        batch = self.batch_size if self.settings is None else self.settings.batch_size
        dtype = next(iter(self.parameters_.values())).dtype
        # Padded batches of one size: the result of an example does not depend on the others.
        forward = Evaluator(self.network_, device, batch, dtype)
        images = np.asarray(X, dtype).reshape(len(X), *self.network_.inputs)
        return np.asarray(forward.logits(self.parameters_, images))

    def _built(self, outputs: int, exact: bool) -> Sequential:
        """The network for the features and this number of outputs, or at least this number."""
        features, name = self.n_features_in_, type(self).__name__
        chosen = HIDDEN if self.network is None else self.network
        if isinstance(chosen, (tuple, list)):
            return networks.mlp([features, *chosen, outputs])
        if isinstance(chosen, str):
            chosen = networks.by_name(chosen)
        if not isinstance(chosen, Sequential):
            raise SettingError(
                f"{name} expects network to be None, widths such as (64,), a name or a "
                f"Sequential; got {chosen!r}"
            )
        if int(np.prod(chosen.inputs)) != features:
            raise ShapeError(
                f"{chosen.name} expects inputs of shape {chosen.inputs}, which is "
                f"{int(np.prod(chosen.inputs)):,} features; got {features:,}"
            )
        if exact and chosen.classes != outputs:
            raise ShapeError(
                f"{chosen.name} has {chosen.classes:,} outputs; there are {outputs:,} targets"
            )
        if chosen.classes < outputs:
            raise ShapeError(
                f"{chosen.name} has {chosen.classes:,} outputs, too few for {outputs:,} classes"
            )
        return chosen


def advice(name: str) -> str:
    """What helps where training fails."""
    return f"scale the features first: make_pipeline(StandardScaler(), {name}())"


def flat(X: Any) -> Any:
    """Images as rows of features; scikit-learn checks everything else."""
    return X.reshape(len(X), -1) if isinstance(X, np.ndarray) and X.ndim > 2 and len(X) else X


def shaped(X: NDArray[Any], network: Sequential) -> NDArray[Any]:
    """Rows as images of a shape that both a `Dataset` and the network take."""
    sizes = network.inputs
    return X.reshape(len(X), *((1, *sizes) if len(sizes) == 2 else sizes))
