"""CUDA source texts: read from `kernels/`, compiled once, kept on disk as machine code."""

import hashlib
import json
import re
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pareo.backends.cuda.runtime import nvrtc
from pareo.cache import cache_folder, discard, read_checked, write, write_checked
from pareo.errors import DeviceError

HERE = Path(__file__).parent.parent  # backends/cuda
INCLUDES = HERE / "kernels", HERE  # where a text's `#include "..."` is looked for, in this order
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class Module:
    """Machine code on the card; `function` gives a kernel by the name it was compiled under."""

    def __init__(self, raw: Any, names: dict[str, str]) -> None:
        self.raw = raw
        self.names = names

    def function(self, name: str, shared: int = 0) -> Any:
        """A `cupy.RawKernel`; `shared` is the dynamic shared memory that its launches may ask."""
        kernel = self.raw.get_function(self.names.get(name, name))
        if shared > 48 * 1024:  # more than every card gives without being asked
            kernel.max_dynamic_shared_size_bytes = shared
        return kernel


def read(name: str) -> str:
    """The text of a file, by its path from `backends/cuda`: 'kernels/elementwise.cu'."""
    return (HERE / name).read_text()


def module(
    text: str,
    names: Sequence[str] = (),
    cooperative: bool = False,
    options: Sequence[str] = (),
    arch: str | None = None,
) -> Module:
    """A CUDA text, compiled for the card in use (or `arch`, 'sm_90a' say) and loaded onto it.

    Args:
        names: the template instances that it must hold, such as 'add<float>'.
        cooperative: whether its kernels are launched with all blocks on the card at once.
        options: for the compiler, '--use_fast_math' say. The folder `kernels/`, `backends/cuda`
            and CUDA's own headers are on its include path already.
    """
    import cupy

    path, lowered = _compiled(text, arch or this_arch(), tuple(names), tuple(options))
    raw = cupy.RawModule(path=str(path), enable_cooperative_groups=cooperative)
    return Module(raw, lowered)


@cache
def load(name: str, **macros: str) -> Module:
    """A `.cu` file on the card in use, with macros: load("kernels/lrn.cu", Real="float")."""
    return module(read(name), options=defines(**macros))


def defines(**macros: str) -> tuple[str, ...]:
    """Macros as options of the compiler.

    >>> defines(Real="float")
    ('--define-macro=Real=float',)
    """
    return tuple(f"--define-macro={name}={value}" for name, value in macros.items())


def compile_to_binary(
    text: str, arch: str, options: Sequence[str] = (), names: Sequence[str] = ()
) -> bytes:
    """A CUDA text as machine code for 'sm_80', 'sm_90' and so on; needs no GPU."""
    return nvrtc.cubin(text, arch, names, (*_include_paths(), *options))[0]


def this_arch() -> str:
    """The architecture of the card in use, as the compiler names it."""
    import cupy

    return f"sm_{cupy.cuda.Device().compute_capability}"


def files() -> list[str]:
    """Every `.cu` file of this backend, by its path from `backends/cuda`.

    >>> "kernels/dropout.cu" in files()
    True
    """
    return sorted(str(path.relative_to(HERE)) for path in HERE.rglob("*.cu"))


def _compiled(
    text: str, arch: str, names: tuple[str, ...], options: tuple[str, ...]
) -> tuple[Path, dict[str, str]]:
    """The file of the machine code and the functions' names in it, compiled if it is not there."""
    told = json.dumps([text, arch, names, options, nvrtc.version(), included(text)])
    stem = hashlib.sha256(told.encode()).hexdigest()[:24]
    code = "cuda", f"{stem}.cubin"
    about = "cuda", f"{stem}.names"  # and what the code's own file has no place for, its SHA-256
    known = read_checked(*about)
    if known is not None:
        described = json.loads(known)
        path = cache_folder().joinpath(*code)
        if path.exists():
            if hashlib.sha256(path.read_bytes()).hexdigest() == described["sha256"]:
                return path, described["names"]
            discard(path)
    binary, found = nvrtc.cubin(text, arch, names, (*_include_paths(), *options))
    digest = hashlib.sha256(binary).hexdigest()
    written = write(binary, *code)
    if written is None:
        return _for_this_process(f"{stem}.cubin", binary), found
    write_checked(json.dumps({"names": found, "sha256": digest}).encode(), *about)
    return written, found


def _for_this_process(name: str, binary: bytes) -> Path:
    """A file for as long as this process lives: CuPy loads machine code from files."""
    try:
        path = Path(_temporary().name) / name
        path.write_bytes(binary)
    except OSError as error:
        raise DeviceError(
            f"CUDA's machine code needs a folder that can be written, but {error}; "
            "set PAREO_CACHE_DIR to one"
        ) from error
    return path


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pareo-kernels-")


def _include_paths() -> tuple[str, ...]:
    return tuple(f"--include-path={folder}" for folder in INCLUDES)


def included(text: str) -> dict[str, str]:
    """All of our headers that a text includes, and those that they include, by their names.

    >>> list(included(read("nhwc/pool.cu")))
    ['nhwc/sums.cuh', 'nhwc/vector.cuh']
    """
    found: dict[str, str] = {}
    texts = [text]
    while texts:
        for name in INCLUDE.findall(texts.pop()):
            paths = [folder / name for folder in INCLUDES if (folder / name).exists()]
            if paths and name not in found:
                found[name] = paths[0].read_text()
                texts.append(found[name])
    return found
