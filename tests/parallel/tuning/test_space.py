"""What a search space may say; what it must not is told in one sentence with the file's name."""

from pathlib import Path

import pytest

from pareo.data import load
from pareo.errors import DataError, PareoError
from pareo.nn import networks
from pareo.parallel.tuning import proposal, space

pytestmark = pytest.mark.smoke

WRONG = {
    "rate = [": "expected TOML",
    "": "expected something to search, such as rate",
    "momentum = 0.9": "expected something to search",
    "speed = [1, 2]": "expected some of rate, momentum, decay, batch_size, .*; got 'speed'",
    "rate = []": "rate expects at least one choice; got none",
    "rate = [0.1, 0.1]": "rate expects choices that differ",
    "rate = [0.1, 0.0]": "rate expects numbers above 0; got 0.0",
    "rate = [0.1, true]": "rate expects numbers above 0; got True",
    "rate = [nan, 1.0]": "rate expects numbers above 0; got nan",
    "rate = [[0.1]]": "rate expects numbers above 0",
    "rate = 'fast'": "rate expects numbers above 0; got 'fast'",
    "rate = { low = 0.1 }": "rate expects low and high; high is missing",
    "rate = { low = 0.1, high = 0.1 }": "rate expects low below high; got 0.1 and 0.1",
    "rate = { low = 0.1, high = 1, log = 1 }": "rate expects log to be true or false; got 1",
    "rate = { low = 0.1, high = 1, steps = 2 }": "rate expects low, high, log or step; got 'steps'",
    "rate = { low = 0.1, high = 1, step = 0 }": "rate expects a step above 0; got 0",
    "rate = { low = 0.1, high = 1, step = 3 }": "rate expects a step of at most high - low; got 3",
    "rate = { low = 0.1, high = 1, step = 0.1, log = true }": "rate expects log or step, not both",
    "decay = { low = 0.0, high = 1, log = true }": "decay expects low above 0 where log is true",
    "momentum = [0.9, 1.0]": "momentum expects numbers from 0 to below 1; got 1.0",
    "batch_size = [32, 64.0]": "batch_size expects whole numbers from 1; got 64.0",
    "batch_size = { low = 0, high = 9 }": "batch_size expects whole numbers from 1; got 0",
    "hidden = [1, 65]": "hidden expects whole numbers from 1 to 64; got 65",
    "activation = ['relu', 'gelu']": "activation expects one of relu, sigmoid, tanh; got 'gelu'",
    "schedule = { low = 1, high = 2 }": "schedule expects words, .*; got a range",
    "schedule = ['cosine', 'slow']": "schedule expects texts such as constant, .*; got 'slow'",
    "optimizer = ['adam', 'adagrad']": "optimizer expects texts such as sgd, .*; got 'adagrad'",
    "optimizer = ['adam', 'adam:2']": "optimizer expects texts such as sgd, .*; got 'adam:2'",
    "augment = ['flip', 'turn']": "augment expects texts such as 'flip,crop.*; got 'turn'",
    "smoothing = [0, 1]": "smoothing expects numbers from 0 to below 1; got 1",
    "clip = [0.5, 0]": "clip expects numbers above 0; got 0",
    "average = { low = 0.9, high = 1.0 }": "average expects numbers from 0 to below 1; got 1.0",
    "[[rate]]\nlow = 1": "rate expects numbers above 0",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_said_in_one_sentence(text: str, tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(text)
    with pytest.raises(DataError, match=WRONG[text]) as told:
        space.read(file)
    assert str(told.value).startswith(str(file))
    assert "\n" not in str(told.value)


def test_files_that_are_no_text_or_not_there(tmp_path: Path) -> None:
    for name, content in (("bytes.toml", b"\xff\xfe"), ("deep.toml", b"a = " + b"[" * 5000)):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=rf"{name}: expected TOML; got"):
            space.read(tmp_path / name)
    with pytest.raises(DataError, match="expected a file to read; got: No such file"):
        space.read(tmp_path / "missing.toml")
    with pytest.raises(DataError, match="expected a file to read; got: Is a directory"):
        space.read(tmp_path)


def test_every_form_reaches_optuna(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text(
        "rate = { low = 0.001, high = 1, log = true }\n"
        "momentum = { low = 0.0, high = 0.9, step = 0.3 }\n"
        "batch_size = { low = 16, high = 64, step = 16 }\n"
        "activation = ['relu', 'tanh']\n"
        "decay = 0.01\n"
    )
    found = space.read(file)
    told = {name: str(one) for name, one in found.distributions().items()}
    assert told == {
        "rate": "FloatDistribution(high=1.0, log=True, low=0.001, step=None)",
        "momentum": "FloatDistribution(high=0.9, log=False, low=0.0, step=0.3)",
        "batch_size": "IntDistribution(high=64, log=False, low=16, step=16)",
        "activation": "CategoricalDistribution(choices=('relu', 'tanh'))",
    }
    assert found.fixed == {"decay": 0.01}
    assert space.parse(found.plain()) == found


def test_a_width_is_for_an_mlp() -> None:
    found = space.parse({"width": [8, 16], "hidden": 2})
    proposal.check(found, networks.mlp("small"), "space.toml")
    with pytest.raises(PareoError, match=r"width, hidden is for an MLP.*; got papers-cnn"):
        proposal.check(found, networks.papers_cnn(), "space.toml")


def test_every_setting_of_a_step_can_be_searched() -> None:
    searched = space.parse(
        {
            "optimizer": ["sgd", "nesterov:0.8", "adam:0.9:0.98", "adamw", "lion"],
            "schedule": ["constant", "warmup:1+cosine", "onecycle", "step:2:0.5"],
            "augment": ["", "flip,crop:4,cutout:8"],
            "momentum": {"low": 0.0, "high": 0.95},
            "smoothing": {"low": 0.0, "high": 0.2},
            "clip": {"low": 0.1, "high": 10.0, "log": True},
            "average": [0.0, 0.99],
            "decay": [0.0, 0.1],
        }
    )
    assert list(searched.distributions()) == searched.searched
    make = proposal.Maker(
        networks.mlp([16, 3]), load("synthetic:16:3:120"), 2, {"rate": 0.05, "momentum": 0.9},
        {"adamw": 0.001},
    )  # fmt: skip
    settings = make({name: values[-1] for name, values in searched.choices.items()}).settings()
    assert str(settings.optimizer) == "lion"
    assert (str(settings.schedule), str(settings.augment)) == ("step:2:0.5", "flip,crop:4,cutout:8")
    assert (settings.average, settings.decay, settings.rate) == (0.99, 0.1, 0.05)


def test_an_optimizer_brings_its_own_rate_and_momentum_unless_these_are_searched() -> None:
    make = proposal.Maker(
        networks.mlp([16, 3]), load("synthetic:16:3:120"), 2, {"rate": 0.05, "momentum": 0.9},
        {"adamw": 0.001},
    )  # fmt: skip
    assert make({}).momentum == 0.9
    adamw = make({"optimizer": "adamw", "momentum": 0.5})
    assert (adamw.rate, adamw.settings().momentum) == (0.001, 0.0)
    assert make({"optimizer": "adamw", "rate": 0.01}).rate == 0.01
    assert make({"optimizer": "sgd", "momentum": 0.5}).settings().momentum == 0.5
    assert make({"optimizer": "sgd"}).settings().momentum == 0.0  # as `pareo train` has it
    assert str(make({"optimizer": "nesterov"}).settings().optimizer) == "nesterov:0.9"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rate = " + "9" * 5000, "expected TOML; got: Exceeds the limit"),
        ("rate = 0x" + "f" * 5000, "rate expects numbers above 0; got a int that is too large"),
        ("rate = { low = 0.1, high = 0.9, step = 1e-300 }", "expects at most 1,000,000 steps"),
        ("rate = [1, 1e301]", "rate expects numbers above 0"),
        ("width = [8, 20000]", "width expects layers with at most .* 2 layers of 20,000"),
        ("width = [8, 4096]\nhidden = 64", "got 64 layers of 4,096"),
    ],
)
def test_numbers_that_no_machine_can_serve(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "space.toml"
    file.write_text(text)
    with pytest.raises(DataError, match=said):
        space.read(file)
