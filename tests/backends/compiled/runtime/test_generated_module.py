"""Generated modules: the latest are kept, and the memory of the others is freed."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from pareo.backends.compiled.runtime import generated_module as module

SOURCE = """
from pareo.backends.compiled.runtime.jit import jit

@jit
def added(number):
    return number + {more}
"""


def names() -> set[str]:
    return {name for name in sys.modules if name.startswith("pareo_generated_sized_")}


def test_only_the_latest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 3)
    used = module.generated_module(SOURCE.format(more=1000))
    assert used.added(1) == 1001
    functions = []
    for more in range(1001, 1006):
        found = module.generated_module(SOURCE.format(more=more))
        assert found.added(1) == more + 1
        functions.append(weakref.ref(found.added))
        del found
    gc.collect()
    assert len(names()) == 3
    assert [one() is None for one in functions] == [True, True, False, False, False]
    # One that is held works on, for other types too, and is made again if it is asked for.
    assert (used.added(2), used.added(2.5)) == (1002, 1002.5)
    assert module.generated_module(SOURCE.format(more=1000)).added(3) == 1003


def test_a_module_that_is_asked_for_again_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 2)
    first = module.generated_module(SOURCE.format(more=2000))
    for more in (2001, 2002, 2003):
        module.generated_module(SOURCE.format(more=more))
        assert module.generated_module(SOURCE.format(more=2000)) is first


HELD = f"""
from pareo.backends.compiled.runtime import generated_module as module

module.KEPT = 1
held = module.generated_module({SOURCE.format(more=1)!r})
module.generated_module({SOURCE.format(more=2)!r})
print(held.added(2.5))
"""


def test_code_of_a_module_that_was_not_kept_is_compiled_again(tmp_path: Path) -> None:
    cached = {**os.environ, "PAREO_CACHE_DIR": str(tmp_path)}
    for _ in range(2):  # the second finds machine code on disk, whose module cannot be imported
        process = subprocess.run(
            [sys.executable, "-c", HELD], env=cached, capture_output=True, text=True, check=False
        )
        assert process.stdout == "3.5\n", process.stderr
