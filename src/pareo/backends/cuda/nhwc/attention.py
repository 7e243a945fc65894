"""Attention by cuDNN in bfloat16, on tokens that hold queries, keys and values side by side."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any

from pareo.array import Array
from pareo.backends.cuda.nhwc.conv import cudnn
from pareo.backends.cuda.nhwc.kernels.table import instruction
from pareo.spec import Spec

Q, K, V, RESULT, SUMS, ERROR, TO_Q, TO_K, TO_V = range(1, 10)  # the names of a graph's arrays
BYTES = 2  # of a number


@dataclass(frozen=True)
class Attention:
    """What is computed: tokens (batch, count, 3 * heads * size) attend to each other."""

    batch: int
    count: int
    heads: int
    size: int
    causal: bool

    @property
    def features(self) -> int:
        return self.heads * self.size

    def supported(self) -> bool:
        """Whether cuDNN has plans for it, forward and backward."""
        return all(_plan(self, back, _device()) is not None for back in (False, True))


def supported(one: Attention) -> bool:
    """Whether there is a plan on this machine."""
    return cudnn.missing() is None and one.size % 8 == 0 and one.size <= 128 and one.supported()


def _device() -> int:
    import cupy

    return int(cupy.cuda.Device().id)


class _Plan:
    """A graph that cuDNN has built for one attention."""

    def __init__(self, one: Attention, back: bool, device: int) -> None:
        self._library = import_module("cudnn")
        self._handle = cudnn.handle(device)
        types = self._library.data_type
        self._graph = self._library.pygraph(
            handle=self._handle, io_data_type=types.BFLOAT16,
            intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT,
        )  # fmt: skip
        shape = [one.batch, one.heads, one.count, one.size]
        wide, narrow = (
            [one.count * row, one.size, row, 1] for row in (3 * one.features, one.features)
        )
        sums = [one.batch, one.heads, one.count, 1]
        steps = [one.heads * one.count, one.count, 1, 1]

        def given(name: int, stride: list[int]) -> Any:
            return self._graph.tensor(dim=shape, stride=stride, uid=name)

        def taken(array: Any, name: int, stride: list[int]) -> None:
            array.set_output(True).set_uid(name).set_dim(shape).set_stride(stride)

        three = {"q": given(Q, wide), "k": given(K, wide), "v": given(V, wide)}
        how = {"attn_scale": 1 / math.sqrt(one.size), "use_causal_mask": one.causal}
        if back:
            stats = self._graph.tensor(dim=sums, stride=steps, data_type=types.FLOAT, uid=SUMS)
            parts = self._graph.sdpa_backward(
                **three, o=given(RESULT, narrow), dO=given(ERROR, narrow), stats=stats,
                use_deterministic_algorithm=True, **how,
            )  # fmt: skip
            for part, name in zip(parts, (TO_Q, TO_K, TO_V), strict=True):
                taken(part, name, wide)
        else:
            result, stats = self._graph.sdpa(**three, generate_stats=True, **how)
            taken(result, RESULT, narrow)
            stats.set_output(True).set_uid(SUMS).set_data_type(types.FLOAT)
        self._graph.validate()
        self._graph.build_operation_graph()
        self._graph.create_execution_plans(
            [self._library.heur_mode.A, self._library.heur_mode.FALLBACK]
        )
        self._graph.check_support()
        self._graph.build_plans()
        self.workspace = int(self._graph.get_workspace_size())

    def run(self, pointers: dict[int, int], workspace: Array) -> None:
        """Run it, on the current stream."""
        import cupy

        self._library.set_stream(handle=self._handle, stream=cupy.cuda.get_current_stream().ptr)
        self._graph.execute(pointers, workspace.data.ptr, handle=self._handle)


@lru_cache(maxsize=256)
def _plan(one: Attention, back: bool, device: int) -> _Plan | None:
    try:
        return _Plan(one, back, device)
    except Exception:  # cuDNN's own exceptions say no more than that there is no plan
        return None


def _made(one: Attention, back: bool) -> _Plan:
    plan = _plan(one, back, _device())
    assert plan is not None, "only attention that has a plan is lowered"
    return plan


def _of(x: Array | Spec, heads: int, causal: bool) -> Attention:
    batch, count, features = x.shape
    return Attention(batch, count, heads, features // (3 * heads), causal)


def _three(one: Attention, x: Array, names: Sequence[int]) -> dict[int, int]:
    """The addresses of queries, keys and values, or of their gradients."""
    step = one.features * BYTES
    return {name: x.data.ptr + place * step for place, name in enumerate(names)}


def _scratch(back: bool) -> Any:
    def workspace(out: Any, x: Spec, *_: Spec, heads: int, causal: bool) -> list[Spec]:
        return [Spec((max(1, _made(_of(x, heads, causal), back).workspace),), "uint8")]

    return workspace


@instruction(scratch=_scratch(False))
def attention_forward(
    out: tuple[Array, Array], x: Array, heads: int, causal: bool, scratch: Sequence[Array]
) -> None:
    """The result (batch, count, features), and the logarithm of each row's sum of exponentials."""
    one = _of(x, heads, causal)
    y, sums = out
    pointers = {**_three(one, x, (Q, K, V)), RESULT: y.data.ptr, SUMS: sums.data.ptr}
    _made(one, False).run(pointers, scratch[0])


@instruction(scratch=_scratch(True))
def attention_back(
    out: Array, x: Array, y: Array, sums: Array, g: Array, heads: int, causal: bool,
    scratch: Sequence[Array],
) -> None:  # fmt: skip
    """The gradient of x, from its result y, the sums, and the gradient of y."""
    one = _of(x, heads, causal)
    pointers = {
        **_three(one, x, (Q, K, V)), **_three(one, out, (TO_Q, TO_K, TO_V)),
        RESULT: y.data.ptr, SUMS: sums.data.ptr, ERROR: g.data.ptr,
    }  # fmt: skip
    _made(one, True).run(pointers, scratch[0])
