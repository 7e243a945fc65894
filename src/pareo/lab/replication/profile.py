"""The share of `fit` in a profile, by the instrument of `pareo train --profile`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pareo.training.profile import profiled


def share_of_fit(main: Callable[[], None], folder: Path) -> float:
    """The share of the time of `main` that is spent in `fit`, and in what that calls."""
    with profiled(folder / "run") as files:
        main()
    found = json.loads(next(file for file in files if file.suffix == ".json").read_text())
    return share(found, "fit.fit:")


def share(speedscope: dict[str, Any], prefix: str) -> float:
    """The share of a profile whose stacks hold a function with this prefix.

    >>> frames = [{"name": "main"}, {"name": "fit.fit:35"}, {"name": "dot"}]
    >>> stacks = {"samples": [[0], [0, 1], [0, 1, 2]], "weights": [1.0, 2.0, 1.0]}
    >>> share({"shared": {"frames": frames}, "profiles": [stacks]}, "fit.fit:")
    0.75
    """
    frames = speedscope["shared"]["frames"]
    wanted = {at for at, frame in enumerate(frames) if frame["name"].startswith(prefix)}
    (profile,) = speedscope["profiles"]
    pairs = list(zip(profile["samples"], profile["weights"], strict=True))
    whole = sum(seconds for _, seconds in pairs)
    own = sum(seconds for stack, seconds in pairs if wanted & {*stack})
    return own / whole if whole else 0.0
