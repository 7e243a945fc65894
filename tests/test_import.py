"""What `import pareo` costs: nothing heavy is loaded before it is used."""

import subprocess
import sys

import pytest

HEAVY = ("numba", "llvmlite", "cupy", "torch", "jax", "tensorflow", "plotly", "typer", "rich",
         "threadpoolctl", "pareo.lab", "pareo.cli", "pareo.backends.compiled")  # fmt: skip


# What is imported by processes whose time and memory are measured
MEASURED = ("pareo.__main__", "pareo.lab.experiment.runner", "pareo.lab.sweep.runner",
            "pareo.lab.kernels.instruments")  # fmt: skip


def loaded_after(code: str) -> set[str]:
    program = f"import sys; {code}; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_import_loads_nothing_heavy() -> None:
    assert not loaded_after("import pareo") & set(HEAVY)


@pytest.mark.parametrize("module", MEASURED)
def test_contestants_start_with_nothing_heavy_of_ours(module: str) -> None:
    """Their memory is told: 60 MB of it were Numba, which the sweep itself had imported."""
    heavy = set(HEAVY) - {"pareo.lab"} | {"scipy", "pareo.lab.sweep.engine"}
    assert not loaded_after(f"import {module}") & heavy


def test_the_command_line_starts_without_compilers() -> None:
    assert not loaded_after("import pareo.cli") & {"numba", "llvmlite", "torch", "jax", "plotly"}


def test_the_library_never_imports_the_lab() -> None:
    everything = "import pareo; from pareo import Device; Device('compiled').backend"
    assert not {name for name in loaded_after(everything) if name.startswith("pareo.lab")}
