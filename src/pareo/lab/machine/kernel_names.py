"""Readable names of CUDA kernels: demangled, without what only a linker needs."""

import ctypes
import re
from functools import cache


def demangled(name: str) -> str:
    """The C++ name of a symbol; the name itself where it is not mangled.

    >>> demangled("_Z10max_pool3fPKfi"), demangled("nvjet_tst_128x64")
    ('max_pool3f(float const*, int)', 'nvjet_tst_128x64')
    """
    if not name.startswith("_Z"):
        return name
    library = _library()
    if library is None:
        return name
    status = ctypes.c_int()
    address = library.__cxa_demangle(name.encode(), None, None, ctypes.byref(status))
    if status.value or not address:
        return name
    try:
        return ctypes.string_at(address).decode()
    finally:
        _c().free(ctypes.c_void_p(address))


@cache
def _library() -> ctypes.CDLL | None:
    """The C++ runtime, which every framework brings along; None where there is none."""
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return None
    library.__cxa_demangle.restype = ctypes.c_void_p
    return library


@cache
def _c() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def readable(name: str) -> str:
    """A kernel's demangled name without its result, parameters and namespaces.

    >>> readable("void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>,"
    ...     " std::array<char*, 3ul> >(int, at::native::AddFunctor<float>, std::array<char*, 3ul>)")
    'vectorized_elementwise_kernel<4, AddFunctor<float>, array<char*, 3ul>>'
    """
    plain = _without_parameters(demangled(name)).removeprefix("void ")
    if plain.startswith("_Z"):
        return _identifiers(plain)
    plain = plain.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    plain = re.sub(r"\b(?:[A-Za-z_]\w*::)+", "", plain)
    return re.sub(r"\s+>", ">", plain).strip()


def _identifiers(symbol: str) -> str:
    """The first long identifiers in a symbol that the C++ runtime cannot demangle.

    >>> _identifiers("_ZN7cutlass6KernelINS_4conv23ImplicitGemmConvolutionIiEEEEv")
    'Kernel<ImplicitGemmConvolution>'
    """
    length = re.compile(r"(?<!\d)(?<!L[a-z])\d+")  # Li64E is the number 64
    found = []
    place = 0
    while number := length.search(symbol, place):
        place = number.end() + int(number.group())
        word = symbol[number.end() : place]
        if re.fullmatch(r"[A-Z]\w*[a-z]\w*", word):
            found.append(word)
        elif not re.fullmatch(r"[A-Za-z_]\w*", word):
            place = number.end()  # a number that is no length
    return f"{found[0]}<{', '.join(found[1:5])}>" if found else symbol


def _without_parameters(name: str) -> str:
    """A function's name up to the list of its parameters, which ends it."""
    if not name.endswith(")"):
        return name
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[place], 0)
        if not depth:
            return name[:place] or name
    return name
