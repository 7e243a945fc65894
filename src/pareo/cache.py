"""The folder where pareo keeps what is dear to make and safe to delete."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$PAREO_CACHE_DIR, or `pareo` in the user's own cache folder."""
    chosen = os.environ.get("PAREO_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pareo"
