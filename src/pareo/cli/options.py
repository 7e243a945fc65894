"""Options that several commands share, and checks of their values."""

import inspect
import math
import os
import re
from collections.abc import Collection
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from pareo.device import MOST_THREADS
from pareo.errors import PareoError


def _check_threads(count: int | None) -> int | None:
    """Refuse more threads than a device takes; as a range, it would widen all of the help."""
    if count is not None and count > MOST_THREADS:
        raise typer.BadParameter(f"expected at most {MOST_THREADS:,}; got {count:,}")
    return count


Network = Annotated[str, typer.Argument(help="A network that `pareo networks` lists.")]
NETWORK = (
    "A network that `pareo networks` lists, or your own: FILE.py:OBJECT or PACKAGE.MODULE:OBJECT, "
    "which is a pareo network, a PyTorch module, or a function that returns one; a checkpoint of "
    "pareo; a .pt2 file of torch.export; an .onnx file. The Python file is executed. Nothing in "
    "the other files is."
)
AnyNetwork = Annotated[str, typer.Argument(help=NETWORK)]
Input = Annotated[
    str | None,
    typer.Option(
        "--input",
        help="Shape of one input of your own network, such as 3x224x224.",
        show_default="the network's own, or the data's",
    ),
]
WEIGHTS = (
    "a checkpoint of pareo, or a safetensors file or state_dict of PyTorch with the names of "
    "torchvision, timm or your own module. Nothing in it is executed."
)
Batch = Annotated[int, typer.Option(min=1, help="Images per step.")]
Epochs = Annotated[
    int | None,
    typer.Option(
        min=1, help="Train for this many epochs.", show_default="until the times are precise enough"
    ),
]
Precision = Annotated[str, typer.Option(help="float32; on a GPU also tf32 or bfloat16.")]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, help="CPU threads to use.", show_default="all cores", callback=_check_threads
    ),
]
DEVICE = typer.Option(help="Device to run on; `pareo devices` lists them.")
Cluster = Annotated[
    str | None,
    typer.Option(
        "--on", help="Ray cluster to run on: ray, or ray://HOST:PORT.", show_default="this machine"
    ),
]
Pixels = Annotated[
    int | None,
    typer.Option(
        min=16,
        help="Width and height of synthetic images, for a network that takes any size.",
        show_default="the network's own",
    ),
]
Together = Annotated[
    bool,
    typer.Option(
        "--together",
        help="Build all contestants at the same time. Starts sooner; first calls take longer.",
    ),
]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the result with all samples to this file.")
]
Html = Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")]
Save = Annotated[bool, typer.Option("--save", help="Save the result for `pareo history`.")]
PrintJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]

# Options that were renamed: the old spelling is accepted, and no help shows it.
RENAMED = {
    "ceilings": {"--on": "--device"},
    "parallel": {"--sizes": "--batches", "--seconds": "--turn"},
    "report": {"--out": "--html"},
    "sweep": {"--abreast": "--interleave", "--size": "--pixels"},
    "tune": {"--keep": "--save", "--checkpoints": "--checkpoint"},
}


# What --quick stands for in a command that has these options anyway, where they are not given.
QUICK = {
    "arena": {"--count": "3", "--kinds": "mlp,cnn", "--seconds": "2"},
    "ops": {"--sizes": "2MB,16MB", "--seconds": "0.3"},
    "parallel": {"--rounds": "2", "--turn": "0.2", "--batches": "none", "--images": "2560"},
    "sweep": {"--batches": "1,8,32", "--seconds": "5"},
    "tune": {"--trials": "6", "--epochs": "1"},
}


def quick(command: str) -> Any:
    """The option --quick of a command in QUICK."""
    words = " ".join(f"{name} {value}" for name, value in QUICK[command].items())
    return typer.Option(
        "--quick", help=f"Short for {words}; options that you give take precedence."
    )


