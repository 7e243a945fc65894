"""Every `.cu` file compiles for every architecture; no GPU is needed."""

import pytest

from pareo.backends.cuda import source
from pareo.backends.cuda.nvrtc import CompileError

ARCHITECTURES = ["sm_80", "sm_90", "sm_100"]


@pytest.mark.parametrize(
    ("kind", "arch"), [*(("float", arch) for arch in ARCHITECTURES), ("double", "sm_90")]
)
@pytest.mark.parametrize("name", source.files())
def test_every_file_compiles(name, kind, arch):
    binary = source.compile_to_binary(source.read(name), arch, source.defines(Real=kind))
    assert binary.startswith(b"\x7fELF")


def test_what_the_compiler_refuses_is_told():
    with pytest.raises(CompileError, match='identifier "nonsense" is undefined'):
        source.compile_to_binary("__device__ int x = nonsense;", "sm_90")


def test_template_instances_are_compiled():
    text = "template <typename K> __global__ void fill(K* out) { *out = K(1); }"
    assert b"fill" in source.compile_to_binary(text, "sm_90", names=["fill<double>"])
