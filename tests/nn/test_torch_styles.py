"""Modules in the styles that users write: imported and trained as PyTorch does, or refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx_graphs import exported
from torch import nn as tnn
from torch.nn import functional

import pareo
from pareo.errors import PareoError
from pareo.nn.torch_import.arranged import arranged
from pareo.nn.torch_import.moved import Moved
from pareo.nn.torch_import.values import Unsupported, Value
from pareo.training.definition import describe, rebuild

IMAGES, TOKENS = (3, 8, 8), (4, 8)


class Made(tnn.Module):
    """A module whose layers are keyword arguments, and whose `forward` is a function of them."""

    def __init__(self, forward: Any, **layers: Any) -> None:
        super().__init__()
        self.compute = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Any) -> Any:
        return self.compute(self, x)


def heads(x: Any, count: int = 2) -> Any:
    return x.unflatten(2, (count, -1)).transpose(1, 2)


def attention_by_hand(m: Any, x: Any) -> Any:
    q, k, v = heads(m.q(x)), heads(m.k(x)), heads(m.v(x))
    shares = (q @ k.transpose(-2, -1) / 2.0).softmax(-1)
    return m.fc((x + m.out((shares @ v).transpose(1, 2).flatten(2))).mean(1))


def attention_of_three(m: Any, x: Any) -> Any:
    y = functional.scaled_dot_product_attention(*(heads(m.get_submodule(n)(x)) for n in "qkv"))
    return m.fc(y.transpose(1, 2).flatten(2).mean(1))


def attention_of_fewer_queries(m: Any, x: Any) -> Any:
    y = functional.scaled_dot_product_attention(heads(m.q(x[:, :2])), heads(m.k(x)), heads(m.v(x)))
    return m.fc(y.transpose(1, 2).flatten(2).mean(1))


def causal(m: Any, x: Any) -> Any:
    parts = (heads(m.get_submodule(n)(x)) for n in "qkv")
    y = functional.scaled_dot_product_attention(*parts, is_causal=True)
    return m.fc(y.transpose(1, 2).flatten(2)[:, -1])


def stacked(m: Any, x: Any) -> Any:
    first, second = m.one(x.flatten(1)).chunk(2, 1)
    u, v = torch.stack([first, second], 1).unbind(1)
    w, _ = torch.stack([first, second], -1).unbind(2)
    return m.fc(torch.cat([u * v, 2 * (u - v), 1 - w, -w, w**2], -1))


def windows(m: Any, x: Any) -> Any:
    """Attention inside windows of 2x2 pixels, which are part of the batch for a while."""
    x = m.conv(x)
    n, c, h, w = x.shape
    x = x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, c)
    q, k, v = m.qkv(m.norm(x)).chunk(3, -1)
    x = x + torch.bmm(torch.softmax(q @ k.mT, 2), v)
    x = x.view(n, h // 2, w // 2, 2, 2, c).permute(0, 5, 1, 3, 2, 4).reshape(n, c, h, w)
    return m.fc(x.mean((2, 3)))


def tokens_first(m: Any, x: Any) -> Any:
    """Tokens before the batch, as PyTorch's own layers have them by default."""
    y = m.norm(x.transpose(0, 1))
    y = torch.relu(m.one(y)) * y + y
    return m.fc(y.mean(0))


