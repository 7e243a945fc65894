"""Helpers for tests that split one network over workers."""

from typing import Any

import numpy as np

from pareo.nn import Conv, Dense, Dropout, Flatten, MaxPool, ReLU, Sequential
from pareo.training import fit
from pareo.training.settings import Settings

WIDE = Sequential([Dense(64), ReLU(), Dropout(0.5), Dense(48), Dropout(0.3), Dense(3)], (16,))
IMAGES = Sequential([Conv(4, 3), ReLU(), MaxPool(2), Flatten(), Dense(30), Dense(3)], (2, 8, 8))
EXACT = {"rtol": 1e-11, "atol": 1e-12}  # float64: sums in another order, some steps of training
SINGLE = {"rtol": 1e-4, "atol": 1e-6}  # float32: likewise


def alone(network: Sequential, images: Any, settings: Settings, epochs: int, device: str) -> Any:
    """The same run by one worker."""
    return fit(network, images, settings, epochs=epochs, device=device, progress=False)


def same(found: dict[str, Any], expected: dict[str, Any], **tolerance: float) -> None:
    """Two sets of parameters are the same to rounding."""
    assert list(found) == list(expected)
    for path in found:
        np.testing.assert_allclose(found[path], expected[path], **tolerance, err_msg=path)
