"""Checkpoints: whole or refused, and a resumed run ends with the bits of one never interrupted."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import CUDA
from safetensors.numpy import load_file, save_file

from pareo import nn
from pareo.data import Dataset
from pareo.data import load as load_data
from pareo.errors import DataError
from pareo.nn import networks
from pareo.nn.network import Sequential
from pareo.training import Result, fit, load, save
from pareo.training import checkpoint as files
from pareo.training.definition import describe, rebuild
from pareo.training.resume import fingerprint

loop = import_module("pareo.training.fit")  # whose name in the package is the function
DATA = load_data("synthetic:1x8x8:4:300")
# Dropout makes the random state part of what must go on.
NETWORK = Sequential([nn.Flatten(), nn.Dense(24), nn.ReLU(), nn.Dropout(0.2), nn.Dense(4)],
                     (1, 8, 8), "small")  # fmt: skip
HOW: dict[str, Any] = {
    "device": "vectorized", "batch_size": 16, "rate": 0.05, "momentum": 0.9, "decay": 1e-3,
    "seed": 5,
}  # fmt: skip
# Everything that a step can carry on: state of layers, two moments, an average, drawn changes.
MODERN = Sequential(
    [nn.Conv(6, 3, padding=1, bias=False), nn.BatchNorm(), nn.ReLU(), nn.GlobalAveragePool(),
     nn.Flatten(), nn.Dense(4)],
    (1, 8, 8), "modern",
)  # fmt: skip
MODERN_HOW: dict[str, Any] = {
    "device": "vectorized", "batch_size": 16, "rate": 0.01, "decay": 1e-3, "seed": 5,
    "optimizer": "adamw", "average": 0.9, "augment": "flip,crop:1,cutout:2", "clip": 1.0,
    "schedule": "warmup:1+cosine", "smoothing": 0.1,
}  # fmt: skip
RUNS = {"sgd": (NETWORK, HOW), "modern": (MODERN, MODERN_HOW)}


def bits(parameters: Any) -> dict[str, bytes]:
    return {path: a.tobytes() for path, a in parameters.items()}


@pytest.mark.parametrize("name", networks.NETWORKS)
def test_every_network_survives_its_description(name: str) -> None:
    network = networks.by_name(name)
    assert rebuild(json.loads(json.dumps(describe(network)))) == network


def test_a_checkpoint_holds_everything(tmp_path: Path) -> None:
    result = fit(NETWORK, DATA, epochs=2, checkpoint=tmp_path, **HOW)
    found = load(tmp_path / "last.safetensors")
    assert result.checkpoint == tmp_path / "last.safetensors"
    assert found.network == NETWORK
    assert bits(found.parameters) == bits(result.parameters)
    assert bits(found.slots) == bits(result.slots)
    assert (found.epoch, found.step) == (2, 0)
    assert found.history == result.history
    assert found.settings["momentum"] == 0.9
    assert found.data["name"] == "synthetic:1x8x8:4:300"
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "best.safetensors", "last.safetensors",
    ]  # fmt: skip
    # Any framework reads the tensors by their paths.
    assert set(load_file(tmp_path / "last.safetensors")) == {
        start + path for path in result.parameters for start in ("", "optimizer.velocity.")
    }


def test_weights_alone(tmp_path: Path) -> None:
    network = networks.papers_cnn()  # it has a parameter without axes
    weights = network.initialise(seed=1)
    save(tmp_path / "cnn.safetensors", network, weights)
    found = load(tmp_path / "cnn.safetensors")
    assert bits(found.parameters) == bits(weights)
    assert {p: a.shape for p, a in found.parameters.items()} == {
        p: a.shape for p, a in weights.items()
    }
    assert found.slots == {}


@pytest.mark.parametrize("epochs", [1, 2])
def test_resumed_after_an_epoch(tmp_path: Path, epochs: int) -> None:
    whole = fit(NETWORK, DATA, epochs=3, **HOW)
    fit(NETWORK, DATA, epochs=epochs, checkpoint=tmp_path, **HOW)
    resumed = fit(NETWORK, DATA, epochs=3, checkpoint=tmp_path, resume=tmp_path, **HOW)
    assert bits(resumed.parameters) == bits(whole.parameters)
    for name in ("number", "loss", "accuracy", "test_loss"):
        assert resumed.history.column(name) == whole.history.column(name)


def test_a_falling_rate_goes_on_only_towards_the_same_end(tmp_path: Path) -> None:
    how: dict[str, Any] = {**HOW, "epochs": 3, "schedule": "cosine"}
    whole = fit(NETWORK, DATA, **how)
    fit(NETWORK, DATA, checkpoint=tmp_path, callbacks=[lambda result: True], **how)
    with pytest.raises(DataError, match="was trained with epochs 3; got 4"):
        fit(NETWORK, DATA, resume=tmp_path, **{**how, "epochs": 4})
    resumed = fit(NETWORK, DATA, resume=tmp_path, **how)
    assert bits(resumed.parameters) == bits(whole.parameters)


@pytest.mark.parametrize("device", ["vectorized", "compiled", CUDA])
def test_resumed_in_the_middle_of_an_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    how = {**HOW, "device": device, "epochs": 2}
    whole = fit(NETWORK, DATA, **how)
    monkeypatch.setattr(loop, "CHUNK_SECONDS", 0.0)
    for stop in (1, 7, 15, 16):  # of 16 steps, the last with 10 images
        folder = tmp_path / str(stop)
        presses_at(monkeypatch, stop)
        part = fit(NETWORK, DATA, checkpoint=folder, **how)
        monkeypatch.undo()
        assert part.interrupted
        found = load(folder)
        assert (found.epoch, found.step) == ((1, 0) if stop == 16 else (0, stop))
        resumed = fit(NETWORK, DATA, checkpoint=folder, resume=folder, **how)
        assert bits(resumed.parameters) == bits(whole.parameters)
        assert bits(resumed.slots) == bits(whole.slots)
        assert resumed.history.column("loss") == whole.history.column("loss")


def presses_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Ctrl-C while this step runs, steps being taken one at a time."""
    from pareo.training.fit import _Run

    chunk = _Run._chunk

    def pressing(run: _Run, rows: Any, first: int) -> None:
        chunk(run, rows, first)
        if run.state.step == step and run.state.epoch == 0:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(loop, "CHUNK_SECONDS", 0.0)
    monkeypatch.setattr(_Run, "_chunk", pressing)


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    done = fit(NETWORK, DATA, epochs=1, checkpoint=tmp_path, **HOW)
    again = fit(NETWORK, DATA, epochs=1, checkpoint=tmp_path, resume=tmp_path, **HOW)
    assert bits(again.parameters) == bits(done.parameters)
    assert again.history == done.history


