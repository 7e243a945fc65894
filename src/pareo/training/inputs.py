"""The arrays of a run: training images, test images and labels as steps take them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pareo.data import Dataset
from pareo.errors import ShapeError
from pareo.nn.network import Sequential
from pareo.training.checks import SettingError
from pareo.training.evaluate import as_inputs
from pareo.training.losses import BinaryCrossEntropy
from pareo.training.settings import Settings

Pair = tuple[Any, Any]


def parts(network: Sequential, data: Dataset, settings: Settings) -> tuple[Any, Any, Pair | None]:
    """The images and labels to train on, and those to test with: a share of them, or the test set.

    Raises:
        SettingError: the loss does not fit the labels.
        ShapeError: images or labels do not fit the network.
    """
    _check_loss(data, settings)
    dtype = settings.dtype
    held = None
    if settings.validation:
        data, held = data.split(settings.validation, settings.seed)
    floats = data.as_float(dtype)
    images, labels = as_inputs(network, floats.images, dtype), _labels(network, floats)
    if settings.augment and images.ndim != 4:
        raise ShapeError(f"augment expects images (N, C, H, W); got {images.shape}")
    if held is not None:
        held = held.as_float(dtype)
        return images, labels, (as_inputs(network, held.images, dtype), _labels(network, held))
    if not len(floats.test_images):
        return images, labels, None
    unseen = as_inputs(network, floats.test_images, dtype)
    return images, labels, (unseen, _checked(network, floats, floats.test_labels))


def _labels(network: Sequential, data: Dataset) -> Any:
    return _checked(network, data, data.labels)


def _check_loss(data: Dataset, settings: Settings) -> None:
    loss = settings.loss
    if loss.takes_classes == data.has_targets:
        wanted = "squared-error or binary-cross-entropy" if data.has_targets else "cross-entropy"
        kind = "targets" if data.has_targets else "classes"
        classes = "; classes are whole numbers, such as labels.argmax(axis=1)"
        raise SettingError(
            f"fit expects the loss {wanted} for the {kind} of {data.name}; got {loss.name}"
            f"{classes if data.has_targets and loss.takes_classes else ''}"
        )
    if isinstance(loss, BinaryCrossEntropy):
        for labels in (data.labels, data.test_labels):
            if labels.size and not (labels.min() >= 0 and labels.max() <= 1):
                raise SettingError(
                    f"fit expects targets from 0 to 1 with the loss {loss.name}; "
                    f"{data.name} has {labels.min():g} to {labels.max():g}"
                )


def _checked(network: Sequential, data: Dataset, labels: Any) -> Any:
    """Labels, if the network has an output for each; `Dataset` has checked the rest."""
    if data.has_targets:
        if data.outputs != network.classes:
            raise ShapeError(
                f"{network.name} has {network.classes} outputs; {data.name} has {data.outputs} "
                f"target{'' if data.outputs == 1 else 's'}"
            )
        return np.ascontiguousarray(labels.reshape(len(labels), data.outputs))
    if len(labels) and labels.max() >= network.classes:
        raise ShapeError(
            f"{network.name} has {network.classes} classes, 0 to {network.classes - 1}; "
            f"a label of the data is {labels.max()}"
        )
    return np.ascontiguousarray(labels)


def starting(given: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of given weights in the dtype of new ones, which they replace.

    >>> starting({"w": np.ones(3)}, {"w": np.zeros(2)})
    Traceback (most recent call last):
    pareo.errors.ShapeError: fit expects the weight w of shape (2,); got (3,)
    """
    found = {}
    for path, array in given.items():
        if path not in new:
            raise ShapeError(f"fit expects weights of the network; it has no parameter {path!r}")
        if np.shape(array) != new[path].shape:
            raise ShapeError(
                f"fit expects the weight {path} of shape {new[path].shape}; got {np.shape(array)}"
            )
        found[path] = np.array(array, new[path].dtype)
    return found
