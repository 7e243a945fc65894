"""What is remembered of timed plans, the kernels' compilation, and how filters are cut."""

import json

import pytest

from pareo.backends.cuda import source
from pareo.backends.cuda.large import launch, plans
from pareo.backends.cuda.large.cudnn import Convolution
from pareo.backends.cuda.large.filters import ARCH, CHUNK, ROWS, WIDTHS, filters
from pareo.backends.cuda.large.taps import WARP_COLUMNS, taps

ENTRY = {"plan": "eng51_k2=1", "seconds": 0.001}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("file", launch.INSTANCES)
def test_every_instance_compiles(file, arch):
    names = launch.INSTANCES[file]
    binary = source.compile_to_binary(source.read(f"large/{file}.cu"), arch, names=names)
    assert binary.startswith(b"\x7fELF")


def test_warpgroup_products_compile_for_the_card_that_has_them():
    names = launch.INSTANCES["filters"]
    text = source.read("large/filters.cu")
    plain, own = (source.compile_to_binary(text, a, names=names) for a in ("sm_90", ARCH))
    assert len(own) > 2 * len(plain)  # elsewhere the kernels are empty


def test_plans_come_back_as_they_were_written(tmp_path):
    plans.write_plans(tmp_path / "cuda" / "plans.json", {"a": ENTRY})
    assert plans.read_plans(tmp_path / "cuda" / "plans.json") == {"a": ENTRY}


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "\0\1", '{"a": 1}', '{"a": {"plan": 1}}'])
def test_a_damaged_file_counts_as_empty(tmp_path, text):
    (tmp_path / "plans.json").write_text(text)
    assert plans.read_plans(tmp_path / "plans.json") == {}


def test_a_missing_file_counts_as_empty(tmp_path):
    assert plans.read_plans(tmp_path / "plans.json") == {}


def test_one_bad_entry_does_not_spoil_the_others(tmp_path):
    (tmp_path / "plans.json").write_text(json.dumps({"a": ENTRY, "b": "nonsense"}))
    assert plans.read_plans(tmp_path / "plans.json") == {"a": ENTRY}


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


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_a_cut_covers_all_filters_channels_and_positions(layer):
    cut = taps(layer)
    filters, channels, kh, kw = layer.filters
    across, along = cut.places
    assert across * 64 >= filters
    assert along * cut.slice >= channels
    assert kh * kw * cut.slice <= cut.warps * WARP_COLUMNS
    assert 32 * cut.warps % (cut.slice // 4) == 0  # the threads share the channels evenly
    assert cut.pitch >= cut.slice
    assert cut.pitch % 32 in (8, 24)
    assert cut.parts * cut.units * 128 >= layer.images[0] * cut.plane
    assert cut.shared <= 227 << 10  # what a multiprocessor has


def test_quick_division_is_exact_for_every_position():
    for layer in LAYERS:
        cut = taps(layer)
        for number, most in ((cut.plane, 512 * cut.plane + 4096), (cut.padded_width, cut.plane)):
            quick = (1 << 40) // number + 1
            steps = range(number - 1, most, number)  # the last one before each change
            assert all(q * quick >> 40 == q // number for q in (*steps, *(s + 1 for s in steps)))


@pytest.mark.parametrize(
    "layer",
    [
        gradient(64, 27, 64, 3, 1, stride=2),
        gradient(64, 27, 64, 3, 1, precision="float32"),
        gradient(64, 27, 64, 3, 1, precision="bfloat16"),
        gradient(64, 28, 64, 1, 0),
        gradient(6, 28, 64, 3, 1),
    ],
    ids=str,
)
def test_other_layers_are_not_cut(layer):
    assert taps(layer) is None


@pytest.mark.parametrize("blocks", [1, 7, 132])
@pytest.mark.parametrize("layer", [*LAYERS, gradient(64, 56, 64, 1, 0)], ids=str)
def test_every_pair_of_tile_and_chunk_is_taken_once(layer, blocks):
    cut = filters(layer, "90", blocks)
    assert cut.across * cut.width >= layer.filters[0]
    assert -(-cut.rows // ROWS) * ROWS * cut.across == cut.tiles * ROWS
    assert cut.chunks * CHUNK >= cut.positions
    assert cut.each * blocks >= cut.tiles * cut.chunks
    for tile in range(cut.tiles):
        first, last = (p // cut.each for p in (tile * cut.chunks, (tile + 1) * cut.chunks - 1))
        assert last - first < cut.parts
        assert last < blocks
    assert cut.shared <= 226 << 10  # what a multiprocessor gives one block, beside the barriers
    assert cut.width in WIDTHS


def test_warpgroup_products_are_for_one_architecture_and_precision():
    assert filters(LAYERS[0], "100", 148) is None
    assert filters(gradient(64, 27, 64, 3, 1, precision="bfloat16"), "90", 132) is None
    assert filters(gradient(6, 28, 64, 3, 1), "90", 132) is None
    assert filters(gradient(64, 27, 64, 3, 1, stride=2), "90", 132) is not None
