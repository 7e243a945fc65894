"""Modules that PyTorch's functions are called in: each is imported, or refused by name.

The gate of every import compares outputs, the loss and all gradients with PyTorch's.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn as tnn
from torch.nn import functional as f

import pareo
from pareo.errors import PareoError
from pareo.training.definition import describe, rebuild

IMAGES, TOKENS, ROWS, FEATURES = (3, 8, 8), (6, 8), (4, 12), (10,)


class Function(tnn.Module):
    """A convolution, a dense layer or nothing, then a function, then a dense layer."""

    def __init__(self, function: Any, shape: tuple[int, ...]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        if len(shape) == 3:
            self.first: tnn.Module = tnn.Conv2d(shape[0], 8, 3, padding=1)
        else:
            self.first = tnn.Linear(shape[-1], shape[-1])
        self.one = tnn.Parameter(torch.tensor(0.5))
        self.slope = tnn.Parameter(torch.tensor([0.3]))
        self.channels = tnn.Parameter(torch.rand(8))
        self.heads = tnn.Parameter(torch.rand(2, 1, 1))
        self.query = tnn.Parameter(torch.randn(1, 2, 8))
        self.table = tnn.Embedding(6, 8)
        self.grid = tnn.Parameter(torch.randn(3, 3))
        angles = torch.arange(6.0)[:, None] * torch.exp(-torch.arange(4.0))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin())
        self.register_buffer("later", torch.ones(6, 6).triu(1).bool(), persistent=False)
        self.last = tnn.LazyLinear(3)

    def forward(self, x: Any) -> Any:
        return self.last(self.function(self, self.first(x)).flatten(1))


def several_activations(m: Any, x: Any) -> Any:
    x = f.celu(f.elu(x, 0.7), 0.5) + f.selu(x) + f.mish(x) + f.softplus(x, 2.0)
    x = x + f.logsigmoid(x) + f.softsign(x) + f.softshrink(x, 0.2) + f.tanhshrink(x)
    return x + x.abs() + torch.exp(-x.square()) + (x.abs() + 1).log() + torch.sqrt(x * x + 1)


def powers(m: Any, x: Any) -> Any:
    y = x.clamp(min=0.1)
    return torch.cat([x**3, y**1.5, y.rsqrt(), 1 / y, x / (y + 1), x.clamp_max(0.2)], 1)


def extremes(m: Any, x: Any) -> Any:
    high, _ = x.max(1, keepdim=True)
    low = x.amin((2, 3), keepdim=True)
    both = torch.maximum(x, x.flip(2)) + torch.minimum(x, x.flip(3)) + high * low
    return torch.cat([both.amax((2, 3)), f.adaptive_max_pool2d(x, 4).flatten(1)], 1)


def deviations(m: Any, x: Any) -> Any:
    wide = (x - x.mean(1, keepdim=True)) / torch.sqrt(x.var(1, keepdim=True) + 1e-3)
    variance, mean = torch.var_mean(x, (2, 3), keepdim=True)
    return torch.cat([wide * variance, x.std((2, 3), keepdim=True) * mean + x], 1)


def lengths(m: Any, x: Any) -> Any:
    return torch.cat(
        [f.normalize(x, dim=-1), f.rms_norm(x, (8,), m.channels), x.norm(dim=1)[:, None]], 1
    )


def interpolated(m: Any, x: Any) -> Any:
    x = f.interpolate(x, scale_factor=2) + f.interpolate(x, (16, 16), mode="bilinear")
    x = f.interpolate(x, (5, 7), mode="bicubic", align_corners=True)
    return f.pad(f.pad(x, (1, 2, 3, 0), mode="reflect"), (1, 1), value=0.5)


def shuffled(m: Any, x: Any) -> Any:
    x = f.channel_shuffle(f.pixel_unshuffle(f.pixel_shuffle(x, 2), 2), 4)
    return torch.cat([x.repeat(1, 1, 2, 1)[:, ::2], x.repeat_interleave(2, 2)[:, 1::2]], 1)


def unfolded(m: Any, x: Any) -> Any:
    places = torch.tensor([3, 0, 0])
    return f.unfold(x, 3, padding=1, stride=2)[:, places] + f.unfold(x, 3, 1, 1, 2)[:, :3]


def gains(m: Any, x: Any) -> Any:
    y = m.one * x + f.prelu(x, m.channels) + f.prelu(x, m.slope)
    return y.float().to(x.dtype).type_as(x)


def rotated(m: Any, x: Any) -> Any:
    a, b = x.chunk(2, -1)
    x = torch.cat([a * m.cos - b * m.sin, a * m.sin + b * m.cos], -1)
    return x + m.table(torch.arange(6)) - m.channels


def masked(m: Any, x: Any) -> Any:
    q = k = v = x.unflatten(2, (2, 4)).transpose(1, 2)
    scores = (q @ k.mT * m.heads).masked_fill(m.later, float("-inf"))
    y = scores.softmax(-1, dtype=torch.float32) @ v
    y = y + f.scaled_dot_product_attention(q, k, v, attn_mask=~m.later)
    y = y + f.scaled_dot_product_attention(q, k[:, :1], v[:, :1], scale=0.3, is_causal=True)
    return torch.where(m.later, y @ y.mT, 0.5)


def asked(m: Any, x: Any) -> Any:
    query = m.query.expand(len(x), -1, -1)
    y = torch.cat([query, x, query], 1)
    y = y + f.scaled_dot_product_attention(y, y, y)
    return y[:, :2] + query


def picked(m: Any, x: Any) -> Any:
    rows = torch.eye(3)[[0, 2, 1, 1, 0, 2]]
    return x @ x.mT + torch.einsum("ia,ab,jb->ij", rows, m.grid, rows)


def rows(m: Any, x: Any) -> Any:
    x = f.avg_pool1d(f.max_pool1d(x, 3, 1, 1), 2, padding=1)
    return torch.cat([x, f.adaptive_avg_pool1d(x, 3), f.pad(x, (1, -1))], 2)


def in_a_context(m: Any, x: Any) -> Any:
    with torch.autocast("cpu", enabled=False):
        return f.dropout2d(x, 0.3, m.training) * 2


FUNCTIONS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "several activations": (several_activations, FEATURES),
    "powers": (powers, IMAGES),
    "extremes": (extremes, IMAGES),
    "deviations": (deviations, IMAGES),
    "lengths": (lengths, TOKENS),
    "interpolated": (interpolated, IMAGES),
    "shuffled": (shuffled, IMAGES),
    "unfolded": (unfolded, IMAGES),
    "gains": (gains, IMAGES),
    "rotated": (rotated, TOKENS),
    "masked": (masked, TOKENS),
    "asked": (asked, TOKENS),
    "picked": (picked, TOKENS),
    "rows": (rows, ROWS),
    "in a context": (in_a_context, IMAGES),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_imported_written_and_kept(name: str, tmp_path: Path) -> None:
    function, shape = FUNCTIONS[name]
    module = Function(function, shape)
    found = pareo.from_torch(module, shape)
    assert rebuild(describe(found.network)) == found.network
    pareo.to_onnx(found.network, found.parameters, tmp_path / "written.onnx")
    x = torch.randn(3, *shape)
    again = pareo.to_torch(found.network, found.parameters, found.names).eval()
    expected = module.eval()(x).detach()
    with torch.no_grad():
        assert torch.allclose(again(x), expected, atol=1e-4)
    with pareo.Device("compiled"):
        outputs = np.asarray(found.network(found.parameters, x.numpy()))
    assert np.allclose(outputs, expected.numpy(), atol=1e-4)


def without_gradient(m: Any, x: Any) -> Any:
    with torch.no_grad():
        y = torch.relu(x)
    return x + y


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (without_gradient, "torch.no_grad, through which no gradient flows, in "),
        (lambda m, x: x.max(1, keepdim=True)[1] + x, "of the places of the largest"),
        (lambda m, x: torch.where(x > 0, x, 0.5), r"aten\.gt in test_torch_functions\.py, line"),
        (lambda m, x: x / m.one, "by a trained weight"),
        (lambda m, x: x.mean(0), "along the batch"),
        (lambda m, x: x.half().float(), r"aten\.to \(its result has another dtype"),
        (lambda m, x: x.long() * x, r"aten\.to \(its result has another dtype"),
        (lambda m, x: f.hardshrink(x) + f.threshold(x, 0.1, 2.0), "hardshrink .*; aten.threshold"),
    ],
)
def test_a_function_is_refused_by_name(function: Any, message: str) -> None:
    with pytest.raises(PareoError, match=message) as caught:
        pareo.from_torch(Function(function, (2, 4, 4)), (2, 4, 4))
    assert "\n" not in str(caught.value)
