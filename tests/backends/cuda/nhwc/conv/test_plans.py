"""Plans that are remembered on disk, compilation of kernels, and how filters are cut."""

import json
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from devices import ARCHITECTURES, needs_gpu

from pareo import op
from pareo.backends.cuda.nhwc.conv import (
    cudnn,
    depthwise,
    few_channels,
    filter_gradient,
    filter_gradient_strips,
    in_parts,
    plans,
    product,
    product_sums,
)
from pareo.backends.cuda.nhwc.conv.filter_gradient import ARCH, CHUNK, ROWS, WIDTHS
from pareo.backends.cuda.nhwc.conv.filter_gradient_strips import PITCH
from pareo.backends.cuda.nhwc.conv.problem import BIAS, FILTERS, IMAGES, RESULT, Convolution
from pareo.backends.cuda.nhwc.kernels import launch
from pareo.backends.cuda.runtime import source

ENTRY = {"plan": "eng51_k2=1", "seconds": 0.001}


CONV = {
    "nhwc/conv/filter_gradient.cu": filter_gradient.INSTANCES,
    "nhwc/conv/filter_gradient_strips.cu": filter_gradient_strips.INSTANCES,
    "nhwc/conv/few_channels.cu": [],
    "nhwc/conv/product_sums.cu": product_sums.INSTANCES,
}
PLAIN = {"nhwc/conv/depthwise.cu": depthwise.instances()}
INSTANCES = (
    CONV | PLAIN | {f"nhwc/kernels/{name}.cu": own for name, own in launch.INSTANCES.items()}
)


def test_every_file_of_nhwc_is_compiled():
    assert set(INSTANCES) == {name for name in source.files() if name.startswith("nhwc/")}


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("file", INSTANCES)
def test_every_file_compiles(file, arch):
    binary = source.compile_to_binary(source.read(file), arch, names=INSTANCES[file][::6])
    assert binary.startswith(b"\x7fELF")


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("file", INSTANCES)
def test_every_instance_compiles(file, arch):
    binary = source.compile_to_binary(source.read(file), arch, names=INSTANCES[file])
    assert binary.startswith(b"\x7fELF")


@pytest.mark.parametrize("file", CONV)
def test_warpgroup_products_compile_for_the_gpu_that_has_them(file):
    text, names = source.read(file), CONV[file]
    plain, own = (source.compile_to_binary(text, a, names=names) for a in ("sm_90", ARCH))
    assert len(own) > 2 * len(plain)  # elsewhere the kernels are empty


def test_plans_come_back_as_they_were_written(tmp_path, monkeypatch):
    monkeypatch.setenv("PAREO_CACHE_DIR", str(tmp_path))
    plans.write_plans(("cuda", "plans.json"), {"a": ENTRY})
    assert plans.read_plans(tmp_path / "cuda" / "plans.json") == {"a": ENTRY}


