"""Single instructions of lowered programs on the GPU: draw their operands, run them, compare."""

import numpy as np
import pytest

from pareo import Device
from pareo.backends.cuda.nhwc.instructions import INSTRUCTIONS
from pareo.backends.cuda.nhwc.kernels.bias import partial_sums
from pareo.spec import Spec

# Results in bfloat16 are rounded to 8 bits, half a unit of which is 2e-3; sums of many of them are
# more precise. In float32 only the order of summation differs. Convolutions in tf32 round to 11
# bits.
TOLERANCE = {"float32": 2e-6, "bfloat16": 6e-3}
TF32 = 1e-3


def dtype(name):
    if name == "bfloat16":
        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype(name)


def draw(shape, kind, seed=0):
    numbers = np.random.default_rng([seed, *shape]).standard_normal(shape)
    return numbers.astype(np.float32).astype(dtype(kind))


def run(name, results, operands, fusion=None, **how):
    """The results of an instruction, in memory that held other values before."""
    import cupy

    kernel = (fusion or INSTRUCTIONS[name]).kernel
    given = [cupy.asarray(a) for a in operands]
    out = [cupy.full(spec.shape, 99, spec.dtype) for spec in results]
    target, spec = (tuple(out), tuple(results)) if len(out) > 1 else (out[0], results[0])
    if kernel.scratch:
        room = kernel.workspace(spec, [Spec(a.shape, a.dtype) for a in given], how)
        how["scratch"] = tuple(cupy.full(r.shape, 77, r.dtype) for r in room)
    with Device("cuda", precision=how.get("precision", "tf32")):
        kernel.function(target, *given, **how)
    return [cupy.asnumpy(a) for a in out]


def run_with_sums(name, result, operands, **how):
    """The result of a backward instruction, and its sums over everything but the channels."""
    d, partial = run(name, [result, partial_sums(result)], operands, **how)
    return d, run("add_sums", [Spec(result.shape[-1:])], [partial])[0]


def check(found, wanted, tolerance):
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert found.shape == wanted.shape
    assert np.linalg.norm(found - wanted) <= tolerance * np.linalg.norm(wanted)


def first(array):
    """Images as the operators read them: float32, channels first."""
    return np.ascontiguousarray(array.astype(np.float32).transpose(0, 3, 1, 2))


def last(array):
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