def test_another_run_is_never_overwritten(tmp_path: Path) -> None:
    fit(NETWORK, DATA, epochs=1, checkpoint=tmp_path, **HOW)
    before = (tmp_path / "last.safetensors").read_bytes()
    with pytest.raises(DataError, match=r"last.safetensors: already holds a run"):
        fit(NETWORK, DATA, epochs=1, checkpoint=tmp_path, **HOW)
    assert (tmp_path / "last.safetensors").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate": 0.1}, "was trained with rate 0.05; got 0.1"),
        ({"seed": 6}, "was trained with seed 5; got 6"),
        ({"batch_size": 8}, "was trained with batch_size 16; got 8"),
        ({"momentum": 0.0}, "was trained with momentum 0.9; got 0.0"),
        ({"precision": "float64"}, "was trained with precision float32; got float64"),
    ],
)
def test_other_settings_are_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    fit(NETWORK, DATA, epochs=1, checkpoint=tmp_path, **HOW)
    with pytest.raises(DataError, match=said):
        fit(NETWORK, DATA, epochs=2, resume=tmp_path, **{**HOW, **change})


def test_another_network_or_other_data_is_refused(tmp_path: Path) -> None:
    fit(NETWORK, DATA, epochs=1, checkpoint=tmp_path, **HOW)
    with pytest.raises(DataError, match="belongs to the network small, not to this one"):
        fit(networks.mlp([64, 4]), DATA, epochs=2, resume=tmp_path, **HOW)
    other = load_data("synthetic:1x8x8:4:300", seed=1)
    with pytest.raises(DataError, match="was trained on other data"):
        fit(NETWORK, other, epochs=2, resume=tmp_path, **HOW)


def changed(part: str, position: int) -> Dataset:
    arrays = {
        name: getattr(DATA, name).copy()
        for name in ("images", "labels", "test_images", "test_labels")
    }
    arrays[part][position] = 1 - arrays[part][position]
    return Dataset(DATA.name, *arrays.values(), DATA.classes)


