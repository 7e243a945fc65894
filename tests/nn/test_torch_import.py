"""Modules of PyTorch as networks: what is read, what is refused, and the gate between them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn as tnn
from torch.nn import functional
from torch_steps import batches, steps_of_pareo

import pareo
from pareo import Device, nn
from pareo.errors import PareoError, ShapeError
from pareo.nn.torch_import import operators
from pareo.training import load
from pareo.training.definition import describe, rebuild

HERE = "test_torch_import.py"


class Excite(tnn.Module):
    """Squeeze and excitation, with 1x1 convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1 = tnn.Conv2d(channels, 2, 1)
        self.fc2 = tnn.Conv2d(2, channels, 1)

    def forward(self, x: Any) -> Any:
        scale = functional.adaptive_avg_pool2d(x, 1)
        scale = functional.silu(self.fc1(scale), inplace=True)
        return functional.hardsigmoid(self.fc2(scale)) * x


class Block(tnn.Module):
    """A residual block with everything that works in place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = tnn.Conv2d(channels, channels, 3, padding=2, dilation=2, groups=2, bias=False)
        self.bn = tnn.BatchNorm2d(channels, eps=1e-3, momentum=0.3)
        self.relu = tnn.ReLU(inplace=True)
        self.excite = Excite(channels)

    def forward(self, x: Any) -> Any:
        y = self.relu(self.bn(self.conv(x)))
        y = self.excite(y)
        if self.training:
            keep = torch.empty((x.shape[0], 1, 1, 1), dtype=x.dtype).bernoulli_(0.75).div_(0.75)
            y = y * keep
        y += x
        return self.relu(y)


class Mixed(tnn.Module):
    """Branches, pools and activations of most kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = tnn.Sequential(tnn.Conv2d(3, 4, (3, 5), (2, 1), (1, 2)), tnn.Hardswish())
        self.blocks = tnn.ModuleList([Block(4), Block(4)])
        self.pool = tnn.MaxPool2d(3, 2, 1, ceil_mode=True)
        self.average = tnn.AvgPool2d(3, 2, 1, count_include_pad=False, ceil_mode=True)
        self.relu6 = tnn.ReLU6()
        self.leaky = tnn.LeakyReLU(0.2)
        self.drop = tnn.Dropout(0.4)
        self.classifier = tnn.Linear(8, 5)
        self.spare = tnn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = torch.cat([self.relu6(self.pool(x)), self.leaky(self.average(x))], 1)
        x = functional.gelu(x, approximate="tanh")
        return self.classifier(self.drop(x.mean([2, 3])))


class LastBlock(tnn.Module):
    """Images with channels last in the middle, as in ConvNeXt."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = tnn.Conv2d(3, 4, 2, stride=2)
        self.depthwise = tnn.Conv2d(4, 4, 3, padding="same", groups=4)
        self.norm = tnn.LayerNorm(4, eps=1e-6)
        self.wide = tnn.Linear(4, 8)
        self.narrow = tnn.Linear(8, 4, bias=False)
        self.gamma = tnn.Parameter(torch.full((4, 1, 1), 1e-2))
        self.head = tnn.Linear(4, 5)

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(functional.gelu(self.wide(y))).permute(0, 3, 1, 2)
        x = x + self.gamma * y
        return self.head(torch.tanh(functional.adaptive_avg_pool2d(x, 1).flatten(1)))


class Shuffled(tnn.Module):
    """Halves, channels that are shuffled, and a gate of dense layers."""

    def __init__(self) -> None:
        super().__init__()
        self.branch = tnn.Sequential(tnn.Conv2d(3, 3, 3, padding=1), tnn.BatchNorm2d(3))
        self.gate = tnn.Sequential(tnn.Linear(6, 2), tnn.ReLU(), tnn.Linear(2, 6), tnn.Sigmoid())
        self.pool = tnn.AvgPool2d(3, 2, 1, ceil_mode=True)
        self.fc = tnn.Linear(12, 5)

    def forward(self, x: Any) -> Any:
        left, right = x.chunk(2, dim=1)
        x = torch.cat([left, self.branch(right)], 1)
        n, c, h, w = x.shape
        x = x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)
        gate = self.gate(x.mean((2, 3))).view(n, c, 1, 1)
        x = self.pool(x * gate.expand_as(x))
        x = x[:, 1:5, :, 0].permute(0, 2, 1)
        return self.fc(x.flatten(1))


class Sliced(tnn.Module):
    """Parts in all spellings, of images with channels last, too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = tnn.LayerNorm(2)
        self.fc = tnn.Linear(12, 5)

    def forward(self, x: Any) -> Any:
        one, two, three = x.split(2, 1)
        four, five = three.split([3, 2], dim=-1)
        one = one + two.narrow(1, 0, 2)
        last = self.norm(one.permute(0, 2, 3, 1))[:, 1:4]
        first, second = last.unbind(dim=3)
        rows = (first * second)[..., -2:].reshape(x.shape[0], 6)
        more = torch.cat([four[:, :, 0, :2].flatten(1), five[:, 1, 3]], 1)
        return self.fc(torch.cat([rows, more], 1))


