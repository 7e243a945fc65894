"""`pareo doctor`: what this machine has, what is missing for what, and how to get it."""

import json
import shutil
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version

from rich.console import Console
from rich.markup import escape

from pareo import __version__, machine
from pareo.cli import options
from pareo.device import cores, why_unavailable
from pareo.lab.contestants.contestant import EXTRAS
from pareo.lab.ops.counters import ladder

# Packages that some commands need, and what for; each is an extra of pareo.
OPTIONAL = {
    "images": ("pillow", "folders of images, and `pareo predict`"),
    "onnx": ("onnx", "ONNX files"),
    "sklearn": ("scikit-learn", "the estimators `Classifier` and `Regressor`"),
    "tune": ("optuna", "`pareo tune`"),
    "ray": ("ray", "many machines: --on ray"),
}
BROWSERS = (
    "xdg-open", "open", "chromium", "chromium-browser", "google-chrome", "chrome", "firefox",
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for: what it is for, whether it is there, and how to get it."""

    about: str
    name: str
    there: bool
    said: str


def doctor(as_json: options.PrintJson = False) -> None:
    """Say what is missing for the GPU, for peers, counters and reports, and how to install it.

    Nothing of it is needed to train on the CPU. The exit status is 0 whatever is missing.
    """
    found = [*_machine(), *_gpu(), *_peers(), *_counters(), *_browser(), *_optional()]
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=2))
        return
    console = Console()
    console.soft_wrap = not console.is_terminal
    about = ""
    for one in found:
        if one.about != about:
            about = one.about
            console.print(f"\n[bold]{about}[/]", highlight=False)
        mark = "[green]yes[/]" if one.there else "[yellow]no [/]"
        said = escape(f"{one.name}: {one.said}" if one.said else one.name)
        console.print(f"  {mark} {said}", highlight=False)


def _machine() -> list[Finding]:
    here = f"{machine.processor()}, {cores()} cores, {(machine.memory() or 0) / 2**30:.1f} GiB"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    libraries = ", ".join(f"{name} {_version(name)}" for name in ("numpy", "numba"))
    return [
        Finding("This machine", "processor", True, here),
        Finding("This machine", "pareo", True, f"{__version__}, Python {python}, {libraries}"),
    ]


def _gpu() -> list[Finding]:
    cards = machine.gpus()
    about = "The device cuda"
    if not cards:
        said = "no NVIDIA GPU, or no driver: `nvidia-smi` finds none"
        return [Finding(about, "GPU", False, said)]
    names = ", ".join(f"{card.name} (driver {card.driver})" for card in cards)
    reason = why_unavailable("cuda") or ""
    install = " -- pip install 'pareo[cuda]'" if reason else ""
    return [
        Finding(about, "GPU", True, names),
        Finding(about, "libraries", not reason, f"{reason}{install}" or "CuPy and cuDNN"),
    ]


def _peers() -> list[Finding]:
    return [
        _package("Frameworks to race against", name, f"pip install 'pareo[{name}]'")
        for name in EXTRAS
    ]


def _counters() -> list[Finding]:
    found = []
    for place, ladder_here in ladder.LADDERS.items():
        if place == "cuda" and not machine.gpus():
            continue
        for name, why_not in ladder_here:
            reason = why_not()
            found.append(Finding("Hardware counters of pareo ops", name, not reason, reason))
    return found


def _browser() -> list[Finding]:
    there = next((name for name in BROWSERS if shutil.which(name)), None)
    said = there or "none found; a report is one HTML file, which any browser opens offline"
    return [Finding("Reports", "browser", there is not None, said)]


def _optional() -> list[Finding]:
    return [
        _package("Other packages", package, f"pip install 'pareo[{extra}]', for {use}")
        for extra, (package, use) in OPTIONAL.items()
    ]


def _package(about: str, name: str, install: str) -> Finding:
    known = _version(name)
    return Finding(about, name, known is not None, known or install)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