def test_without_a_writable_directory_plans_are_timed_again(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAREO_CACHE_DIR", str(tmp_path / "file"))
    plans.write_plans(("cuda", "never written.json"), {"a": ENTRY})
    assert plans.read_once(("cuda", "never written.json")) == {}


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\0\1", '{"a": 1}', '{"a": {"plan": 1}}'])
def test_a_damaged_file_counts_as_empty(tmp_path, text):
    (tmp_path / "plans.json").write_text(text)
    assert plans.read_plans(tmp_path / "plans.json") == {}


def test_a_missing_file_counts_as_empty(tmp_path):
    assert plans.read_plans(tmp_path / "plans.json") == {}


def test_one_bad_entry_does_not_spoil_the_others(tmp_path):
    (tmp_path / "plans.json").write_text(json.dumps({"a": ENTRY, "b": "nonsense"}))
    assert plans.read_plans(tmp_path / "plans.json") == {"a": ENTRY}


class NoPlans:
    """Stands for the graph of a cuDNN that lists no plans."""

    names: ClassVar[list[str]] = []


def test_a_remembered_name_that_no_plan_has_is_ignored():
    """As of another cuDNN, or of an earlier pareo: the convolution is timed again."""
    assert plans._named("eng51_k2=1", LAYERS[0], NoPlans()) is None
    assert plans._named("pareo of old", LAYERS[0], NoPlans()) is None


@pytest.mark.smoke
def test_names_of_our_own_plans_on_disk_do_not_change():
    """Renaming one would have every convolution that uses it timed again."""
    known = {"pareo filters", "pareo strips", "pareo narrow", "pareo turned"}
    known |= {"pareo depthwise", "pareo product", "pareo reversed", "pareo in parts"}
    assert set(plans.OWN_PLANS) == known


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_a_product_reads_filters_that_are_padded_bytes(precision):
    """As another plan leaves them, which flips filters into its work array first."""
    one = Convolution(
        "result", (2, 3, 4, 4), (5, 3, 1, 1), (2, 5, 4, 4), (1, 1), (0,) * 4, (1, 1), precision
    )
    kind = np.uint16 if precision == "bfloat16" else np.float32
    filters = np.arange(15).astype(kind)
    padded = np.concatenate([filters.view(np.uint8), np.full(512 - filters.nbytes, 7, np.uint8)])
    found = product.plan(one)._matrix({FILTERS: padded}, FILTERS)
    np.testing.assert_array_equal(found, filters.reshape(5, 3))


def gradient(channels, side, filters, window, padding, stride=1, precision="tf32"):
    out = (side + 2 * padding - window) // stride + 1
    return Convolution(
        "filters", (128, channels, side, side), (filters, channels, window, window),
        (128, filters, out, out), (stride, stride), (padding,) * 4, (1, 1), precision,
    )  # fmt: skip


LAYERS = [
    gradient(48, 57, 64, 3, 0), gradient(64, 27, 192, 5, 2), gradient(192, 13, 384, 3, 1),
    gradient(12, 115, 64, 4, 0), gradient(64, 56, 192, 3, 1), gradient(112, 14, 224, 3, 1),
    gradient(32, 28, 96, 5, 2), gradient(192, 7, 384, 3, 1),
]  # fmt: skip


@pytest.mark.smoke
def test_quick_division_is_exact_for_every_position():
    for layer in LAYERS:
        rows, columns = filter_gradient_strips.plan(layer, "90", 132).grid
        plane = rows * columns
        for number, most in ((plane, 512 * plane + 4096), (columns, plane)):
            quick = (1 << 40) // number + 1
            steps = range(number - 1, most, number)  # the last one before each change
            assert all(q * quick >> 40 == q // number for q in (*steps, *(s + 1 for s in steps)))


def shared_out(split):
    """Every (tile, chunk) pair has a block, and no tile more parts than fit the workspace."""
    assert split.per_block * split.blocks >= split.tiles * split.chunks
    for tile in range(split.tiles):
        ends = tile * split.chunks, (tile + 1) * split.chunks - 1
        first, last = (pair // split.per_block for pair in ends)
        assert last - first < split.parts
        assert last < split.blocks


@pytest.mark.parametrize("blocks", [1, 7, 132])
@pytest.mark.parametrize("layer", [*LAYERS, gradient(64, 56, 64, 1, 0)], ids=str)
def test_every_tile_and_chunk_is_computed_once(layer, blocks):
    cut = filter_gradient.plan(layer, "90", blocks)
    assert cut.filter_tiles * cut.width >= layer.filters[0]
    assert -(-cut.rows // ROWS) * ROWS * cut.filter_tiles == cut.tiles * ROWS
    assert cut.chunks * CHUNK >= cut.positions
    shared_out(cut.split)
    assert cut.shared <= 226 << 10  # the limit of a block, less the barriers
    assert cut.width in WIDTHS


@pytest.mark.parametrize("blocks", [1, 7, 132])
@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_a_strip_covers_all_taps_channels_and_positions(layer, blocks):
    cut = filter_gradient_strips.plan(layer, "90", blocks)
    filters, channels, kh, kw = layer.filters
    assert cut.filter_tiles * 64 >= filters
    assert cut.slice % 4 == 0
    assert cut.taps * cut.slice <= cut.groups * cut.times * 64
    assert cut.tiles >= cut.filter_tiles * channels / cut.slice * kh * kw / cut.taps
    assert cut.slice <= PITCH
    assert 32 * cut.ring >= 32 * cut.depth + 32
    assert cut.shared <= 226 << 10  # the limit of a block, less the barriers
    shared_out(cut.split)


def forward(channels, side, filters, window, padding, stride=1, precision="tf32", epilogue="bias"):
    out = (side + 2 * padding - window) // stride + 1
    return Convolution(
        "result", (128, channels, side, side), (filters, channels, window, window),
        (128, filters, out, out), (stride, stride), (padding,) * 4, (1, 1), precision, epilogue,
    )  # fmt: skip


@pytest.mark.parametrize(
    "layer", [forward(48, 57, 64, 3, 0), forward(12, 115, 64, 4, 0), forward(16, 14, 48, 5, 2)],
    ids=str,
)  # fmt: skip
def test_first_layers_have_room_in_shared_memory(layer):
    found = few_channels.plan(layer, "90", 132)
    _, channels, kh, kw = layer.filters
    assert found.chunks * 32 >= kh * kw * channels
    assert sorted(found.pitch * row % 32 for row in range(8)) == list(range(0, 32, 4))
    assert found.pitch >= channels
    assert 32 * found.ring > 192 + (kh - 1) * layer.images[3] + kw
    assert found.shared <= 226 << 10


@pytest.mark.parametrize(
    "layer",
    [
        forward(12, 115, 64, 4, 0, precision="bfloat16"),
        forward(12, 115, 64, 4, 0, epilogue=""),
        forward(12, 115, 64, 4, 0, stride=2),
        forward(12, 115, 128, 4, 0),
        forward(6, 28, 64, 3, 1),
        forward(256, 28, 64, 3, 1),
    ],
    ids=str,
)
def test_other_layers_are_not_supported(layer):
    assert few_channels.plan(layer, "90", 132) is None


@pytest.mark.parametrize("padding", [(0, 0, 0, 0), (1, 1, 1, 1), (2, 0, 1, 3), (0, 2, 2, 0)])
@pytest.mark.parametrize(("kh", "kw"), [(2, 2), (3, 3), (1, 4), (5, 2)])
def test_rows_and_images_may_share_their_zeros(kh, kw, padding):
    """The sums of filter_gradient_strips.cu in NumPy: zeros between rows, taps as distances."""
    random = np.random.default_rng(0)
    x, top, left = random.standard_normal((3, 4, 6, 5)), *padding[:2]
    size = [n + padding[i] + padding[i + 2] - k + 1 for i, (n, k) in enumerate([(6, kh), (5, kw)])]
    g = random.standard_normal((3, 8, *size))
    shapes = x.shape, (8, 4, kh, kw), g.shape
    cut = filter_gradient_strips.plan(
        Convolution("filters", *shapes, (1, 1), padding, (1, 1), "tf32"), "90", 5
    )
    rows, columns = cut.grid
    pixels, results = np.zeros((3, 4, rows, columns)), np.zeros((3, 8, rows, columns))
    pixels[:, :, :6, :5] = x
    results[:, :, : size[0], : size[1]] = g
    pixels, results = (a.swapaxes(0, 1).reshape(a.shape[1], -1) for a in (pixels, results))
    far = (kh + max(padding)) * (columns + kw)
    pixels = np.pad(pixels, ((0, 0), (far, far)))
    found = np.empty((8, 4, kh, kw))
    for u, v in np.ndindex(kh, kw):
        start = far + (u - top) * columns + v - left
        found[:, :, u, v] = results @ pixels[:, start : start + results.shape[1]].T
    wanted = op.conv_weight_gradient(
        x, g, size=(kh, kw), stride=(1, 1), padding=padding, dilation=(1, 1)
    )
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_warpgroup_products_are_for_one_architecture_and_precision():
    assert filter_gradient.plan(LAYERS[0], "100", 148) is None
    assert filter_gradient_strips.plan(LAYERS[0], "100", 148) is None
    assert filter_gradient_strips.plan(gradient(64, 27, 64, 3, 1, stride=2), "90", 132) is None
    assert filter_gradient_strips.plan(gradient(64, 28, 64, 1, 0), "90", 132) is None
    assert filter_gradient_strips.plan(gradient(6, 28, 64, 3, 1), "90", 132) is None
    assert (
        filter_gradient_strips.plan(gradient(64, 27, 64, 3, 1, precision="float32"), "90", 132)
        is None
    )
    assert (
        filter_gradient_strips.plan(gradient(64, 27, 64, 3, 1, precision="bfloat16"), "90", 132)
        is None
    )
    assert filter_gradient.plan(gradient(64, 27, 64, 3, 1, precision="bfloat16"), "90", 132) is None
    assert filter_gradient.plan(gradient(6, 28, 64, 3, 1), "90", 132) is None
    assert filter_gradient.plan(gradient(64, 27, 64, 3, 1, stride=2), "90", 132) is not None


@pytest.mark.gpu
@needs_gpu
def test_a_choice_made_for_lack_of_memory_is_not_remembered(tmp_path, monkeypatch):
    import cupy

    if why := cudnn.missing():
        pytest.skip(why)
    monkeypatch.setenv("PAREO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(plans, "_cache_place", lambda: ("plans.json",))  # and read from there, once
    layer, pool = gradient(96, 27, 256, 5, 2), cupy.cuda.MemoryPool()
    arrays = 4 * sum(layer.size(name) for name in layer.arrays)
    pool.set_limit(arrays + (4 << 20))
    plans._best.cache_clear()
    with cupy.cuda.using_allocator(pool.malloc):
        assert plans.best(layer).workspace <= 4 << 20
    assert plans.remembered() == {}
    plans._best.cache_clear()
    found = plans.best(layer)
    plans._best.cache_clear()
    assert plans.remembered() == plans.read_plans(tmp_path / "plans.json") != {}
    assert plans.remembered()[str(layer)]["plan"] == found.name


class Sleeping:
    """A plan that keeps the GPU busy for some cycles, and counts its runs."""

    workspace = 0

    def __init__(self, name: str, cycles: int) -> None:
        self.name, self.cycles, self.runs = name, cycles, 0

    def run(self, arrays, workspace) -> None:
        import cupy

        self.runs += 1
        wait = 'extern "C" __global__ void wait(long n) { n += clock64(); while (clock64() < n); }'
        cupy.RawKernel(wait, "wait")((1,), (1,), (np.int64(self.cycles),))


@pytest.mark.gpu
@needs_gpu
def test_a_plan_far_behind_the_fastest_is_given_up_after_two_runs():
    quick, slow, close = (
        Sleeping(name, cycles)
        for name, cycles in [("quick", 2_000_000), ("slow", 20_000_000), ("close", 2_500_000)]
    )
    times, all_tried = plans._times([quick, slow, close], gradient(4, 8, 4, 3, 1))
    assert all_tried
    assert [plan for _, plan in times] == [quick, close]
    assert slow.runs == 2


@pytest.mark.gpu
@needs_gpu
def test_a_batch_in_parts_is_chosen_and_remembered(tmp_path, monkeypatch):
    """Where it is the fastest, here because the whole has no other plan."""
    if why := cudnn.missing():
        pytest.skip(why)
    monkeypatch.setenv("PAREO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(plans, "_cache_place", lambda: ("plans.json",))
    whole, candidates = gradient(16, 9, 8, 3, 1, precision="float32"), plans._candidates

    def of_halves_only(convolution, graph, own):
        return () if convolution == whole else candidates(convolution, graph, own)

    monkeypatch.setattr(plans, "_candidates", of_halves_only)
    for _ in range(2):  # timed, then read from the file
        plans._best.cache_clear()
        plans.read_once.cache_clear()
        found = plans.best(whole)
        assert isinstance(found, in_parts.InParts)
        assert plans.read_plans(tmp_path / "plans.json")[str(whole)]["plan"] == in_parts.NAME
    plans._best.cache_clear()
    plans.read_once.cache_clear()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("computes", ["result", "images", "filters"])
def test_a_batch_in_parts_gives_what_the_whole_gives(computes, times):
    import cupy

    if why := cudnn.missing():
        pytest.skip(why)
    epilogue = "bias" if computes == "result" else ""
    one = Convolution(
        computes, (128, 8, 13, 11), (24, 8, 3, 3), (128, 24, 7, 6), (2, 2), (1, 1, 1, 1), (1, 1),
        "float32", epilogue,
    )  # fmt: skip

    def whole(half: Convolution):
        return in_parts.plan(half, plans.best) if times == 2 else plans.best(half)

    found = in_parts.plan(one, whole)
    random = np.random.default_rng(0)
    x, w, g = (random.standard_normal(shape) for shape in (one.images, one.filters, one.result))
    bias = random.standard_normal(24)
    how = {"stride": one.stride, "padding": one.padding, "dilation": one.dilation}
    wanted = {
        "result": lambda: op.conv(x, w, **how) + bias[:, None, None],
        "images": lambda: op.conv_input_gradient(g, w, size=(13, 11), groups=1, **how),
        "filters": lambda: op.conv_weight_gradient(x, g, size=(3, 3), **how),
    }[computes]()
    last = {IMAGES: x, FILTERS: w, RESULT: g, BIAS: bias.reshape(1, -1, 1, 1)}
    arrays = {
        name: cupy.asarray(np.ascontiguousarray(last[name].transpose(0, 2, 3, 1)), np.float32)
        for name in one.arrays
    }
    written = {"result": RESULT, "images": IMAGES, "filters": FILTERS}[computes]
    arrays[written][:] = np.nan
    found.run(arrays, cupy.full(max(found.workspace, 1), 255, np.uint8))
    np.testing.assert_allclose(
        arrays[written].get().transpose(0, 3, 1, 2),
        wanted,
        rtol=1e-4,
        atol=1e-4 * abs(wanted).max(),
    )


def test_only_batches_that_can_be_halved_are_computed_in_parts():
    whole = gradient(64, 27, 64, 3, 1, precision="float32")
    assert in_parts.half_of(whole).images[0] == in_parts.half_of(whole).result[0] == 64
    assert in_parts.half_of(gradient(64, 27, 64, 3, 1)) is None
    few = replace(whole, images=(62, *whole.images[1:]))
    odd = replace(whole, images=(127, *whole.images[1:]))
    assert in_parts.half_of(few) is in_parts.half_of(odd) is None
    apart = replace(whole, images=(66, 3, 9, 9), filters=(8, 3, 3, 3), result=(66, 8, 9, 9))
    assert in_parts.half_of(apart) is None  # the second half would begin between two loads
    assert in_parts.half_of(replace(apart, images=(72, 3, 9, 9), result=(72, 8, 9, 9)))