class Tokens(tnn.Module):
    """Attention in PyTorch's own layer, and written out as it often is."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = tnn.Conv2d(3, 8, 2, stride=2)
        self.token = tnn.Parameter(torch.full((1, 1, 8), 0.5))
        self.position = tnn.Parameter(torch.randn(1, 10, 8))
        self.norm = tnn.LayerNorm(8)
        self.attention = tnn.MultiheadAttention(8, 2, batch_first=True)
        self.qkv = tnn.Linear(8, 24, bias=False)
        self.gamma = tnn.Parameter(torch.full((8,), 0.3))
        self.head = tnn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        n, c, h, w = x.shape
        x = x.reshape(n, c, h * w).permute(0, 2, 1)
        x = torch.cat([self.token.expand(n, -1, -1), x], 1) + self.position
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        q, k, v = self.qkv(x).reshape(n, -1, 3, 4, 2).permute(2, 0, 3, 1, 4).unbind(0)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + y.transpose(1, 2).reshape(n, -1, c) * self.gamma.reshape(1, 1, -1)
        return self.head(x[:, 0])


def made(kind: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return kind()


@pytest.fixture(scope="module")
def mixed() -> Any:
    return pareo.from_torch(made(Mixed), torch.zeros(2, 3, 12, 12))


def test_parameters_have_the_names_of_the_state_dict(mixed: Any) -> None:
    module = made(Mixed)
    assert mixed.names["blocks.1.bn.variance"].name == "blocks.1.bn.running_var"
    assert mixed.names["stem.0.w"].name == "stem.0.weight"
    found = {name.name for name in mixed.names.values()} | set(mixed.unused)
    assert found == {n for n in module.state_dict() if not n.endswith("num_batches_tracked")}
    assert mixed.unused == ("spare.weight", "spare.bias")
    assert mixed.network.name == "Mixed"
    for path, name in mixed.names.items():
        expected = module.state_dict()[name.name].numpy()
        np.testing.assert_array_equal(name.to_torch(mixed.parameters[path]), expected)
        assert mixed.parameters[path].dtype == np.float32


def test_layers_have_the_settings_of_the_modules(mixed: Any) -> None:
    layers = {path: layer for path, layer, _ in mixed.network.walk(mixed.network.inputs)}
    assert layers["stem.0"] == nn.Conv(4, (3, 5), (2, 1), (1, 2))
    assert layers["blocks.0.conv"] == nn.Conv(4, 3, 1, 2, groups=2, bias=False, dilation=2)
    assert layers["blocks.0.bn"] == nn.BatchNorm(0.3, 1e-3)
    assert layers["pool"] == nn.MaxPool(3, 2, 1, ceil=True)
    assert layers["drop"] == nn.Dropout(0.4)
    kinds = {type(layer) for layer in layers.values()}
    assert {nn.HardSwish, nn.HardSigmoid, nn.SiLU, nn.Clip, nn.LeakyReLU, nn.GELU} <= kinds
    assert nn.StochasticDepth(0.25) in layers.values()
    assert "Conv 4 @ 3x5" in mixed.network.summary()


def test_outputs_are_those_of_the_module(mixed: Any) -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 12, 12)).astype("float32")
    with Device("vectorized"):
        found = mixed.network(mixed.parameters, x)
    with torch.no_grad():
        expected = made(Mixed).eval()(torch.tensor(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_five_steps_of_training_are_those_of_torch() -> None:
    module = made(LastBlock).double()
    imported = pareo.from_torch(module, (3, 8, 8))
    data = list(batches(imported.network, 4, 5, "float64"))
    found = steps_of_pareo(imported.network, "vectorized", imported.parameters, data, 0.1)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for seen, (images, labels) in zip(found, data, strict=True):
        optimizer.zero_grad()
        loss = functional.cross_entropy(module(torch.tensor(images)), torch.tensor(labels))
        loss.backward()
        assert seen.loss == pytest.approx(loss.item(), rel=1e-9)
        for path, name in imported.names.items():
            expected = dict(module.named_parameters())[name.name].grad.numpy()
            ours = name.to_torch(seen.gradients[path])
            np.testing.assert_allclose(ours, expected, rtol=1e-7, atol=1e-10, err_msg=path)
        optimizer.step()


def test_attention_is_one_layer() -> None:
    imported = pareo.from_torch(made(Tokens), (3, 6, 6))
    layers = {path: layer for path, layer, _ in imported.network.walk((3, 6, 6))}
    found = [layer for layer in layers.values() if isinstance(layer, nn.Attention)]
    assert found == [nn.Attention(2), nn.Attention(4, causal=True)]
    assert not [layer for layer in layers.values() if isinstance(layer, nn.Permute)][1:]
    names = {path: name.name for path, name in imported.names.items()}
    assert names["token.w"] == "token"
    assert names["gamma.w"] == "gamma"
    assert names["attention.out_proj.b"] == "attention.out_proj.bias"
    assert names["attention.in_proj.b"] == "attention.in_proj_bias"


def test_numbers_are_added_and_multiplied() -> None:
    def function(m: Any, x: Any) -> Any:
        return m.fc(((2 * (m.conv(x) - 0.5) + 3) / 4).flatten(1) * 0.5)

    network = pareo.from_torch(Chosen(function), (2, 2, 2)).network
    kinds = [type(layer) for layer in network.layers]
    assert kinds == [nn.Conv, *[nn.Affine] * 4, nn.Flatten, nn.Affine, nn.Dense]


def test_buffers_normalise_the_images() -> None:
    module = Chosen(lambda m, x: m.fc(((x - m.mean) / m.deviation).flatten(1)))
    network = pareo.from_torch(module, (2, 2, 2)).network
    assert network.layers[:2] == (
        nn.Normalise((0.25, 0.75), (1.0, 1.0)), nn.Normalise((0.0, 0.0), (0.5, 2.0))
    )  # fmt: skip


def test_parts_and_shuffled_channels_become_layers() -> None:
    network = pareo.from_torch(made(Shuffled), (6, 5, 5)).network
    layers = {path: layer for path, layer, _ in network.walk(network.inputs)}
    assert {nn.Part(1, 0, 3), nn.Part(1, 3, 6), nn.Permute((0, 2, 1, 3, 4))} <= {*layers.values()}
    assert {nn.Reshape((2, 3, 5, 5)), nn.Reshape((6, 1, 1))} <= {*layers.values()}
    assert layers["pool"] == nn.AveragePool(3, 2, 1, ceil=True, counts_padding=True)
    assert rebuild(describe(network)) == network


def test_parts_are_those_of_torch() -> None:
    imported = pareo.from_torch(made(Sliced), (6, 5, 5))
    assert imported.names["norm.scale"].name == "norm.weight"


def test_the_module_stays_as_it_is() -> None:
    module = made(Mixed).eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    pareo.from_torch(module, (3, 12, 12))
    assert not module.training
    assert all(torch.equal(before[name], now) for name, now in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert next(module.parameters()).dtype == torch.float32


def test_weights_of_half_precision_are_read_in_float32() -> None:
    module = tnn.Sequential(tnn.Flatten(), tnn.Linear(4, 3)).bfloat16()
    imported = pareo.from_torch(module, (1, 2, 2))
    assert imported.parameters["1.w"].dtype == np.float32
    expected = module[1].weight.detach().float().numpy().T
    np.testing.assert_array_equal(imported.parameters["1.w"], expected)


def test_a_plain_chain_is_a_sequential() -> None:
    module = tnn.Sequential(tnn.Conv2d(1, 2, 3), tnn.ReLU(), tnn.Flatten(), tnn.Linear(18, 4))
    network = pareo.from_torch(module, (1, 5, 5), name="chain").network
    assert network == nn.Sequential(
        {"0": nn.Conv(2, 3), "1": nn.ReLU(), "2": nn.Flatten(), "3": nn.Dense(4)}, (1, 5, 5),
        "chain",
    )  # fmt: skip


def test_a_checkpoint_keeps_network_and_weights(mixed: Any, tmp_path: Any) -> None:
    pareo.save(tmp_path / "net.safetensors", mixed.network, mixed.parameters)
    known = load(tmp_path / "net.safetensors")
    assert known.network == mixed.network
    assert all(np.array_equal(known.weights[path], a) for path, a in mixed.parameters.items())


class Strange(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = tnn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        x = torch.cumsum(x, 2)  # first
        x = torch.fft.fft(x).real  # second
        x = functional.avg_pool2d(x, 3, 1, 1)  # third
        return self.fc(x.mean((2, 3)))


def test_all_unknown_operators_are_listed_with_their_lines() -> None:
    lines = Path(__file__).read_text().splitlines()
    numbers = [n for n, line in enumerate(lines, 1) if line.endswith(("# first", "# second"))]
    with pytest.raises(PareoError) as caught:
        pareo.from_torch(Strange(), (3, 4, 4))
    message = str(caught.value)
    assert message.startswith("Strange has operators that pareo does not: ")
    assert f"aten.cumsum in {HERE}, line {numbers[0]}" in message
    assert f"aten.fft_fft in {HERE}, line {numbers[1]}" in message
    assert "\n" not in message


class Chosen(tnn.Module):
    """A module whose `forward` is a function of the test."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.conv = tnn.Conv2d(2, 2, 1)
        self.fc = tnn.Linear(8, 3)
        self.scale = tnn.Parameter(torch.ones(2, 4))
        self.plain = tnn.BatchNorm2d(2, affine=False)
        self.register_buffer("mean", torch.tensor([0.25, 0.75]).reshape(1, 2, 1, 1))
        self.register_buffer("deviation", torch.tensor([0.5, 2.0]).reshape(2, 1, 1))
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def changed_after_a_view(m: Any, x: Any) -> Any:
    y = m.conv(x)
    flat = y.flatten(1)
    y.relu_()
    return m.fc(flat)