@pytest.mark.parametrize(
    "other",
    [
        *(changed("images", position) for position in (0, 17, 249)),
        changed("labels", int(np.flatnonzero(DATA.labels < 2)[-1])),
        changed("test_images", 49),
        changed("test_labels", int(np.flatnonzero(DATA.test_labels < 2)[-1])),
        DATA.as_float("float64"),
        Dataset(DATA.name, DATA.images[:, :, ::-1], DATA.labels, DATA.test_images,
                DATA.test_labels, DATA.classes),
        Dataset(DATA.name, DATA.images, DATA.labels, DATA.test_images[:-1], DATA.test_labels[:-1],
                DATA.classes),
    ],
)  # fmt: skip
def test_data_that_differs_anywhere_is_other_data(other: Dataset, tmp_path: Path) -> None:
    fit(NETWORK, DATA, epochs=1, checkpoint=tmp_path, **HOW)
    with pytest.raises(DataError, match="was trained on other data"):
        fit(NETWORK, other, epochs=2, resume=tmp_path, **HOW)


def test_many_blocks_that_lie_apart_have_the_fingerprint_of_a_copy() -> None:
    wide = np.arange(5 * 300_000 * 2, dtype=np.float64).reshape(5, 600_000)[:, ::2]
    apart, copy = (
        Dataset("wide", images, np.zeros(5, int), images[:0], np.zeros(0, int), 1)
        for images in (wide, wide.copy())
    )
    assert fingerprint(apart) == fingerprint(copy)
    copy.images[4, -1] += 1
    assert fingerprint(apart) != fingerprint(copy)


def test_checkpoints_from_before_fingerprints_go_on_and_get_one(tmp_path: Path) -> None:
    fit(NETWORK, DATA, epochs=1, checkpoint=tmp_path, **HOW)
    file = tmp_path / "last.safetensors"
    found = load(file)
    digest = hashlib.sha256(DATA.labels.tobytes() + DATA.images.tobytes())  # fewer than 512
    found.data = {**found.data, "sha256": digest.hexdigest()}
    del found.data["fingerprint"]
    files.write(file, found)
    with pytest.raises(DataError, match="was trained on other data"):
        fit(NETWORK, changed("images", 17), epochs=2, resume=tmp_path, **HOW)
    fit(NETWORK, DATA, epochs=2, checkpoint=tmp_path, resume=tmp_path, **HOW)
    assert load(file).data["fingerprint"] == fingerprint(DATA)


def refused(file: Path) -> str:
    with pytest.raises(DataError) as caught:
        load(file)
    message = str(caught.value)
    assert str(file) in message
    assert "\n" not in message
    return message


def test_a_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cut.safetensors"
    save(file, NETWORK, NETWORK.initialise(0))
    content = file.read_bytes()
    for length in (0, 1, 7, 8, 50, len(content) // 2, len(content) - 1):
        file.write_bytes(content[:length])
        assert f"{length:,} bytes" in refused(file)
    file.write_bytes(content + b"\0")
    refused(file)


def test_every_altered_byte_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "altered.safetensors"
    save(file, NETWORK, NETWORK.initialise(0))
    content = file.read_bytes()
    chosen = random.Random(0).sample(range(len(content)), 300)
    for position in chosen:
        changed = bytearray(content)
        changed[position] ^= 1 << (position % 8)
        file.write_bytes(changed)
        refused(file)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "foreign.safetensors"
    save_file({"w": np.zeros(3, np.float32)}, file)
    assert "not a checkpoint of pareo" in refused(file)
    file.write_bytes(os.urandom(1000))
    refused(file)
    file.write_bytes(b"\x80\x04K\x01.")  # a pickle
    refused(file)
    assert "No such file" in refused(tmp_path / "missing.safetensors")


ZERO_GROUPS = describe(nn.Sequential([nn.Conv(2, 3)], input_shape=(1, 6, 6)))
ZERO_GROUPS["layers"][0]["groups"] = 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": 2}, "its format is 2"),
        ({"network": {"layer": "Exec", "code": "1"}}, "pareo has no layer 'Exec'"),
        ({"network": {"layer": "Dense", "units": 3}}, "no input_shape"),
        ({"network": {"layer": "Dense", "unit": 3}}, "cannot be built"),
        ({"network": 3}, "expected a layer"),
        ({"epoch": -1}, "its epoch and step"),
        ({"epoch": None}, "its epoch and step"),
        ({"history": [{}]}, "its history"),
        ({"settings": 1}, "its settings"),
        ({"partial": {}}, "its sums"),
        ({"partial": 1e300}, "its sums"),
        ({"data": {"images": "x"}}, "its data: Expected `int`, got `str` - at `$.images`"),
        ({"data": {"class_names": 0.5}}, "its data: Expected `array | null`, got `float`"),
        ({"place": [[[[1] * 99] * 3]]}, "its place are [[[[1, 1"),
        ({"network": ZERO_GROUPS}, "integer modulo by zero"),
        ({"history": json.loads("[" * 150 + "]" * 150)}, "it has more than 100 levels"),
    ],
)
def test_a_forged_description_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    """Written with its right SHA-256, so that only what it says can be wrong."""
    file = tmp_path / "forged.safetensors"
    save(file, NETWORK, NETWORK.initialise(0))
    tensors, metadata = files._read(file)
    text = json.dumps({**json.loads(metadata["pareo"]), **change})
    save_file(tensors, file, {"pareo": text, "sha256": files._digest(text, tensors)})
    assert said in refused(file)


