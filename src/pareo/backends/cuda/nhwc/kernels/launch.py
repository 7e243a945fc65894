"""The template instances of the kernels in this directory, and the grids to launch them on."""

from functools import cache
from itertools import product
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.backends.cuda.runtime import source

TYPES = {4: "float", 2: "bfloat16"}
WIDEST = 16  # bytes that one thread loads at once
BLOCKS = 1024  # enough to fill any GPU of today, few enough for partial sums to be cheap
THREADS = 256
ACTIVATIONS = (
    "IDENTITY", "RELU", "CLIP", "SILU", "HARD_SWISH", "HARD_SIGMOID", "LEAKY", "GELU", "GELU_TANH",
    "SIGMOID",
)  # fmt: skip  # as in activation.cuh
NORMALISED = ("IDENTITY", "RELU", "CLIP", "SILU", "HARD_SWISH")  # activations in normalise.cu
BIASED = ("IDENTITY", "GELU", "GELU_TANH")  # activations in tokens.cu
BLOCK_SIDES = (2, 4, 0)  # compiled sides of blocks in space_to_depth; 0: any side
ROW_PIECES = (1, 2, 3, 6)  # compiled lengths of rows in tokens.cu


def _instances() -> dict[str, list[str]]:
    """The template instances of each file, as the compiler names them."""
    numbers = [
        f"{t}, {v}" for t, v in (("float", 4), ("bfloat16", 8), ("float", 1), ("bfloat16", 1))
    ]
    kinds, yes_no = list(TYPES.values()), ("true", "false")
    pairs = [f"{s}, {t}" for s, t in product(kinds, kinds)]
    return {
        "activation": [
            f"{name}<{n}, {kind}>"
            for name in ("activation", "activation_back")
            for n, kind in product(numbers, ACTIVATIONS[1:])
        ],
        "normalise": [
            *(f"channel_statistics<{t}, 4>" for t in kinds),
            *(f"normalise_back_sums<{t}, 4, {kind}>" for t, kind in product(kinds, NORMALISED)),
            *(f"normalise<{n}, {kind}, 0>" for n, kind in product(numbers[:2], NORMALISED)),
            *(f"normalise<{n}, {kind}, {r}>"
              for n, kind, r in product(numbers[:2], NORMALISED[:2], (1, 2))),
            *(f"normalise_back<{n}, {kind}, {plus}>"
              for n, kind, plus in product(numbers[:2], NORMALISED, yes_no)),
        ],
        "normalise_at_once": [
            f"{name}<{n}, {kind}>" for name in ("normalise_at_once", "normalise_back_at_once")
            for n, kind in product(numbers[:2], NORMALISED)
        ],
        "normalise_pool": [
            f"{name}<{n}>" for name in ("normalise_pool", "normalise_pool_back")
            for n in numbers[:2]
        ],
        "tokens": [
            *(f"{name}<{n}, {p}>" for name in ("layer_norm", "layer_norm_back")
              for n, p in product(numbers[:2], ROW_PIECES)),
            *(f"{name}<{n}, {kind}>" for name in ("bias_activation", "bias_activation_back")
              for n, kind in product(numbers[:2], BIASED)),
        ],
        "bias": [
            *(f"{name}<{n}>" for name in ("relu_bias_back", "bias_back") for n in numbers),
            *(f"add_bias<{t}, {relu}>" for t, relu in product(kinds, yes_no)),
            *(f"dropout<{t}>" for t in kinds),
        ],
        "dense": [f"dense_update<{t}>" for t in kinds],
        "layout": [
            *(f"transpose<{p}>" for p in pairs),
            *(f"cast<{p}, {v}>" for p, v in product(pairs, (1, 4))),
            *(f"space_to_depth<{n}, {side}>" for n, side in product(numbers[:2], BLOCK_SIDES)),
            *(f"space_to_depth_rows<{n}, {both}>"
              for n, both in product(numbers[:2], ("2, 3", "0, 0"))),
            *(f"{name}<{n}>" for name in ("concat", "total", "repeat") for n in numbers),
            *(f"{n}<{t}>" for n in ("filters_to_depth", "filters_from_depth", "flip_filters")
              for t in kinds),
        ],
        "lrn": [
            *(f"{name}<{t}>" for name in ("lrn_any", "lrn_any_back") for t in kinds),
            *(f"lrn_near<{n}>" for n in numbers[:2]),
            *(f"lrn_near_back<{n}, {relu}>" for n, relu in product(numbers[:2], yes_no)),
        ],
        "pool": [
            *(f"max_pool<{n}, {s}, {relu}>" for n, s, relu in product(numbers, (0, 3), yes_no)),
            *(f"{name}<{n}>" for n in numbers
              for name in ("max_pool_back", "average_pool", "average_pool_back")),
        ],
        "update": [
            f"update_all<{rule}>"
            for rule in ("DESCEND", "MOMENTUM", "NESTEROV", "LION", "ADAM", "ADAMW")
        ],
        "pool3": [
            *(f"max_pool3<{t}, {v}, {relu}>" for t, v, relu in product(kinds, (1, 4), yes_no)),
            *(f"max_pool3_back<{n}, {s}>" for n, s in product(numbers, (1, 2))),
        ],
    }  # fmt: skip


INSTANCES = _instances()


@cache
def kernel(file: str, name: str, shared: int = 0) -> Any:
    """A kernel of this directory, compiled on first use."""
    names = [name] if name in INSTANCES[file] else []
    return source.module(source.read(f"nhwc/kernels/{file}.cu"), names).function(name, shared)


def c_type(array: Array) -> str:
    """The C++ type of an array's elements."""
    return TYPES[array.dtype.itemsize]


def vector_width(channels: int, *arrays: Array) -> int:
    """The elements that a thread may load at once: 16 bytes if all arrays are aligned, else 1."""
    vector = WIDEST // arrays[0].dtype.itemsize
    step = vector * arrays[0].dtype.itemsize
    fits = all(array.data.ptr % step == 0 and pitch(array) % vector == 0 for array in arrays)
    return vector if channels % vector == 0 and fits else 1


def pitch(array: Array) -> int:
    """Elements between two pixels, or rows, of a channels-last array; they are evenly spaced."""
    if array.ndim < 2:
        return array.size
    for axis in range(array.ndim - 2):
        wide = all(size > 1 for size in array.shape[axis : axis + 2])
        if wide and array.strides[axis] != array.strides[axis + 1] * array.shape[axis + 1]:
            raise ValueError(f"rows are not evenly spaced: {array.shape}, {array.strides}")
    return int(array.strides[-2] // array.dtype.itemsize)


def pixels(array: Array) -> int:
    """The number of pixels, or rows, of an array."""
    return int(np.prod(array.shape[:-1]))


def pixel_grid(count: int, channels: int, vector: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid and block of a kernel whose threads hold channels and iterate over pixels."""
    groups = -(-channels // vector)
    across = -(-groups // 64)
    wide = -(-groups // across)
    high = max(1, THREADS // wide)
    return (min(-(-count // high), max(1, BLOCKS // across)), across), (wide, high)


def max_pixel_blocks(count: int, channels: int) -> int:
    """The most blocks along pixels that `pixel_grid` returns for any vector width."""
    widths = (1, *(WIDEST // size for size in TYPES))
    return max(pixel_grid(count, channels, vector)[0][0] for vector in widths)


def element_grid(count: int, vector: int = 1) -> tuple[tuple[int], tuple[int]]:
    """Grid and block of a grid-stride loop over elements, `vector` at a time."""
    return (max(1, min(-(-count // (vector * THREADS)), 8 * BLOCKS)),), (THREADS,)