class Windows(tnn.Module):
    """Attention in shifted windows as Swin has it, of images with channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = tnn.Conv2d(3, 4, 1), tnn.LayerNorm(4)
        self.qkv, self.fc = tnn.Linear(4, 12), tnn.Linear(16, 5)
        self.table = tnn.Parameter(torch.randn(9, 2))
        rows = torch.arange(4) // 2
        columns = torch.arange(4) % 2
        apart = [a[:, None] - a[None] + 1 for a in (rows, columns)]
        self.register_buffer("places", (3 * apart[0] + apart[1]).flatten())

    def forward(self, x: Any) -> Any:
        x = self.stem(x).permute(0, 2, 3, 1)
        y = torch.roll(functional.pad(self.norm(x), (0, 0, 0, 1, 0, 1)), (-1, -1), (1, 2))
        n, h, w, c = y.shape
        y = y.view(n, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, c)
        q, k, v = self.qkv(y).reshape(-1, 4, 3, 2, c // 2).permute(2, 0, 3, 1, 4)
        scores = (q * (c // 2) ** -0.5) @ k.transpose(-2, -1)
        bias = self.table[self.places].view(4, 4, 2).permute(2, 0, 1)
        scores = (scores + bias.unsqueeze(0)).view(n, -1, 2, 4, 4)
        mask = x.new_zeros((h, w))
        mask[-1:, :] = 1
        mask[:, -1:] = 2
        mask = mask.view(h // 2, 2, w // 2, 2).permute(0, 2, 1, 3).reshape(-1, 4)
        mask = mask.unsqueeze(1) - mask.unsqueeze(2)
        mask = mask.masked_fill(mask != 0, -100.0).masked_fill(mask == 0, 0.0)
        scores = (scores + mask.unsqueeze(1).unsqueeze(0)).view(-1, 2, 4, 4)
        y = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, 4, c)
        y = y.view(n, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
        x = (x + torch.roll(y, (1, 1), (1, 2))[:, :-1, :-1].contiguous())[:, :6, 1:]
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.fc(torch.cat(parts, -1).mean((1, 2)))


class Positions(tnn.Module):
    """Tokens with PyTorch's own positional encoding, which is a buffer, and `einsum`."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.arange(6.0)[:, None] * torch.exp(torch.arange(0, 8, 2) * -1.0)
        self.register_buffer("encoding", torch.cat([angles.sin(), angles.cos()], 1)[None])
        self.fc = tnn.Linear(8, 5)
        self.place = tnn.Parameter(torch.randn(4, 1))

    def forward(self, x: Any) -> Any:
        x = x + self.encoding[:, : x.size(1)] + self.place[None]
        steps = torch.arange(x.size(1), dtype=x.dtype) / 10
        gram = torch.einsum("nik,njk->nij", x, x - steps[:, None])
        return self.fc(torch.einsum("nij,njc->nci", gram, x).mean(2))


def projections() -> dict[str, Any]:
    return {name: tnn.Linear(8, 8, bias=name != "k") for name in ("q", "k", "v", "out")}


STYLES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "groups": (lambda: tnn.Sequential(
        tnn.Conv2d(3, 8, 3), tnn.GroupNorm(4, 8), tnn.ReLU(), tnn.InstanceNorm2d(8, affine=True),
        tnn.SiLU(), tnn.InstanceNorm2d(8), tnn.MaxPool2d(3), tnn.GroupNorm(1, 8, affine=False),
        tnn.Flatten(), tnn.Linear(32, 5),
    ), IMAGES),
    "layer norms": (lambda: tnn.Sequential(
        tnn.Conv2d(3, 4, 3), tnn.LayerNorm((4, 6, 6)), tnn.LayerNorm(6, elementwise_affine=False),
        tnn.Flatten(), tnn.Linear(144, 5), tnn.LogSoftmax(1),
    ), IMAGES),
    "attention": (lambda: Made(attention_by_hand, **projections(), fc=tnn.Linear(8, 5)), TOKENS),
    "attention of three": (
        lambda: Made(attention_of_three, **projections(), fc=tnn.Linear(8, 5)), TOKENS,
    ),
    "attention of fewer queries": (
        lambda: Made(attention_of_fewer_queries, **projections(), fc=tnn.Linear(8, 5)), TOKENS,
    ),
    "causal attention": (lambda: Made(causal, **projections(), fc=tnn.Linear(8, 5)), TOKENS),
    "multi-head attention with its weights": (lambda: Made(
        lambda m, x: m.fc(m.attention(x, x, x)[0].mean(1)),
        attention=tnn.MultiheadAttention(8, 2, batch_first=True), fc=tnn.Linear(8, 5),
    ), TOKENS),
    "encoder": (lambda: Made(
        lambda m, x: m.fc(m.encoder(x).mean(1)), fc=tnn.Linear(8, 5),
        encoder=tnn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True),
    ), TOKENS),
    "encoder of tokens first": (lambda: Made(
        lambda m, x: m.fc(m.encoder(x.transpose(0, 1)).mean(0)), fc=tnn.Linear(8, 5),
        encoder=tnn.TransformerEncoderLayer(8, 2, 16, activation="gelu", norm_first=True),
    ), TOKENS),
    "stacked": (lambda: Made(stacked, one=tnn.Linear(192, 8), fc=tnn.Linear(20, 5)), IMAGES),
    "gated": (lambda: tnn.Sequential(
        tnn.Flatten(), tnn.Linear(192, 16), tnn.GLU(), tnn.Softmax(-1), tnn.Linear(8, 5),
    ), IMAGES),
    "windows": (lambda: Made(
        windows, conv=tnn.Conv2d(3, 6, 1), norm=tnn.LayerNorm(6), qkv=tnn.Linear(6, 18),
        fc=tnn.Linear(6, 5),
    ), IMAGES),
    "tokens first": (
        lambda: Made(
            tokens_first, norm=tnn.LayerNorm(8), one=tnn.Linear(8, 8), fc=tnn.Linear(8, 5)
        ),
        TOKENS,
    ),
    "shifted windows": (Windows, (3, 7, 7)),
    "positions": (Positions, TOKENS),
    "a weight on the right": (lambda: Made(
        lambda m, x: m.fc((x @ m.w).mean(1)), w=tnn.Parameter(torch.randn(8, 6)),
        fc=tnn.Linear(6, 5),
    ), TOKENS),
}  # fmt: skip


