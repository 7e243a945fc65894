"""Files of torch.export: read for training at any batch size, and nothing in them executed."""

import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import pareo
from pareo.errors import DataError
from pareo.nn.torch_import.chance import draws, settle
from pareo.nn.torch_import.exported import exported, notes_of, packed, shape_of, unpacked

MARK = Path("/tmp/pareo-pt2-was-executed")


class Net(torch.nn.Module):
    """Batch normalisation, dropout, a view with the batch, and a normalisation by constants."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(2, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(4)
        self.drop = torch.nn.Dropout(0.3)
        self.fc = torch.nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.drop(torch.relu(self.norm(self.conv(x))))
        return self.fc(y.view(x.size(0), -1))


def written(path: Path, module: Any, batch: int = 2, free: bool = False) -> Path:
    shapes = ({0: torch.export.Dim("n", min=1, max=99)},) if free else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, (torch.zeros(batch, 2, 4, 4),), dynamic_shapes=shapes)
        torch.export.save(program, path)
    return path


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_a_file_is_the_module_in_training(training: bool, free: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Net().train(training)
    found = exported(written(tmp_path / "net.pt2", module, batch=1 + free, free=free))
    assert shape_of(found) == (2, 4, 4)
    said = "it was exported for evaluation: batch_norm and dropout work as in training"
    assert notes_of(found) == (() if training else (said,))
    imported = pareo.from_torch(found, (2, 4, 4))
    direct = pareo.from_torch(module, (2, 4, 4))
    assert imported.network.layers == direct.network.layers
    assert {name.name for name in imported.names.values()} == {
        name.name for name in direct.names.values()
    }
    settle(module)
    settle(found)
    x = torch.randn(5, 2, 4, 4)
    assert not draws(found, x)
    torch.testing.assert_close(found(x), module.train()(x))
    torch.testing.assert_close(found.norm.running_var, module.norm.running_var)
    torch.testing.assert_close(found.eval()(x), module.eval()(x))


def test_a_module_travels_as_such_a_file() -> None:
    torch.manual_seed(0)
    module = Net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = unpacked(packed(module, (2, 4, 4)), "net")
    for one in (module, found):
        settle(one)
    x = torch.randn(3, 2, 4, 4)
    torch.testing.assert_close(found(x), module.train()(x))


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (MARK,))


def altered(source: Path, change: Callable[[str, bytes], bytes], more: dict[str, bytes]) -> bytes:
    """The archive with its files changed, and others added."""
    made = io.BytesIO()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(made, "w") as new:
        for entry in old.infolist():
            new.writestr(entry.filename, change(entry.filename, old.read(entry)))
        for name, content in more.items():
            new.writestr(f"net/{name}", content)
    return made.getvalue()


def replaced(old: str, new: str) -> Callable[[str, bytes], bytes]:
    def change(name: str, content: bytes) -> bytes:
        return content.replace(old.encode(), new.encode()) if name.endswith(".json") else content

    return change


def _evil_example(name: str, content: bytes) -> bytes:
    if "sample_inputs" not in name:
        return content
    made = io.BytesIO()
    torch.save(((Evil(),), {}), made)
    return made.getvalue()


EXECUTE = "__import__('pathlib').Path('/tmp/pareo-pt2-was-executed').touch()"
CASES: dict[str, tuple[Callable[[str, bytes], bytes], dict[str, bytes], str]] = {
    "an operator": (
        replaced("torch.ops.aten.relu.default", "torch.hub.load"), {},
        "has operators that pareo does not: torch.hub.load in test_exported.py, line",
    ),
    "another one": (
        replaced("torch.ops.aten.relu.default", "torch.ops.aten.from_file.default"), {},
        "has operators that pareo does not: aten.from_file.default",
    ),
    "an operator of two lines": (
        replaced("torch.ops.aten.relu.default", "a\\nb" * 50), {},
        "has operators that pareo does not: 'a\\nba\\nb",
    ),
    "an expression": (
        replaced("Symbol('s", f"{EXECUTE} or Symbol('s"), {}, "which is not a size"
    ),
    "pickled weights": (
        replaced('"use_pickle": false', '"use_pickle": true'), {}, "has pickled values"
    ),
    "an example": (_evil_example, {}, "its example of inputs is not made of tensors"),
    "a library": (
        lambda _, content: content, {"data/aotinductor/model/lib.so": b"x"}, "does not read"
    ),
    "an object": (
        lambda _, content: content,
        {"data/constants/custom_obj_0": pickle.dumps(Evil())}, "does not read",
    ),
    "no JSON": (
        lambda name, content: b"{" if name.endswith("model.json") else content, {},
        "is not a file of torch.export.save",
    ),
    "deep JSON": (
        lambda name, content: b"[" * 10**6 if name.endswith("model.json") else content, {},
        "is not a file of torch.export.save",
    ),
    "other JSON": (
        lambda name, content: json.dumps({"a": 1}).encode()
        if name.endswith("model.json") else content, {}, "PyTorch cannot read it",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def source(tmp_path_factory: Any) -> Path:
    return written(tmp_path_factory.mktemp("pt2") / "good.pt2", Net(), free=True)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore")
def test_nothing_in_a_file_is_executed(case: str, source: Path, tmp_path: Path) -> None:
    change, more, said = CASES[case]
    path = tmp_path / "net.pt2"
    path.write_bytes(altered(source, change, more))
    MARK.unlink(missing_ok=True)
    with pytest.raises(DataError) as caught:
        exported(path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not MARK.exists()


def test_files_that_are_none_are_one_sentence(source: Path, tmp_path: Path) -> None:
    whole = source.read_bytes()
    contents = {"cut": whole[:-30], "empty": b"", "text": b"hello", "head": whole[:1000]}
    for name, content in contents.items():
        path = tmp_path / f"{name}.pt2"
        path.write_bytes(content)
        said = f"{name}.pt2: (is not a file of torch.export.save|has .*, which pareo does not read)"
        with pytest.raises(DataError, match=said):
            exported(path)
    with pytest.raises(DataError, match="No such file"):
        exported(tmp_path / "none.pt2")
    torch.save(Net().state_dict(), tmp_path / "state.pt2")
    with pytest.raises(DataError, match="which pareo does not read"):
        exported(tmp_path / "state.pt2")