def test_a_place_that_cannot_be_written_is_said_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        DataError, match=r"safetensors: the checkpoint cannot be written: Not a dir"
    ):
        fit(NETWORK, DATA, epochs=1, checkpoint=tmp_path / "file" / "run", **HOW)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "kept.safetensors"
    weights = NETWORK.initialise(0)
    save(file, NETWORK, weights)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="cannot be written: No space left on device"):
        save(file, NETWORK, NETWORK.initialise(1))
    monkeypatch.undo()
    assert bits(load(file).parameters) == bits(weights)


def test_a_layer_of_your_own_is_refused_with_its_name(tmp_path: Path) -> None:
    class Mine(nn.ReLU):
        pass

    network = Sequential([Mine()], (4,))
    with pytest.raises(DataError, match="Mine"):
        save(tmp_path / "mine.safetensors", network, {})
    assert list(tmp_path.iterdir()) == []


TRAIN = """
import sys
from MODULE import DATA, RUNS, loop
folder, resume, often = sys.argv[1], sys.argv[2] == "resume", sys.argv[3] == "often"
network, how = RUNS[sys.argv[4]]
if often:  # a checkpoint after every step, so that any may be the last
    loop.CHUNK_SECONDS = 0.0
    loop._Run._due = lambda run: True
print("ready", flush=True)
given = {"checkpoint": folder, "resume": folder if resume else None, "progress": False}
loop.fit(network, DATA, epochs=EPOCHS, **given, **how)
"""
KILLS, EPOCHS = 6, 30


def run_and_kill(folder: Path, after: float | None, kind: str) -> bool:
    """Train in a process of its own, killed after some seconds; whether it came to its end."""
    file = folder / "last.safetensors"
    resume, before = "new", 0
    if file.exists():
        resume, before = "resume", file.stat().st_mtime_ns
    code = TRAIN.replace("MODULE", Path(__file__).stem).replace("EPOCHS", str(EPOCHS))
    folders = *Path(__file__).parents[:2], Path(loop.__file__).parents[2]
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            code,
            str(folder),
            resume,
            "rarely" if after is None else "often",
            kind,
        ],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
    )
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        if after is None:
            return process.wait(timeout=120) == 0
        while process.poll() is None and (not file.exists() or file.stat().st_mtime_ns == before):
            time.sleep(0.01)  # until it has written one, however busy the machine is
        time.sleep(after)
        process.send_signal(signal.SIGKILL)
        return process.wait(timeout=120) == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_killed_at_random_moments_it_ends_with_the_same_bits(tmp_path: Path, kind: str) -> None:
    network, how = RUNS[kind]
    whole = fit(network, DATA, epochs=EPOCHS, **how)
    draw = random.Random(1)
    reached: list[tuple[int, int]] = []
    for _ in range(KILLS):
        assert not run_and_kill(tmp_path, draw.uniform(0.05, 0.4), kind)
        found = load(tmp_path)  # whole, whenever the process died
        reached.append((found.epoch, found.step))
    assert reached == sorted(reached)
    assert any(step for _, step in reached), "no kill in the middle of an epoch"
    assert run_and_kill(tmp_path, None, kind)
    found = load(tmp_path)
    assert found.epoch == EPOCHS
    assert bits(found.parameters) == bits(whole.parameters)
    assert bits(found.slots) == bits(whole.slots)
    assert found.history.column("loss") == whole.history.column("loss")


def test_the_result_can_be_saved(tmp_path: Path) -> None:
    result: Result = fit(NETWORK, DATA, **HOW)
    result.save(tmp_path / "weights.safetensors")
    assert bits(load(tmp_path / "weights.safetensors").parameters) == bits(result.parameters)