def used_after_a_change(m: Any, x: Any) -> Any:
    y = m.conv(x)
    y.add_(x)
    y.relu_()
    return m.fc(y.flatten(1))


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: x - m.scale[0, :2].view(2, 1, 1),
        lambda m, x: x - m.conv.bias.view(2, 1, 1),
        lambda m, x: 1 / m.conv(x),
        lambda m, x: x.flatten(2) * m.scale,
        lambda m, x: x[:, :, ::2].flatten(1).repeat(1, 2),
        lambda m, x: x[:, :1].expand(-1, 2, -1, -1).relu(),
        lambda m, x: (m.conv(x).tanh() - 3) ** -3,
    ],
)
def test_functions_of_weights_and_repeated_values(function: Any) -> None:
    module = Chosen(lambda m, x: m.fc(function(m, x).flatten(1)))
    assert pareo.from_torch(module, (2, 2, 2)).network.classes == 3  # which the gate compares


def test_what_is_changed_in_place_is_read_changed() -> None:
    network = pareo.from_torch(Chosen(used_after_a_change), (2, 2, 2)).network
    graph = network.layers[0]
    assert isinstance(graph, nn.Graph)
    assert [(node.name, node.reads) for node in graph.nodes] == [
        ("conv", ("input",)), ("add", ("conv", "input")), ("relu", ("add",)),
        ("flatten", ("relu",)), ("fc", ("flatten",)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (changed_after_a_view, "a view of values that were changed in place"),
        (lambda m, x: m.fc(m.conv(m.conv(x)).flatten(1)), "conv.weight is used a second time"),
        (lambda m, x: m.fc(m.plain(x).flatten(1)), "without trained scale and shift"),
        (lambda m, x: m.fc((m.conv(x) * float("inf")).flatten(1)), r"aten\.mul \(with inf"),
        (lambda m, x: m.fc((x / m.conv.bias.view(2, 1, 1)).flatten(1)), "by a trained weight"),
        (lambda m, x: m.fc((m.conv(x) ** 0).flatten(1)), "with the exponent 0"),
        (lambda m, x: m.fc(x.transpose(0, 1).relu().flatten(1)), "along the batch"),
        (lambda m, x: m.fc(x[:1].flatten(1)), "along the batch"),
        (lambda m, x: m.fc(x.flatten(1).repeat(2, 1)), "along the batch"),
        (lambda m, x: m.fc(m.conv(x).view(2, 8)), "does not compute 3 images"),
        (lambda m, x: functional.dropout(m.fc(x.flatten(1))), "its output after training would"),
        (lambda m, x: (m.fc(x.flatten(1)), x), "one result in training; got 2"),
        (lambda m, x: m.conv(x), r"result is \(N, classes\); got \('N', 2, 2, 2\)"),
        (lambda m, x: m.fc(x), "torch.export cannot export Chosen for inputs of shape"),
    ],
)
def test_modules_that_are_refused(function: Any, message: str) -> None:
    with pytest.raises(PareoError, match=message):
        pareo.from_torch(Chosen(function), (2, 2, 2))