class Command(TyperCommand):
    """A command that also accepts the old spellings of its options, and --quick for others.

    Its help has paragraphs that are wrapped to the width of the terminal, not as the docstring was,
    and flags without the type of a value that they do not take.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.help = reflowed(self.help or "")

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters; the help shows no type beside those that are flags."""
        return plain_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with old spellings replaced."""
        renamed = RENAMED.get(self.name or "", {})
        if "--quick" in args:
            given = {renamed.get(name, name) for name in (word.split("=")[0] for word in args)}
            for name, value in QUICK.get(self.name or "", {}).items():
                args = args if name in given else [*args, name, value]
        words = []
        for word, following in zip_longest(args, args[1:], fillvalue=""):
            name, equals, value = word.partition("=")
            new = renamed.get(name, name)
            if name == "--save" and (value or following).endswith(".safetensors"):
                new = "--best"  # what --save was in `pareo tune`
            words.append(f"{new}{equals}{value}")
        return super().parse_args(ctx, words)


def plain_flags(parameters: list[Any]) -> list[Any]:
    """The parameters, of which flags have no type in the help, as they take no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def reflowed(text: str) -> str:
    """A text whose paragraphs are one line each.

    >>> reflowed("One\\nsentence.\\n\\nAnother.")
    'One sentence.\\n\\nAnother.'
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def data(default: str) -> Any:
    """The option --data, whose default is described by these words."""
    return typer.Option(
        help="mnist, cifar10:FOLDER, cifar100:FOLDER, fashion-mnist:FOLDER, an .npz file, a "
        "directory of IDX files or of images, or synthetic:3x32x32 for synthetic images of this "
        "shape; :CLASSES and :COUNT may follow.",
        show_default=default,
    )


def contestants(example: str, default: str) -> Any:
    """The option --contestants, whose default is described by these words."""
    return typer.Option(help=f"Names separated by commas: {example}.", show_default=default)


def named(text: str | None) -> list[str]:
    """The names in a list separated by commas; empty where it was not given.

    >>> named("pareo-compiled, torch"), named(None)
    (['pareo-compiled', 'torch'], [])
    >>> named("")
    Traceback (most recent call last):
    pareo.errors.PareoError: --contestants expects names separated by commas; got ''
    """
    if text is None:
        return []
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise PareoError(f"--contestants expects names separated by commas; got {text!r}")
    return names


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers of at least 1, separated by commas.

    >>> numbers("--batches", "16, 64")
    [16, 64]
    >>> numbers("--batches", "many")
    Traceback (most recent call last):
    pareo.errors.PareoError: --batches expects numbers separated by commas, as in 16,64; got 'many'
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d{0,8}", part) for part in parts):
        expected = "numbers separated by commas, as in 16,64"
        raise PareoError(f"{option} expects {expected}; got {text!r}")
    return [int(part) for part in parts]


def shape(text: str | None) -> tuple[int, ...] | None:
    """The shape that --input gives.

    >>> shape("3x224x224"), shape(None)
    ((3, 224, 224), None)
    >>> shape("3,224")
    Traceback (most recent call last):
    pareo.errors.PareoError: --input expects a shape such as 3x224x224; got '3,224'
    """
    if text is None:
        return None
    parts = text.split("x")
    if not all(re.fullmatch(r"[1-9]\d{0,5}", part) for part in parts):
        raise PareoError(f"--input expects a shape such as 3x224x224; got {text!r}")
    return tuple(int(part) for part in parts)


def check_finite(option: str, value: float | None) -> None:
    """Refuse infinity and NaN.

    >>> check_finite("--seconds", float("inf"))
    Traceback (most recent call last):
    pareo.errors.PareoError: --seconds expects a finite number; got inf
    """
    if value is not None and not math.isfinite(value):
        raise PareoError(f"{option} expects a finite number; got {value}")


def check_choice(option: str, value: str, known: Collection[str]) -> None:
    """Refuse a value that is not one of the choices.

    >>> check_choice("--precision", "float16", ["float32", "tf32"])
    Traceback (most recent call last):
    pareo.errors.PareoError: --precision expects one of float32, tf32; got 'float16'
    """
    if value not in known:
        raise PareoError(f"{option} expects one of {', '.join(known)}; got {value!r}")


def check_writable(*files: Path | None) -> None:
    """Refuse files that cannot be written, before anything is measured.

    >>> check_writable(Path("no/such/directory/race.json"), None)
    Traceback (most recent call last):
    pareo.errors.PareoError: no/such/directory/race.json: its directory does not exist
    """
    given = [path for path in files if path is not None]
    for path in given:
        if sum(path.absolute() == other.absolute() for other in given) > 1:
            raise PareoError(f"{path}: expected a different file for each output; got one twice")
        parent = path.absolute().parent
        if not parent.is_dir():
            raise PareoError(f"{path}: its directory does not exist")
        if path.is_dir():
            raise PareoError(f"{path}: expected a file to write; got a directory")
        if not os.access(path if path.exists() else parent, os.W_OK):
            raise PareoError(f"{path}: no permission to write it")
