"""`pareo train`, `predict` and `networks` as a person meets them: real processes, real files."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import command_line
import numpy as np
import pytest
from safetensors.numpy import load_file

from pareo.data import load as load_data
from pareo.nn import networks
from pareo.training import load, save

SMALL = ("--data", "synthetic:1x28x28:10:240", "--device", "vectorized", "--threads", "1")


def pareo(*arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pareo", *arguments], capture_output=True, text=True, **more
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    done = pareo("train", "mlp-small", *SMALL, "--epochs", "2", "--checkpoint", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def test_the_results_stand_at_the_end_and_a_pipe_sees_no_bar(tmp_path: Path) -> None:
    done = pareo("train", "mlp-small", *SMALL, "--epochs", "2", "--checkpoint", str(tmp_path))
    assert done.returncode == 0
    assert re.search(r"\d s  building the training step", done.stderr)
    assert re.search(r"\d s  epoch 1 of 2: loss \d\.\d+, accuracy \d+\.\d+%", done.stderr)
    assert "\x1b" not in done.stderr
    assert "\x1b" not in done.stdout
    assert "mlp-small on vectorized, 1 thread: batch 128" in done.stdout
    for line in (
        r"epochs +2 of 200 images",
        r"accuracy +\d+\.\d\d% of 40 test images",
        r"loss +\d",
        r"seconds +\d+\.\d\d of training alone",
        r"images/s +[\d,]+",
        r"floor +\d+\.\d% \(.+FLOP/s of .+FLOP/s, a large matrix product\)",
        rf"checkpoint +{re.escape(str(tmp_path))}/last.safetensors",
    ):
        assert re.search(f"^{line}", done.stdout, re.MULTILINE), line


@pytest.mark.slow
def test_resume_takes_the_settings_of_the_checkpoint(tmp_path: Path) -> None:
    how = (*SMALL, "--rate", "0.02", "--momentum", "0.5", "--seed", "3", "--batch", "32",
           "--schedule", "constant")  # fmt: skip
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    pareo("train", "mlp-small", *how, "--epochs", "3", "--checkpoint", str(whole))
    pareo("train", "mlp-small", *how, "--epochs", "1", "--checkpoint", str(parts))
    done = pareo("train", "--epochs", "3", "--resume", str(parts))  # the run's own network
    assert done.returncode == 0, done.stderr
    assert "mlp-small on vectorized, 1 thread" in done.stdout
    assert "rate 0.02, momentum 0.5, seed 3" in done.stdout
    one, two = load_file(whole / "last.safetensors"), load_file(parts / "last.safetensors")
    assert {name: a.tobytes() for name, a in one.items()} == {
        name: a.tobytes() for name, a in two.items()
    }


@pytest.mark.slow
def test_every_setting_is_an_option_and_resumes(tmp_path: Path) -> None:
    how = ("resnet8", "--data", "synthetic:1x8x8:4:120", "--device", "vectorized", "--threads", "1",
           "--batch", "32", "--optimizer", "adamw", "--schedule", "warmup:1+cosine", "--decay",
           "0.01", "--clip", "1", "--smoothing", "0.1", "--average", "0.9", "--augment",
           "flip,crop:1,cutout:2", "--train-only", "layer3,fc", "--validation", "0.2",
           "--class-weights", "1,2,3,4", "--normalise")  # fmt: skip
    done = pareo("train", *how, "--epochs", "2", "--patience", "5", "--checkpoint", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "resnet8 on vectorized, 1 thread: batch 32, rate 0.001, warmup:1+cosine, adamw" in (
        done.stdout
    )
    assert "augment flip,crop:1,cutout:2, validation 0.2, only layer3, fc, seed 0" in done.stdout
    assert re.search(r"^epochs +2 of 80 images", done.stdout, re.MULTILINE)
    assert re.search(r"^accuracy +[\d.]+% of 20 validation images", done.stdout, re.MULTILINE)
    assert re.search(r"^test +[\d.]+% of 20 test images", done.stdout, re.MULTILINE)
    found = load(tmp_path)
    assert found.settings["optimizer"] == "adamw"
    assert found.network.names[0] == "normalise"
    assert found.settings["class_weights"] == [1.0, 2.0, 3.0, 4.0]
    assert (tmp_path / "best.safetensors").exists()
    again = pareo("train", "resnet8", "--resume", str(tmp_path))
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[0] == done.stdout.splitlines()[0]
    other = pareo("train", "resnet8", "--resume", str(tmp_path), "--clip", "2")
    assert "was trained with clip 1.0; got 2.0" in other.stderr


def test_training_starts_from_weights(tmp_path: Path, trained: Path) -> None:
    done = pareo("train", "mlp-small", *SMALL, "--epochs", "1", "--weights", str(trained),
                 "--train-only", "5", "--checkpoint", str(tmp_path))  # fmt: skip
    assert done.returncode == 0, done.stderr
    before, after = load(trained).parameters, load(tmp_path).parameters
    assert before["1.w"].tobytes() == after["1.w"].tobytes()
    assert before["5.w"].tobytes() != after["5.w"].tobytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "resnet"), "a network is one of papers-cnn"),
        (("train", "mlp-small", "--device", "abacus"), "Device expects one of"),
        (("train", "mlp-small", "--rate", "-1"), "a rate above 0"),
        (("train", "mlp-small", "--momentum", "2"), "momentum from 0"),
        (("train", "mlp-small", "--epochs", "0"), "epochs"),
        (("train", "mlp-small", "--batch", "0"), "batch_size"),
        (("train", "mlp-small", "--seed", "-1"), "seed"),
        (("train", "mlp-small", "--schedule", "stairs"), "a schedule such as constant, step"),
        (("train", "mlp-small", "--optimizer", "adan"), "sgd, nesterov, adam, adamw or lion"),
        (
            ("train", "mlp-small", "--optimizer", "adam", "--momentum", "0.9"),
            "no momentum with adam",
        ),
        (("train", "mlp-small", "--clip", "-1"), "a clip above 0"),
        (("train", "mlp-small", "--loss", "hinge"), "a loss of cross-entropy"),
        (("train", "mlp-small", "--class-weights", "1,x"), "--class-weights expects numbers"),
        (("train", "mlp-small", *SMALL, "--class-weights", "1,2"), "class_weights for 10 classes"),
        (("train", "mlp-small", "--augment", "blur"), "augment such as 'flip,crop:4,cutout:8'"),
        (("train", "mlp-small", *SMALL, "--train-only", "9"), "train_only to name layers"),
        (("train", "mlp-small", *SMALL, "--validation", "1"), "a validation share from 0"),
        (("train", "mlp-small", *SMALL, "--patience", "0"), "patience to be a whole number"),
        (("train", "mlp-small", *SMALL, "--weights", "nowhere"), "nowhere: expected a file of"),
        (("train", "mlp-small", "--precision", "int8"), "precision of float32 or float64"),
        (("train", "mlp-small", "--data", "nowhere"), "got 'nowhere', which does not exist"),
        (("train", "mlp-small", "--data", "synthetic:3x9x9"), "expects images of shape"),
        (
            ("train", "alexnet", "--data", "mnist"),
            "alexnet does not fit images of shape (1, 28, 28): MaxPool expects",
        ),
        (("train", "mlp-small", "--resume", "nowhere"), "nowhere: expected a checkpoint"),
        (("predict", "nowhere", "a.png"), "nowhere: expected a checkpoint"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: tuple[str, ...], said: str) -> None:
    done = command_line.pareo(*arguments)
    assert done.status == 2
    (sentence,) = [line for line in done.err.splitlines() if said in line]
    assert sentence.startswith("pareo: ")
    assert done.err.endswith(f"{sentence}\n")
    assert done.out == ""


def test_a_directory_that_cannot_be_written_is_a_failure() -> None:
    done = command_line.pareo("train", "mlp-small", *SMALL, "--checkpoint", "/proc/no")
    assert done.status == 1
    assert "/proc/no/last.safetensors: the checkpoint cannot be written" in done.err


def test_what_is_no_number_or_is_missing_is_a_usage_error() -> None:
    for arguments in (
        ("train",),
        ("train", "mlp-small", "--epochs", "many"),
        ("train", "mlp-small", "--threads", "0"),
        ("predict", "x"),
    ):
        done = pareo(*arguments)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


def test_a_run_is_not_overwritten(trained: Path) -> None:
    before = (trained / "last.safetensors").read_bytes()
    done = pareo("train", "mlp-small", *SMALL, "--checkpoint", str(trained))
    assert done.returncode == 2
    assert "already holds a run" in done.stderr
    assert (trained / "last.safetensors").read_bytes() == before


def test_weights_alone_are_no_run_to_go_on_with(tmp_path: Path) -> None:
    network = networks.mlp("small")
    file = tmp_path / "weights.safetensors"
    save(file, network, network.initialise(0))
    done = pareo("train", "mlp-small", "--resume", str(file))
    assert done.returncode == 2
    assert done.stderr == f"pareo: {file}: holds only weights, no run to resume\n"
    save(file, network, network.initialise(0), settings={"callbacks": 1})
    done = pareo("train", "mlp-small", "--resume", str(file))
    assert done.returncode == 2
    assert "its settings are not those of a run: callbacks" in done.stderr


def test_a_loss_that_is_no_number() -> None:
    done = pareo("train", "mlp-small", *SMALL, "--rate", "1e30")
    assert done.returncode == 1
    assert re.search(r"epoch 1, step \d+: try a rate below 1e\+30", done.stderr)
    assert done.stderr.splitlines()[-1].startswith("pareo: ")


@contextmanager
def long_run(folder: Path, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A long training, once its first epoch is written."""
    process = subprocess.Popen(
        [sys.executable, "-m", "pareo", "train", "mlp-small", *SMALL, "--epochs", "100000",
         "--schedule", "constant", "--checkpoint", str(folder)],
        text=True, **more,
    )  # fmt: skip
    with process:
        try:
            deadline = time.monotonic() + 60
            while not ((folder / "last.safetensors").exists() and load(folder).epoch):
                assert time.monotonic() < deadline, "no epoch was written within a minute"
                time.sleep(0.05)
            yield process
        finally:
            process.kill()  # who has ended does not mind


