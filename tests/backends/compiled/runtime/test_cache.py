"""Machine code on disk, in real processes: the same bits from it, and no damage that stays."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pareo import cache

# Compiled by itself and again inside its caller, this function's sums come in another order.
NESTED = """
import numpy as np
from pareo.backends.compiled.runtime.jit import jit

@jit
def convolved(out, x, w):
    for i in range(out.size):
        s = out.dtype.type(0)
        for j in range(5):
            s += w[j] * x[i + j]
        for j in range(7):
            s -= w[j] * x[i] * x[i + j]
        for j in range(3):
            s += w[j] * x[i] * x[i + j] * w[0]
        out[i] += s
    for i in range(out.size):
        s = out.dtype.type(0)
        for j in range(6):
            s += w[j] * x[i + j] + w[j + 1] * x[i]
        out[i] += s * w[0] * w[1]

@jit
def caller(a, b, w):
    convolved(a, b, w)
    convolved(a[1:], b, w)
    for i in range(3):
        convolved(a, b[i:], w)
        convolved(a[i:], b, w)

random = np.random.default_rng(0)
a, b, w = (random.random(size, dtype=np.float32) for size in (200, 220, 7))
if ALONE:
    convolved(a.copy(), b, w)
caller(a, b, w)
print(a.tobytes().hex())
"""
SMALL = """
from pareo.backends.compiled.runtime.generated_module import generated_module
module = generated_module('''
from pareo.backends.compiled.runtime.jit import jit

@jit
def twice(number):
    return 2 * number
''')
print(module.twice(21))
"""
TRAINED = """
import hashlib, sys
from pareo import Device
from pareo.data import load
from pareo.nn import networks
from pareo.training import fit

def bits(epochs, **more):
    # 50 images: the last step of an epoch is of another size.
    data, place = load("synthetic:1x28x28:10:60"), Device("compiled", threads=1)
    network = networks.papers_cnn()
    run = fit(
        network, data, epochs=epochs, batch_size=12, device=place, seed=1, **more
    )
    digest = hashlib.sha256(repr(run.history.column("loss")).encode())
    for array in run.parameters.values():
        digest.update(array.tobytes())
    return digest.hexdigest()

if COLD:
    print(bits(1, checkpoint=sys.argv[0] + ".run"))
else:
    print(bits(1), bits(2, resume=sys.argv[0] + ".run"), bits(2))
"""
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda content: b"",
    "halved": lambda content: content[: len(content) // 2],
    "altered": lambda content: content[:-9] + bytes([content[-9] ^ 1]) + content[-8:],
    "replaced": lambda content: b"\0" * len(content),
}


def run(program: str, tmp_path: Path, cache: Path | str) -> subprocess.CompletedProcess[str]:
    file = tmp_path / "program.py"
    file.write_text(program)
    environment = {**os.environ, "PAREO_CACHE_DIR": str(cache)}
    environment.pop("PAREO_VERBOSE", None)
    return subprocess.run(
        [sys.executable, str(file)], env=environment, capture_output=True, text=True, check=True
    )


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_the_process_that_compiles_computes_what_later_ones_do(tmp_path: Path) -> None:
    """Whatever else a process has loaded: a caller runs its own copy of what it calls."""
    alone, together = (NESTED.replace("ALONE", str(value)) for value in (True, False))
    cold = run(together, tmp_path, tmp_path / "cache")
    assert files(tmp_path / "cache")
    assert run(together, tmp_path, tmp_path / "cache").stdout == cold.stdout
    assert run(alone, tmp_path, tmp_path / "other").stdout == cold.stdout


@pytest.mark.slow
def test_training_that_compiles_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    cold = run(TRAINED.replace("COLD", "True"), tmp_path, tmp_path / "cache")
    warm = run(TRAINED.replace("COLD", "False"), tmp_path, tmp_path / "cache")
    first, resumed, whole = warm.stdout.split()
    assert cold.stdout.split() == [first]
    assert resumed == whole


@pytest.mark.slow
def test_a_damaged_cache_is_mended(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert run(SMALL, tmp_path, folder).stderr == ""
    whole = files(folder)
    assert {path.suffix for path in whole} == {".py", ".nbc"}
    for damage in DAMAGES:
        for path in files(folder):
            path.write_bytes(DAMAGES[damage](path.read_bytes()))
        done = run(SMALL, tmp_path, folder)
        assert done.stdout == "42\n", damage
        assert done.stderr.count("\n") == 1, damage
        assert "is damaged and will be made again" in done.stderr
    last = run(SMALL, tmp_path, folder)
    assert (last.stdout, last.stderr) == ("42\n", "")
    assert files(folder) == whole


def test_without_a_folder_to_write_code_is_compiled_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "cache", Path("/proc/nowhere")):
        done = run(SMALL, tmp_path, path)
        assert done.stdout == "42\n"
        assert done.stderr.count("\n") == 1
        assert "the cache directory cannot be written, so nothing is kept" in done.stderr
    beside = Path(cache.__file__).parent  # where Numba would write, for want of another folder
    assert list(beside.rglob("*.nb?")) == []


SMALL_DISK = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))
"""


def test_a_disk_that_is_full_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    done = run(SMALL_DISK + SMALL, tmp_path, tmp_path / "cache")
    assert done.stdout == "42\n"
    assert done.stderr.count("\n") == 1
    assert [path.suffix for path in files(tmp_path / "cache")] == [".py"]


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    for name in ("PAREO_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")  # as pathlib has it

    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setattr(cache, "_reported", set())
    assert cache.read_checked("compiled", "nothing") is None
    for _ in range(2):
        cache.write_checked(b"content", "compiled", "something")
    assert capsys.readouterr().err == (
        "pareo: the cache directory cannot be written, so nothing is kept for next time: this user "
        "has no home directory; set PAREO_CACHE_DIR to a writable directory\n"
    )
