"""Images shrunk window by window."""

from typing import Any

from pareo.backends.cuda import launch
from pareo.backends.cuda.table import backend
from pareo.spec import Spec


def _pool(image: Any, pooled: Any, size: Any, stride: Any, padding: Any) -> Any:
    """The struct Pool of pooling.cu."""
    return launch.struct(image.shape[2:], pooled.shape[2:], size, stride, padding[:2])


@backend.kernel(strided=False)
def max_pool(out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool) -> None:
    pool = _pool(x, out, size, stride, padding)
    launch.over(out.size, "pooling", "max_pool", x.dtype.char, out, x, out.size, pool)


def _places(out: Spec, g: Spec, x: Spec, **_: Any) -> list[Spec]:
    return [Spec(g.shape, "int32")]


@backend.kernel(strided=False, scratch=_places)
def max_pool_gradient(
    out: Any, g: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool, scratch: Any
) -> None:
    kind, pool = x.dtype.char, _pool(x, g, size, stride, padding)
    (places,) = scratch
    launch.over(g.size, "pooling", "max_pool_places", kind, places, x, g.size, pool)
    launch.over(out.size, "pooling", "max_pool_gradient", kind, out, g, places, out.size, pool)


@backend.kernel(strided=False)
def average_pool(out: Any, x: Any, size: Any, stride: Any, padding: Any, ceil: bool) -> None:
    pool = _pool(x, out, size, stride, padding)
    launch.over(out.size, "pooling", "average_pool", x.dtype.char, out, x, out.size, pool)


@backend.kernel(strided=False)
def average_pool_gradient(
    out: Any, g: Any, image: Any, size: Any, stride: Any, padding: Any, ceil: bool
) -> None:
    kind, pool = g.dtype.char, _pool(out, g, size, stride, padding)
    launch.over(out.size, "pooling", "average_pool_gradient", kind, out, g, out.size, pool)


@backend.kernel(strided=False)
def subsample(out: Any, x: Any, w: Any, b: Any, stride: Any) -> None:
    pool = _pool(x, out, w.shape, stride, (0, 0))
    launch.over(out.size, "pooling", "subsample", x.dtype.char, out, x, w, b, out.size, pool)
