"""Files of ONNX and of torch.export with seeded changes: read and checked, or one sentence."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile
import numpy as np
import pytest
import torch

import pareo
from pareo import nn
from pareo.errors import PareoError
from pareo.nn.torch_import.exported import exported, packed

ROOM = 2**29  # bytes that reading a small file may take
QUICK, MANY = 20, 150  # changed files of each kind


@pytest.fixture(scope="module", autouse=True)
def _imports() -> None:
    """Let all that is imported, and its memory, come before memory is measured."""
    import onnxruntime  # noqa: F401


@pytest.fixture
def bounded() -> Iterator[None]:
    """Refuse memory beyond what the process has, and some room."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def good_onnx(folder: Path) -> bytes:
    """A small file with operators of most kinds."""
    graph = nn.Graph({
        "conv": nn.Conv(4, 3, padding=1, bias=False), "bn": nn.BatchNorm(), "silu": nn.SiLU(),
        "group": nn.GroupNorm(2), "pool": nn.MaxPool(2), "tokens": nn.Tokens(),
        "class": nn.ClassToken(), "norm": nn.LayerNorm(), "qkv": nn.Dense(12),
        "attention": nn.Attention(1), "sum": ("add", "attention", "class"),
        "part": nn.Part(1, 0, 4), "turned": nn.Permute((0, 2, 1)),
        "product": ("matmul", "part", "turned"), "flat": nn.Flatten(), "fc": nn.Dense(2),
    })  # fmt: skip
    network = nn.Sequential([("", graph)], (2, 4, 4), "small")
    pareo.to_onnx(network, network.initialise(), folder / "good.onnx")
    return (folder / "good.onnx").read_bytes()


def good_pt2(folder: Path) -> bytes:
    """The same of torch.export."""
    module = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.Dropout(0.2), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(16, 2),
    )  # fmt: skip
    return packed(module, (2, 4, 4))


def read_pt2(path: Path) -> None:
    pareo.from_torch(exported(path), (2, 4, 4))


KINDS: dict[str, tuple[Callable[[Path], bytes], Any, Callable[[Path], Any]]] = {
    "onnx": (good_onnx, hostile.of_onnx, pareo.from_onnx),
    "pt2": (good_pt2, hostile.of_pt2, read_pt2),
}


def check(kind: str, count: int, seed: int, folder: Path) -> None:
    make, change, read = KINDS[kind]
    good = make(folder)
    path = folder / f"altered.{kind}"
    said: list[str] = []
    for number in range(count):
        path.write_bytes(change(np.random.default_rng([seed, number]), good))
        try:
            read(path)
        except PareoError as error:
            said.append(str(error))
    assert not [one for one in said if "\n" in one or len(one) > 3000]
    assert len(said) > count // 3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("bounded")
@pytest.mark.filterwarnings("ignore")
def test_changed_files(kind: str, tmp_path: Path) -> None:
    check(kind, QUICK, 1, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("bounded")
@pytest.mark.filterwarnings("ignore")
def test_many_changed_files(kind: str, tmp_path: Path) -> None:
    check(kind, MANY, 2, tmp_path)
