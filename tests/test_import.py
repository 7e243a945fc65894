"""What `import pareo` costs: nothing heavy is loaded before it is used."""

import subprocess
import sys

HEAVY = ("numba", "llvmlite", "cupy", "torch", "jax", "tensorflow", "plotly", "typer", "rich",
         "threadpoolctl", "pareo.lab", "pareo.cli", "pareo.backends.compiled")  # fmt: skip


def loaded_after(code: str) -> set[str]:
    program = f"import sys; {code}; print(' '.join(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_import_loads_nothing_heavy() -> None:
    assert not loaded_after("import pareo") & set(HEAVY)


def test_the_library_never_imports_the_lab() -> None:
    everything = "import pareo; from pareo import Device; Device('compiled').backend"
    assert not {name for name in loaded_after(everything) if name.startswith("pareo.lab")}
