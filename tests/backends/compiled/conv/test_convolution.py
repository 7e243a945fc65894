"""Which algorithm convolves which shapes."""

from typing import Any

import numpy as np
import pytest

from pareo import Device, op, trace
from pareo.backends.compiled.conv import convolution
from pareo.backends.compiled.runtime import registers, thread_pool
from pareo.spec import Spec

HOW: dict[str, Any] = {"padding": (2, 2, 2, 2), "dilation": (1, 1), "groups": 1}


def algorithm(filters: int, dtype: str = "float32", **how: Any) -> str:
    """Of a first layer of 5x5 filters on images of three channels."""
    x, out = Spec((8, 3, 30, 30), dtype), Spec((8, filters, 30, 30), dtype)
    return convolution._algorithm(x, (filters, 3, 5, 5), out, **({"stride": (1, 1), **HOW} | how))


@pytest.mark.parametrize("has_avx512", [False, True])
def test_a_first_layer_fills_wide_registers_with_filters(
    has_avx512: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registers, "HAS_AVX512", has_avx512)
    assert algorithm(6) == "shifted_rows"
    assert algorithm(24) == ("channels_last" if has_avx512 else "shifted_rows")
    assert algorithm(24, dtype="float64") == "shifted_rows"
    assert algorithm(64) == "channels_last"


@pytest.mark.parametrize(
    ("images", "side", "by_rows"), [(1, 6, True), (8, 6, False), (8, 30, True)]
)
def test_many_loops_over_short_planes_are_columns_instead(
    images: int, side: int, by_rows: bool
) -> None:
    """Each loop of `shifted_rows` takes longer to begin than to run there."""
    x, out = (Spec((images, channels, side, side), "float32") for channels in (6, 7))
    found = convolution._algorithm(x, (7, 6, 5, 5), out, stride=(1, 1), **HOW)
    assert (found == "shifted_rows") == by_rows


def test_a_few_products_stay_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """To hand them over would take longer than to compute them."""
    monkeypatch.setattr(thread_pool, "LEAST_FLOPS", 1 << 19)
    monkeypatch.setattr(thread_pool, "taken", lambda: pytest.fail("a worker was woken"))
    for channels, stride, dtype in ((2, 1, "float32"), (6, 2, "float32"), (6, 1, "float64")):
        x, w = np.ones((5, channels, 7, 6), dtype), np.ones((7, channels, 3, 3), dtype)
        with Device("compiled", threads=2):
            y = op.conv(x, w, stride=stride, padding=1)
            op.conv_input_gradient(y, w, size=(7, 6), stride=stride, padding=1)
            op.conv_weight_gradient(x, y, size=(3, 3), stride=stride, padding=1)


@pytest.mark.parametrize("filters", [6, 24])
@pytest.mark.parametrize("name", ["relu", "sigmoid", "tanh"])
def test_the_gradient_of_a_first_layer_agrees_with_float64(
    name: str, filters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fused with bias and activation, or in passes of their own."""
    monkeypatch.setattr(registers, "HAS_AVX512", True)
    random = np.random.default_rng(1)
    x, g = (random.standard_normal((4, n, 19, 21)) for n in (3, filters))
    w, b = random.standard_normal((filters, 3, 5, 5)), random.standard_normal(filters)

    def gradients(x: Any, w: Any, b: Any, g: Any) -> Any:
        y = getattr(op, name)(op.add_bias(op.conv(x, w, stride=(1, 1), padding=(2, 2)), b))
        d = getattr(op, f"{name}_gradient")(g, y)
        how = {"stride": (1, 1), **HOW}
        return op.conv_weight_gradient(x, d, size=(5, 5), **how), op.sum(d, axis=(0, 2, 3))

    single = [a.astype(np.float32) for a in (x, w, b, g)]
    run = trace(gradients, *single).compile(Device("compiled", threads=2))
    names = [i.name for i in run.program.instructions]
    assert (f"conv_bias_{name}_gradient" in names) == (filters == 6)
    for one, true in zip(run(*single), gradients(x, w, b, g), strict=True):
        assert np.linalg.norm(one - true) < 2e-6 * np.linalg.norm(true)