def test_ctrl_c_keeps_the_history_and_a_checkpoint(tmp_path: Path) -> None:
    with long_run(tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    said = f"pareo: stopped by Ctrl-C: continue with --resume {tmp_path}/last.safetensors\n"
    assert err.endswith(said)
    assert "accuracy" in out
    found = load(tmp_path)
    assert len(found.history) == found.epoch >= 1
    done = pareo("train", "mlp-small", "--resume", str(tmp_path), "--device", "vectorized",
                 "--epochs", str(found.epoch + 1))  # fmt: skip
    assert done.returncode == 0
    assert load(tmp_path).epoch == found.epoch + 1


def all_of(terminal: int) -> bytes:
    """What is written to a terminal until nobody writes any more."""
    shown = b""
    with suppress(OSError):  # which is how a terminal tells
        while piece := os.read(terminal, 65536):
            shown += piece
    return shown


def test_a_terminal_sees_the_bar(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    size = {**os.environ, "COLUMNS": "140", "TERM": "xterm"}
    with ThreadPoolExecutor(1) as reader:
        shown = reader.submit(all_of, ours)  # a terminal that nobody reads stops who writes
        try:
            with long_run(tmp_path, stdout=subprocess.PIPE, stderr=theirs, env=size) as process:
                time.sleep(0.5)
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=30)
        finally:
            os.close(theirs)
        plain = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", shown.result().decode())
    os.close(ours)
    assert re.search(r"mlp-small .+ epoch \d+/100000  loss \d", plain)
    assert re.search(r"accuracy \d+\.\d\d%  [\d,]+ images/s", plain)
    assert "left" in plain


@pytest.mark.slow
def test_profile_writes_two_files_and_shows_a_table(tmp_path: Path) -> None:
    done = pareo("train", "mlp-small", *SMALL, "--epochs", "1", "--profile", str(tmp_path / "p"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "callgrind.out.p").read_text().startswith("# callgrind format")
    assert json.loads((tmp_path / "p.speedscope.json").read_text())["profiles"]
    for word in ("operator", "calls", "FLOP/s", "GB/s", "of the floor", "dot", "accuracy"):
        assert word in done.stdout


def test_the_large_networks_take_the_size_of_the_data(tmp_path: Path) -> None:
    done = pareo("train", "googlenet", "--data", "synthetic:3x32x32:3:6", "--epochs", "1",
                 "--batch", "5", "--device", "vectorized")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "googlenet on vectorized" in done.stdout


def write_images(folder: Path) -> tuple[list[Path], Any]:
    data = load_data("synthetic:1x28x28:10:240")
    pixels = np.clip(data.test_images[:3] * 255, 0, 255).astype(np.uint8)
    files = [folder / "grey.pgm", folder / "colour.ppm", folder / "one.npy", folder / "many.npy"]
    files[0].write_bytes(b"P5 28 28 255 " + pixels[0].tobytes())
    files[1].write_bytes(b"P6 28 28 255 " + np.repeat(pixels[1].ravel(), 3).tobytes())
    np.save(files[2], pixels[2, 0])
    np.save(files[3], data.test_images)
    return files, data


def test_predict_says_class_and_probability(trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    files, data = write_images(tmp_path)
    done = pareo("predict", str(trained), *map(str, files))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3 + len(data.test_images)
    found = [re.fullmatch(r"(.+): (\d) \((\d+\.\d)%\)", line) for line in lines]
    assert all(found)
    said = [int(match[2]) for match in found if match]
    right = [*data.test_labels[:3], *data.test_labels]
    # The stack's accuracy is what the training reported.
    accuracy = load(trained).history[-1].accuracy
    assert np.mean(np.equal(said[3:], right[3:])) == pytest.approx(accuracy)
    assert lines[3].startswith(f"{files[3]}[0]: ")


def test_predict_tells_what_is_wrong_and_goes_on(trained: Path, tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    files, _ = write_images(tmp_path)
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "text.npy").write_text("no array")
    np.save(tmp_path / "wide.npy", np.zeros((28, 29)))
    np.save(tmp_path / "nan.npy", np.full((28, 28), np.nan))
    np.save(tmp_path / "words.npy", np.array(["a"]))
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object))
    np.save(tmp_path / "huge.npy", np.full((28, 28), 1e300))
    (tmp_path / "small.pgm").write_bytes(b"P5 2 2 255 " + bytes(4))
    wrong = ["text.png", "text.npy", "wide.npy", "nan.npy", "words.npy", "object.npy",
             "huge.npy", "small.pgm", "missing.png", "missing.npy"]  # fmt: skip
    paths = [str(tmp_path / name) for name in wrong]
    done = command_line.pareo("predict", str(trained), *paths, str(files[0]))
    assert done.status == 1
    complaints = done.err.splitlines()
    assert len(complaints) == len(wrong)
    for name, complaint in zip(wrong, complaints, strict=True):
        assert complaint.startswith("pareo: ")
        assert str(tmp_path / name) in complaint
    assert "small.pgm: resized from 2x2 to 28x28" in done.err  # said, and not wrong
    first, second = done.out.splitlines()
    assert first.startswith(f"{tmp_path / 'small.pgm'}: ")
    assert second.startswith(f"{files[0]}: ")
    none = command_line.pareo("predict", str(trained), str(tmp_path / "text.png"))
    assert (none.status, none.out) == (2, "")


def test_a_finished_run_is_extended(tmp_path: Path) -> None:
    begin = ("train", "mlp-small", *SMALL, "--epochs", "1")
    assert command_line.pareo(*begin, "--checkpoint", str(tmp_path / "a")).status == 0
    again = ("train", "mlp-small", "--resume", str(tmp_path / "a"))
    done = command_line.pareo(*again, "--epochs", "3")
    assert done.status == 0, done.err
    assert "epochs      3 of 200 images" in done.out
    assert [epoch.number for epoch in load(tmp_path / "a").history] == [1, 2, 3]
    less = command_line.pareo(*again, "--epochs", "2")
    assert less.status == 2
    assert "was trained with epochs 3; got 2" in less.err


def test_a_network_that_does_not_fit_mnist_trains_on_synthetic_images(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(
        "from pareo import nn\n"
        "net = nn.Sequential([nn.Flatten(), nn.Dense(3)], input_shape=(3, 5, 5))\n"
    )
    done = command_line.pareo("train", f"{file}:net", "--epochs", "1", "--device", "vectorized")
    assert done.status == 0, done.err
    assert "net does not fit mnist: it trains on synthetic images" in done.err
    assert "epochs      1 of 60 images" in done.out


def test_a_folder_of_photographs_trains_any_network_and_is_fine_tuned_from(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for number, (name, value) in enumerate([("cat", 250), ("dog", 20), ("hen", 130)] * 4):
        folder = tmp_path / "pets" / name
        folder.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (40 + number, 30), (value, value, value)).save(folder / f"{number}.png")
    how = ("--device", "vectorized", "--epochs", "1", "--data", str(tmp_path / "pets"))
    done = command_line.pareo("train", "papers-cnn", *how, "--checkpoint", str(tmp_path / "run"))
    assert done.status == 0, done.err
    assert "12 of 12 images were resized to 28x28" in done.err
    assert "12 of 12 colour images were read as grey" in done.err
    assert load(tmp_path / "run").network.classes == 3
    cat = str(tmp_path / "pets" / "cat" / "0.png")
    said = command_line.pareo("predict", str(tmp_path / "run"), cat)
    assert said.status == 0
    assert re.match(rf"{re.escape(cat)}: (cat|dog|hen) \(", said.out)
    assert "resized from 40x30 to 28x28" in said.err
    # Five classes of digits, from the weights for three of pets: only the last layer is new.
    other = ("--device", "vectorized", "--epochs", "1", "--data", "synthetic:1x28x28:5:60")
    tuned = command_line.pareo("train", str(tmp_path / "run"), *other)
    assert tuned.status == 0, tuned.err
    assert "its last layer is new, for 5 outputs instead of 3" in tuned.err
    file = str(tmp_path / "run" / "last.safetensors")
    tuned = command_line.pareo("train", "papers-cnn", *other, "--weights", file)
    assert tuned.status == 0, tuned.err
    assert "of another shape: 5.w" in tuned.err


def test_networks_are_listed_with_what_they_cost() -> None:
    done = pareo("networks")
    assert done.returncode == 0
    for words in ("papers-cnn .* 2,343", "alexnet .* 61,100,840", "googlenet .* 6,998,552"):
        assert re.search(words.replace(" .* ", ".*"), done.stdout)
    found = {row["name"]: row for row in json.loads(pareo("networks", "--json").stdout)}
    assert found["papers-cnn"]["input"] == [1, 28, 28]
    assert found["mlp-big"]["training_flops"] > 2.5 * found["mlp-big"]["forward_flops"]


def test_help_names_the_commands() -> None:
    text = pareo("--help").stdout
    for command in ("train", "predict", "networks", "devices"):
        assert command in text
    assert "--resume" in pareo("train", "--help").stdout