def test_an_error_of_the_module_is_not_logged(caplog: Any) -> None:
    with pytest.raises(PareoError, match="cannot export Chosen"):
        pareo.from_torch(Chosen(lambda m, x: m.fc(x.flatten(1) + m.scale)), (2, 2, 2))
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


class Reduced(tnn.Module):
    """Reductions along any axes, a convolution along one, features with a factor and a shift."""

    def __init__(self) -> None:
        super().__init__()
        self.along = tnn.Conv1d(4, 6, 3, stride=2, padding=1)
        self.alpha = tnn.Parameter(torch.rand(1, 1, 5))
        self.beta = tnn.Parameter(torch.rand(1, 1, 5))
        self.gamma = tnn.Parameter(torch.rand(4, 1, 1))
        self.delta = tnn.Parameter(torch.rand(4, 1, 1))
        self.fc = tnn.Linear(15, 3)

    def forward(self, x: Any) -> Any:  # (N, 4, 6, 5)
        x = torch.addcmul(self.delta, x, self.gamma)
        tokens = torch.addcmul(self.beta, self.alpha, x.flatten(1, 2))  # (N, 24, 5)
        row = self.along(x.mean(3)).sum(-1, keepdim=True)  # (N, 6, 1)
        column = x.sum((1, 2))  # (N, 5)
        plane = x.mean(1, keepdim=True) + row.unflatten(1, (1, 6))  # (N, 1, 6, 5)
        last = x.swapaxes(1, -1).swapaxes(1, 2).mean(3).sum(1)  # (N, 5), of channels
        return self.fc(torch.cat([tokens.mean(1), column, plane.sum(2).flatten(1) + last], 1))


