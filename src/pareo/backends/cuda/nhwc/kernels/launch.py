"""The kernels of this folder: their compiled instances, and how many blocks of them to launch."""

from functools import cache
from itertools import product
from typing import Any

import numpy as np

from pareo.backends.cuda.runtime import source

TYPES = {4: "float", 2: "bfloat16"}
WIDEST = 16  # bytes that one thread reads at once
BLOCKS = 1024  # enough to fill any card of today, few enough for partial sums to be cheap
THREADS = 256
BLOCK_SIDES = (2, 4, 0)  # of a first layer's blocks of pixels; 0: any


def _instances() -> dict[str, list[str]]:
    """The template instances of each file, as the compiler names them."""
    numbers = [
        f"{t}, {v}" for t, v in (("float", 4), ("bfloat16", 8), ("float", 1), ("bfloat16", 1))
    ]
    kinds, yes_no = list(TYPES.values()), ("true", "false")
    pairs = [f"{s}, {t}" for s, t in product(kinds, kinds)]
    return {
        "bias": [
            *(f"{name}<{n}>" for name in ("relu_bias_back", "bias_back") for n in numbers),
            *(f"add_bias<{t}, {relu}>" for t, relu in product(kinds, yes_no)),
            *(f"dropout<{t}>" for t in kinds),
        ],
        "dense": [f"dense_update<{t}>" for t in kinds],
        "layout": [
            *(f"turned<{p}>" for p in pairs),
            *(f"cast<{p}, {v}>" for p, v in product(pairs, (1, 4))),
            *(f"blocks<{n}, {side}>" for n, side in product(numbers, BLOCK_SIDES)),
            *(f"{name}<{n}>" for name in ("concat", "total") for n in numbers),
            *(f"{n}<{t}>" for n in ("block_filters", "unblock_filters", "turn_filters")
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
        "update": [],
        "pool3": [
            *(f"max_pool3<{t}, {v}, {relu}>" for t, v, relu in product(kinds, (1, 4), yes_no)),
            *(f"max_pool3_back<{n}, {s}>" for n, s in product(numbers, (1, 2))),
        ],
    }  # fmt: skip


INSTANCES = _instances()


@cache
def kernel(file: str, name: str, shared: int = 0) -> Any:
    """A kernel of this folder, compiled when it is first needed."""
    names = [name] if name in INSTANCES[file] else []
    return source.module(source.read(f"nhwc/kernels/{file}.cu"), names).function(name, shared)


def kind(array: Any) -> str:
    """How the kernels name an array's dtype."""
    return TYPES[array.dtype.itemsize]


def together(channels: int, *arrays: Any) -> int:
    """How many elements a thread may take at once: as many as all addresses and pitches allow."""
    many = WIDEST // arrays[0].dtype.itemsize
    step = many * arrays[0].dtype.itemsize
    fits = all(array.data.ptr % step == 0 and pitch(array) % many == 0 for array in arrays)
    return many if channels % many == 0 and fits else 1


def pitch(array: Any) -> int:
    """Elements between two pixels, or rows, of an array whose channels lie last."""
    return int(array.strides[-2] // array.dtype.itemsize) if array.ndim > 1 else array.size


def pixels(array: Any) -> int:
    """How many pixels, or rows, an array has."""
    return int(np.prod(array.shape[:-1]))


def walk(count: int, channels: int, many: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Grid and block of a kernel whose threads hold channels and walk over pixels."""
    groups = -(-channels // many)
    across = -(-groups // 64)
    wide = -(-groups // across)
    high = max(1, THREADS // wide)
    return (min(-(-count // high), max(1, BLOCKS // across)), across), (wide, high)


def most_rows(count: int, channels: int) -> int:
    """The most blocks along pixels that `walk` may ask for, however many a thread takes at once."""
    widths = (1, *(WIDEST // size for size in TYPES))
    return max(walk(count, channels, many)[0][0] for many in widths)


def flat(count: int, many: int = 1) -> tuple[tuple[int], tuple[int]]:
    """Grid and block of a kernel that takes one element, or `many`, after the other."""
    return (max(1, min(-(-count // (many * THREADS)), 8 * BLOCKS)),), (THREADS,)
