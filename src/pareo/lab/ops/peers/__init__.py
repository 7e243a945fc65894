"""The operators in other libraries, as users of those write them; imported when needed."""

from importlib.util import find_spec
from shutil import which

from pareo.device import why_unavailable
from pareo.lab.contestants.contestant import EXTRAS
from pareo.lab.machine.places import CPU, GPU, Place
from pareo.lab.ops.peers.pareo_peer import Pareo
from pareo.lab.ops.peers.peer import Missing, Peer

__all__ = ["Missing", "Peer", "made", "place_of", "why_missing"]


def made(contestant: str, threads: int) -> Peer:
    """The library, or device, of a contestant's name: pareo-compiled, torch, torch-cuda ..."""
    name, _, place = contestant.partition("-")
    if name == "pareo":
        return Pareo(place, threads)
    if name in ("numpy", "cupy"):
        from pareo.lab.ops.peers.numpy_peer import NumpyLike

        return NumpyLike(name, threads)
    if name == "torch":
        from pareo.lab.ops.peers.torch_peer import Torch

        return Torch(place, threads)
    if name == "pytensor":
        from pareo.lab.ops.peers.pytensor_peer import Pytensor

        return Pytensor()
    if name == "tinygrad":
        from pareo.lab.ops.peers.tinygrad_peer import Tinygrad

        return Tinygrad(threads)
    from pareo.lab.ops.peers.jax_peer import Jax

    return Jax(place)


def why_missing(contestant: str) -> str:
    """Why a contestant cannot run here, in one sentence; empty if it can."""
    name, _, place = contestant.partition("-")
    if name == "pareo":
        return why_unavailable(place) or ""
    if find_spec(name) is None:
        extra = f": pip install 'pareo[{name}]'" if name in EXTRAS else ""
        return f"{name} is not installed{extra}"
    if name == "tinygrad" and which("clang") is None:
        return "tinygrad needs the program clang, which is not installed"
    return (why_unavailable("cuda") or "") if place_of(contestant) == GPU else ""


def place_of(contestant: str) -> Place:
    """Where a contestant computes.

    >>> [place_of(name) for name in ("pareo-cuda", "torch", "cupy", "jax-cuda")]
    ['cuda', 'cpu', 'cuda', 'cuda']
    """
    return GPU if contestant == "cupy" or contestant.endswith("-cuda") else CPU
