"""CUDA source files: read, compiled once, and cached on disk as machine code."""

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
INCLUDES = HERE / "kernels", HERE  # the search path of `#include "..."`, in this order
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


class Module:
    """Machine code that is loaded on the GPU."""

    def __init__(self, raw: Any, names: dict[str, str]) -> None:
        self.raw = raw
        self.names = names

    def function(self, name: str, shared: int = 0) -> Any:
        """The `cupy.RawKernel` compiled under this name.

        `shared` is the largest dynamic shared memory, in bytes, that its launches may request.
        """
        kernel = self.raw.get_function(self.names.get(name, name))
        if shared > 40 * 1024:  # the limit without opting in is 48 KiB, static memory included
            kernel.max_dynamic_shared_size_bytes = shared
        return kernel


def read(name: str) -> str:
    """The text of a file, by its path from `backends/cuda`, such as 'kernels/elementwise.cu'."""
    return (HERE / name).read_text()


def module(
    text: str,
    names: Sequence[str] = (),
    cooperative: bool = False,
    options: Sequence[str] = (),
    arch: str | None = None,
) -> Module:
    """Compile CUDA source for the current GPU and load it.

    Args:
        text: the source.
        names: the template instances to compile, such as 'add<float>'.
        cooperative: whether its kernels are launched cooperatively, with all blocks resident.
        options: compiler options such as '--use_fast_math'. `backends/cuda/kernels`,
            `backends/cuda` and CUDA's own headers are always on the include path.
        arch: the architecture, such as 'sm_90a'; that of the current GPU by default.
    """
    import cupy

    path, lowered = _compiled(text, arch or this_arch(), tuple(names), tuple(options))
    raw = cupy.RawModule(path=str(path), enable_cooperative_groups=cooperative)
    return Module(raw, lowered)


@cache
def load(name: str, **macros: str) -> Module:
    """A `.cu` file, compiled with macros and loaded: load("kernels/lrn.cu", Real="float")."""
    return module(read(name), options=defines(**macros))


def defines(**macros: str) -> tuple[str, ...]:
    """Macro definitions as compiler options.

    >>> defines(Real="float")
    ('--define-macro=Real=float',)
    """
    return tuple(f"--define-macro={name}={value}" for name, value in macros.items())


def compile_to_binary(
    text: str, arch: str, options: Sequence[str] = (), names: Sequence[str] = ()
) -> bytes:
    """Compile CUDA source for an architecture such as 'sm_90'; needs no GPU."""
    return nvrtc.cubin(text, arch, names, (*_include_paths(), *options))[0]


def this_arch() -> str:
    """The architecture of the current GPU, as the compiler names it."""
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
    """The file with the machine code, and the mangled names in it; compiled if not cached."""
    key = json.dumps([text, arch, names, options, nvrtc.version(), included(text)])
    stem = hashlib.sha256(key.encode()).hexdigest()[:24]
    code = "cuda", f"{stem}.cubin"
    about = "cuda", f"{stem}.names"  # with the SHA-256 of the machine code
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
    """A temporary file for this process: CuPy loads machine code from files only."""
    try:
        path = Path(_temporary().name) / name
        path.write_bytes(binary)
    except OSError as error:
        raise DeviceError(
            f"CUDA's machine code needs a writable directory, but {error}; "
            "set PAREO_CACHE_DIR to one"
        ) from error
    return path


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="pareo-kernels-")


def _include_paths() -> tuple[str, ...]:
    return tuple(f"--include-path={folder}" for folder in INCLUDES)


def included(text: str) -> dict[str, str]:
    """All of our headers that a source includes, directly or indirectly: texts by name.

    >>> list(included(read("nhwc/kernels/pool.cu")))
    ['nhwc/kernels/sums.cuh', 'nhwc/kernels/vector.cuh']
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
