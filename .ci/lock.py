"""Write `.ci/requirements.lock`: the SHA-256 of every wheel that `make test` installs.

    .venv/bin/python .ci/lock.py

Versions are those of `constraints.txt`. The wheels are those for x86-64 and aarch64, on Python 3.11
and 3.12; pip asks the package index for them and downloads none. PyTorch is left out: its build
without CUDA has the same version as the one on PyPI, and comes from an index of PyTorch's own or
from a directory, so one digest cannot stand for all.
"""

import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / ".ci" / "requirements.lock"
SECTIONS = {"pareo", "dev", "images and sklearn", "onnx", "tune", "docs", "torch", "jax"}
WITHOUT = {"torch"}
MACHINES, PYTHONS = ("x86_64", "aarch64"), ("3.11", "3.12")
GLIBC = range(36, 4, -1)  # 2.36 to 2.5, of which wheels name one or several
HEAD = "# Written by .ci/lock.py from constraints.txt. Which wheels: see there.\n"


def pins() -> list[str]:
    """What `make test` installs, as NAME==VERSION."""
    section, found = "", []
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line.startswith("#"):
            section = line.removeprefix("#").strip()
        elif line and section in SECTIONS and line.partition("==")[0] not in WITHOUT:
            found.append(line)
    return found


def digests(wanted: list[str], machine: str, python: str) -> dict[str, str]:
    """By requirement, the digest of the wheel for a machine and a Python."""
    old = [f"manylinux{year}_{machine}" for year in ("2014", "2010", "1")]
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC] + old
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        subprocess.run(
            [
                sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps",
                "--ignore-installed", "--only-binary=:all:", "--target", folder,
                "--python-version", python, *(f"--platform={one}" for one in platforms),
                "--report", str(report), *wanted,
            ],
            check=True,
        )  # fmt: skip
        installed = json.loads(report.read_text())["install"]
    found = {}
    for one in installed:
        name = one["metadata"]["name"].lower().replace("_", "-").replace(".", "-")
        archive = one["download_info"]["archive_info"]
        found[f"{name}=={one['metadata']['version']}"] = archive["hashes"]["sha256"]
    return found


def main() -> None:
    """Ask for all wheels, and write the file."""
    wanted = pins()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda how: digests(wanted, *how), product(MACHINES, PYTHONS)))
    lines = [HEAD]
    for pin in sorted(wanted):
        every = sorted({answer[pin] for answer in answers})
        lines.append(" \\\n    ".join([pin, *(f"--hash=sha256:{one}" for one in every)]) + "\n")
    LOCK.write_text("".join(lines))


if __name__ == "__main__":
    main()
