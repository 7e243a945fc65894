"""NVRTC, NVIDIA's CUDA C++ compiler as a library: it needs neither a GPU nor a driver."""

import ctypes
from collections.abc import Sequence
from functools import cache

from pareo.backends.cuda.runtime import toolkit
from pareo.errors import DeviceError


class CompileError(DeviceError):
    """CUDA source that does not compile; the message holds the compiler's log."""


def cubin(
    text: str, arch: str, names: Sequence[str] = (), options: Sequence[str] = ()
) -> tuple[bytes, dict[str, str]]:
    """Compile CUDA source to machine code for one architecture.

    `names` are template instances such as 'add<float>'. The returned dict maps each of them to its
    mangled name in the machine code.
    """
    library = _library()
    program = ctypes.c_void_p()
    _check(library.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), b"pareo.cu", 0, None, None
    ))  # fmt: skip
    try:
        for name in names:
            _check(library.nvrtcAddNameExpression(program, name.encode()))
        wanted = [f"--gpu-architecture={arch}", "--std=c++17", *includes(), *options]
        given = (ctypes.c_char_p * len(wanted))(*(option.encode() for option in wanted))
        if library.nvrtcCompileProgram(program, len(wanted), given):
            raise CompileError(f"NVRTC could not compile a kernel for {arch}: {_log(program)}")
        found = {}
        for name in names:
            lowered = ctypes.c_char_p()
            _check(library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(lowered)))
            assert lowered.value is not None
            found[name] = lowered.value.decode()
        return _text(program, "CUBIN"), found
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


@cache
def version() -> str:
    """The compiler's version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def missing() -> str | None:
    """Why the compiler is not available, in one sentence; None where it is."""
    try:
        _library()
    except DeviceError as error:
        return str(error)
    return None


@cache
def includes() -> tuple[str, ...]:
    """The compiler options for the directories of CUDA's own headers."""
    folders = (*toolkit.folders("include"), *toolkit.folders("include/cccl"))
    return tuple(f"--include-path={folder}" for folder in folders)


def _library() -> ctypes.CDLL:
    # NVRTC loads its builtins by their bare name, which works once they are in memory.
    return toolkit.library("libnvrtc.so.13", "nvidia-cuda-nvrtc", "libnvrtc-builtins.so.13.*")


def _log(program: ctypes.c_void_p) -> str:
    return _text(program, "ProgramLog").rstrip(b"\0\n").decode(errors="replace")


def _text(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(_library(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(getattr(_library(), f"nvrtcGet{what}")(program, text))
    return text.raw


def _check(status: int) -> None:
    if status:
        describe = _library().nvrtcGetErrorString
        describe.restype = ctypes.c_char_p
        raise CompileError(f"NVRTC failed: {describe(status).decode()}")
