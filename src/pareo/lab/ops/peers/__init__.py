"""The operators in other libraries, as their users write them; each is imported when asked for."""

from importlib.util import find_spec

from pareo.device import why_unavailable
from pareo.lab.ops.peers.ours import Pareo
from pareo.lab.ops.peers.peer import Missing, Peer

__all__ = ["Missing", "Peer", "made", "on_gpu", "why_missing"]


def made(contestant: str, threads: int) -> Peer:
    """The library, or device, of a contestant's name: pareo-compiled, torch, torch-cuda ..."""
    name, _, place = contestant.partition("-")
    if name == "pareo":
        return Pareo(place, threads)
    if name in ("numpy", "cupy"):
        from pareo.lab.ops.peers.numpy_like import NumpyLike

        return NumpyLike(name, threads)
    if name == "torch":
        from pareo.lab.ops.peers.in_torch import Torch

        return Torch(place, threads)
    from pareo.lab.ops.peers.in_jax import Jax

    return Jax(place)


def why_missing(contestant: str) -> str:
    """Why a contestant is not here, in one sentence; empty where it is."""
    name, _, place = contestant.partition("-")
    if name == "pareo":
        return why_unavailable(place) or ""
    if find_spec(name) is None:
        return f"{name} is not installed"
    on_gpu = name == "cupy" or place == "cuda"
    return (why_unavailable("cuda") or "") if on_gpu else ""


def on_gpu(contestant: str) -> bool:
    """Whether a contestant computes on a GPU.

    >>> [on_gpu(name) for name in ("pareo-cuda", "torch", "cupy", "jax-cuda")]
    [True, False, True, True]
    """
    return contestant == "cupy" or contestant.endswith("-cuda")