@pytest.mark.parametrize("style", STYLES)
def test_a_style_is_imported_written_and_kept(style: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, shape = STYLES[style]
    module = make()
    found = pareo.from_torch(module, shape)  # whose gate compares outputs and all gradients
    assert rebuild(describe(found.network)) == found.network
    pareo.to_onnx(found.network, found.parameters, tmp_path / "written.onnx")
    x = torch.randn(3, *shape)
    again = pareo.to_torch(found.network, found.parameters, found.names).eval()
    with torch.no_grad():
        assert torch.allclose(again(x), module.eval()(x), atol=1e-5)
    with pareo.Device("compiled"):
        outputs = np.asarray(found.network(found.parameters, x.numpy()))
    assert np.allclose(outputs, module(x).detach().numpy(), atol=1e-4)


@pytest.mark.parametrize("style", ["groups", "layer norms", "attention", "attention of three"])
@pytest.mark.parametrize("training", [False, True])
def test_a_style_from_onnx(style: str, training: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, shape = STYLES[style]
    module = make()
    path = exported(module, tmp_path / "net.onnx", shape, training, opset_version=17)
    found = pareo.from_onnx(path)
    if training:
        by_torch = pareo.from_torch(module, shape)
        names = {name.name for name in found.names.values()}
        assert names == {name.name for name in by_torch.names.values()}


def test_elements_in_any_regular_order_become_layers() -> None:
    class Layers:
        batch = 2

        def __init__(self) -> None:
            self.made: list[Any] = []

        def layer(self, layer: Any, x: Value) -> Value:
            self.made.append(layer)
            return Value(f"{len(self.made)}", layer.output(x.shape))

    random = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        sizes = tuple(random.integers(1, 4, random.integers(1, 5)))
        order = random.permutation(len(sizes) + 1)
        index = np.arange(2 * int(np.prod(sizes))).reshape(2, *sizes).transpose(order)
        if random.random() < 0.5 and index.shape[-1] > 1 and order[-1]:
            index = index[..., random.integers(index.shape[-1])]
        if index.ndim > 1 and random.random() < 0.5:
            index = index.reshape(-1, *index.shape[2:])
        reader = Layers()
        origin = Value("input", tuple(int(size) for size in sizes))
        try:
            found = arranged(reader, Moved(origin, index))
        except Unsupported:
            refused += 1
            continue
        x = np.arange(2 * int(np.prod(sizes))).reshape(2, *sizes)
        for layer in reader.made:
            with pareo.Device("vectorized"):
                x = np.asarray(layer.apply({}, x.astype(float), None)).astype(int)
        seen = found.moved(reader, found.value)
        back = seen.index if isinstance(seen, Moved) else np.arange(x.size).reshape(x.shape)
        assert np.array_equal(x.ravel()[back], index)
    assert refused < 30  # of one element, or of a batch that is in two axes


class Tuple(tnn.Linear):
    def forward(self, x: Any) -> Any:
        return super().forward(x), x


class Dict(tnn.Linear):
    def forward(self, x: Any) -> Any:
        return {"logits": super().forward(x)}


class Inputs(tnn.Linear):
    def forward(self, x: Any, mask: Any) -> Any:
        return super().forward(x) * mask


class Flow(tnn.Linear):
    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        return y * 2 if y.sum() > 0 else y


@pytest.mark.parametrize(
    ("module", "shape", "message"),
    [
        (Tuple(8, 5), (8,), "one result in training; got 2"),
        (tnn.Sequential(tnn.ReLU(), tnn.Flatten()), IMAGES, "Sequential has no weights to train"),
        (Dict(8, 5), (8,), "Dict returns a dict with the keys logits; "
         r"from_torch expects one tensor \(N, classes\)"),
        (Inputs(8, 5), (8,), "expects a module of one input; the forward of Inputs takes x, mask"),
        (Flow(8, 5), (8,), r"Flow.*depends on the numbers of a tensor, in test_torch_styles\.py, "
         r"line \d+"),
        (tnn.Sequential(tnn.Embedding(9, 4), tnn.Flatten(), tnn.Linear(8, 2)), (2,),
         "inputs of whole numbers"),
        (Made(lambda m, x: m.fc(m.lstm(x)[0][:, -1]), lstm=tnn.LSTM(8, 6, batch_first=True),
              fc=tnn.Linear(6, 5)), TOKENS, r"aten\.lstm in test_torch_styles\.py, line \d+"),
        (tnn.Sequential(tnn.ConvTranspose2d(3, 4, 2), tnn.Hardshrink(), tnn.RReLU(),
                        tnn.Flatten(), tnn.Linear(324, 5)), IMAGES,
         r"aten\.conv_transpose2d .*aten\.hardshrink .*aten\.rrelu"),
    ],
)  # fmt: skip
def test_a_style_is_refused_in_one_sentence(
    module: Any, shape: Any, message: str, capfd: Any
) -> None:
    with pytest.raises(PareoError, match=message) as caught:
        pareo.from_torch(module, shape)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_all_problems_are_listed_also_those_behind_others() -> None:
    layers = [tnn.Linear(8, 8), tnn.Hardshrink(), tnn.Linear(8, 8), tnn.Hardshrink(0.2)]
    wrong = Made(lambda m, x: m.net(x).cumsum(1), net=tnn.Sequential(*layers, layers[0]))
    with pytest.raises(PareoError) as caught:
        pareo.from_torch(wrong, (8,))
    text = str(caught.value)
    assert "aten.hardshrink" in text
    assert "(module net.1)" in text
    assert "(module net.3)" in text
    assert "aten.cumsum" in text


def test_a_lazy_module_gets_its_sizes() -> None:
    module = tnn.Sequential(tnn.LazyConv2d(4, 3), tnn.BatchNorm2d(4), tnn.Flatten(),
                            tnn.LazyLinear(5))  # fmt: skip
    found = pareo.from_torch(module, IMAGES)
    assert found.network.count() == sum(p.numel() for p in module.parameters())
    assert not module[1].num_batches_tracked
    assert module.training


def test_evaluation_mode_and_frozen_weights_are_said() -> None:
    module = tnn.Sequential(
        tnn.Flatten(), tnn.Linear(8, 8), tnn.BatchNorm1d(8), tnn.Dropout(0.5), tnn.Linear(8, 5)
    )
    assert pareo.from_torch(module, (8,)).notes == ()
    module[1].requires_grad_(False)
    frozen = "weights that were frozen are trained: 1.weight, 1.bias"
    assert pareo.from_torch(module, (8,)).notes == (frozen,)
    found = pareo.from_torch(module.eval(), (8,)).notes
    assert found[0] == (
        "it was in evaluation mode, and trains in training mode, with BatchNorm1d and Dropout"
    )
    module.train()[2].eval()
    found = pareo.from_torch(module, (8,)).notes
    assert found[0] == "it was in evaluation mode, and trains in training mode, with BatchNorm1d"
    assert not module[2].training
