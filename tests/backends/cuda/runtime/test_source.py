"""Every `.cu` file compiles; no GPU is needed."""

import pytest
from devices import ARCHITECTURES

from pareo.backends.cuda.runtime import source
from pareo.backends.cuda.runtime.nvrtc import CompileError


@pytest.mark.parametrize(
    ("kind", "arch"), [*(("float", arch) for arch in ARCHITECTURES), ("double", "sm_90")]
)
@pytest.mark.parametrize("name", source.files())
def test_every_file_compiles(name, kind, arch):
    binary = source.compile_to_binary(source.read(name), arch, source.defines(Real=kind))
    assert binary.startswith(b"\x7fELF")


def test_a_row_of_numbers_is_picked_by_a_kernel_of_the_batches():
    """Nothing launches it yet: the numbers of an optimiser become arguments of a step."""
    text = source.read("kernels/batches.cu")
    binary = source.compile_to_binary(text, "sm_90", source.defines(Real="float"))
    assert b"pick_numbers" in binary


def test_compile_errors_are_reported():
    with pytest.raises(CompileError, match='identifier "nonsense" is undefined'):
        source.compile_to_binary("__device__ int x = nonsense;", "sm_90")


@pytest.mark.smoke
def test_template_instances_are_compiled():
    text = "template <typename K> __global__ void fill(K* out) { *out = K(1); }"
    assert b"fill" in source.compile_to_binary(text, "sm_90", names=["fill<double>"])


def test_every_header_of_ours_is_found_by_its_whole_name():
    """A header found only beside the including file would compile, but changes go unnoticed."""
    texts = [path.read_text() for path in source.HERE.rglob("*.cu*")]
    names = {name for text in texts for name in source.INCLUDE.findall(text)}
    assert names
    for name in names:
        assert any((folder / name).exists() for folder in source.INCLUDES), name


def test_a_source_is_compiled_again_when_an_indirect_header_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("PAREO_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(source, "INCLUDES", (tmp_path,))
    near, far, other = (tmp_path / f"{name}.cuh" for name in ("near", "far", "other"))
    near.write_text('#include "far.cuh"\n')
    far.write_text("constexpr int NUMBER = 1;\n")
    text = '#include "near.cuh"\n__global__ void fill(int* out) { *out = NUMBER; }\n'
    first, _ = source._compiled(text, "sm_90", (), ())
    other.write_text("constexpr int OTHER = 1;\n")
    assert source._compiled(text, "sm_90", (), ())[0] == first
    far.write_text("constexpr int NUMBER = 2;\n")
    again, _ = source._compiled(text, "sm_90", (), ())
    assert again != first
    assert again.read_bytes() != first.read_bytes()


@pytest.mark.parametrize("damage", [b"", b"\x7fELF and no more"])
def test_damaged_machine_code_is_compiled_again(damage, tmp_path, monkeypatch):
    monkeypatch.setenv("PAREO_CACHE_DIR", str(tmp_path))
    text = "template <typename K> __global__ void fill(K* out) { *out = K(1); }"
    what = text, "sm_90", ("fill<float>",), ()
    path, names = source._compiled(*what)
    whole = path.read_bytes()
    for file in list((tmp_path / "cuda").iterdir()):
        file.write_bytes(damage)
        assert source._compiled(*what) == (path, names)
        assert path.read_bytes() == whole


def test_without_a_writable_directory_machine_code_is_temporary(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAREO_CACHE_DIR", str(tmp_path / "file"))
    path, _ = source._compiled("__global__ void fill(int* out) { *out = 1; }", "sm_90", (), ())
    assert path.read_bytes().startswith(b"\x7fELF")