class OneOfThree(torch.nn.Module):
    """A part of the values, in whose shape others are put, as LeViT's normalisation does."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Linear(4, 4), torch.nn.Linear(4, 2)
        self.norm = torch.nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        x = self.first(x[:, ::3])
        return self.last(self.norm(x.flatten(0, 1)).reshape_as(x).flatten(1))


def test_values_take_the_shape_of_a_part_of_others() -> None:
    found = pareo.from_torch(OneOfThree(), (3, 4))  # which passes the gate
    assert found.network.count() == 20 + 8 + 10


def test_reductions_along_any_axes_are_read() -> None:
    torch.manual_seed(1)
    module = Reduced()
    imported = pareo.from_torch(module, (4, 6, 5))
    x = np.random.default_rng(0).standard_normal((3, 4, 6, 5)).astype(np.float32)
    with Device("vectorized"):
        found = imported.network(imported.parameters, x)
    np.testing.assert_allclose(found, module(torch.from_numpy(x)).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("around", [(0, 1, 0, 1), (1, 2, 0, 3), (3, 0, 2, 1), (1, 1, 2, 2)])
def test_zeros_may_differ_between_the_sides(around: Any, stride: int) -> None:
    class Padded(tnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = tnn.Conv2d(2, 3, (3, 4), stride, padding=(0, 1), dilation=(1, 2))

        def forward(self, x: Any) -> Any:
            return self.conv(functional.pad(x, around)).flatten(1)

    imported = pareo.from_torch(Padded(), (2, 8, 9))  # which the gate compares
    assert imported.network.parameters((2, 8, 9))["conv.w"].shape == (3, 2, 3, 4)


def test_padding_by_a_word_is_that_of_torch() -> None:
    module = tnn.Sequential(tnn.Conv2d(1, 2, (2, 3), padding="same"), tnn.Flatten())
    assert pareo.from_torch(module, (1, 5, 6)).network.classes == 60


def test_a_trained_layer_needs_a_parameter() -> None:
    class Fixed(tnn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kernel", torch.rand(2, 1, 3, 3))

        def forward(self, x: Any) -> Any:
            return functional.conv2d(x, self.kernel).flatten(1)

    with pytest.raises(PareoError, match="the weight kernel is a buffer, which is not trained"):
        pareo.from_torch(Fixed(), (1, 5, 5))


@pytest.mark.parametrize("wrong", [3, "3x4", (), (3, 4.0), torch.zeros(3)])
def test_wrong_examples_are_refused(wrong: Any) -> None:
    with pytest.raises(ShapeError, match="from_torch expects a batch of inputs"):
        pareo.from_torch(Mixed(), wrong)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(PareoError, match=r"expects a torch\.nn\.Module; got 3"):
        pareo.from_torch(3, (3, 4, 4))


def test_the_gate_names_the_first_node_that_differs(monkeypatch: Any) -> None:
    wrong = operators.elementwise(operators.activations.Sigmoid)
    monkeypatch.setitem(operators.OPERATORS, "hardsigmoid", wrong)
    with pytest.raises(PareoError) as caught:
        pareo.from_torch(made(Mixed), (3, 12, 12))
    message = str(caught.value)
    assert "Mixed is not imported, because its output would differ" in message
    assert "the first node that differs is 'blocks.0.excite.hardsigmoid'" in message
    assert f"{HERE}, line" in message


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"momentum": 0.1}, "running statistic of blocks.0.bn.mean"),
        ({"epsilon": 2e-3}, "output"),
    ],
)
def test_the_gate_finds_small_differences(monkeypatch: Any, change: Any, kind: str) -> None:
    from dataclasses import replace

    original = operators.OPERATORS["batch_norm"]

    def off(reader: Any, *args: Any, **more: Any) -> Any:
        found = original(reader, *args, **more)
        made = reader.nodes[found.node]
        reader.nodes[found.node] = replace(made, what=replace(made.what, **change))
        return found

    monkeypatch.setitem(operators.OPERATORS, "batch_norm", off)
    with pytest.raises(PareoError, match=f"its {kind} would differ"):
        pareo.from_torch(made(Mixed), (3, 12, 12))
