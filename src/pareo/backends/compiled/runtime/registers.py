"""The vector registers of this processor, as LLVM describes it to Numba."""

import platform

from numba.core import config
from numba.core.codegen import get_host_cpu_features

IS_X86 = platform.machine().lower() in ("x86_64", "amd64")


def _has(*names: str) -> bool:
    """Whether the processor that Numba compiles for has all of these features."""
    given = getattr(config, "CPU_FEATURES", None)  # of NUMBA_CPU_FEATURES
    features = (get_host_cpu_features() if given is None else given).split(",")
    return all(f"+{name}" in features for name in names)


HAS_AVX512 = IS_X86 and _has("avx512f", "avx512vl")
LANES = 16 if HAS_AVX512 else 8 if IS_X86 else 4  # floats of a register
COUNT = 16 if IS_X86 and not HAS_AVX512 else 32
