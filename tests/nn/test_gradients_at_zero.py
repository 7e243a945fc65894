"""Gradients of imported functions at exactly 0, which layers that begin with zeros return."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn as tnn

import pareo
from pareo import Device
from pareo.training.step import Step


class _Network(tnn.Module):
    """A layer whose weights are 0, then a function, then another layer."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.last = tnn.Linear(3, 4), tnn.Linear(4, 2)
        torch.nn.init.zeros_(self.first.weight)
        torch.nn.init.zeros_(self.first.bias)
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.last(self.function(self.first(x)))


@pytest.mark.parametrize(
    "function",
    [
        tnn.ELU(0.7), tnn.SELU(), tnn.CELU(1.3), tnn.Softplus(), tnn.Mish(), tnn.LogSigmoid(),
        tnn.PReLU(4), tnn.PReLU(), torch.abs, lambda x: torch.maximum(x, 2 * x),
        lambda x: torch.minimum(x, -x),
    ],
)  # fmt: skip
def test_the_first_step_is_that_of_torch(function: Callable[..., Any]) -> None:
    torch.manual_seed(3)
    module, x = _Network(function), torch.rand(5, 3)
    labels = torch.tensor([0, 1, 1, 0, 1])
    imported = pareo.from_torch(module, x)
    parameters = {path: np.array(array) for path, array in imported.parameters.items()}
    step = Step(imported.network, 5, Device("vectorized"))
    order = np.arange(5)[None]
    step.run(parameters, {}, x.numpy(), labels.numpy(), order, rate=1.0)
    tnn.functional.cross_entropy(module(x), labels).backward()
    moved = sum(float(np.abs(parameters[p] - imported.parameters[p]).sum()) for p in parameters)
    expected = sum(float(p.grad.abs().sum()) for p in module.parameters())
    np.testing.assert_allclose(moved, expected, rtol=1e-5)
