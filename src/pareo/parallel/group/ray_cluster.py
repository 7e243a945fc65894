"""A connection to a Ray cluster: one that is named, or one that is started on this machine."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pareo.device import Device
from pareo.errors import PareoError

LOCAL_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"  # 0: Ray takes the loopback address for its own
MISSING = "--on ray needs Ray: pip install 'pareo[ray]'"


def import_ray() -> Any:
    """The `ray` module; if it is missing, the error says how to install it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray would hide the GPUs from tasks that ask for none, and warns that it will stop doing so.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # A task's result reports its error; Ray would print it as well.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    try:
        import ray
    except ImportError as error:
        raise PareoError(MISSING) from error
    return ray


def check(address: str) -> None:
    """Raise `PareoError` if an address is not that of a cluster.

    >>> check("ray"), check("ray://head:10001")
    (None, None)
    >>> check("moon")
    Traceback (most recent call last):
    pareo.errors.PareoError: --on expects ray, or ray://HOST:PORT; got 'moon'
    """
    if address != "ray" and not address.removeprefix("ray://").partition(":")[2].isdecimal():
        raise PareoError(f"--on expects ray, or ray://HOST:PORT; got {address!r}")


def resources(device: Device) -> dict[str, Any]:
    """The resources of a worker on a device: a CPU for each thread, and on `cuda` a GPU.

    >>> resources(Device("compiled", threads=2))
    {'num_cpus': 2, 'num_gpus': 0}
    """
    return {"num_cpus": device.threads, "num_gpus": int(device.name == "cuda")}


def worker_capacity(available: dict[str, float], device: Device) -> int:
    """The number of workers on a device for which a cluster has room.

    >>> worker_capacity({"CPU": 8.0, "GPU": 2.0}, Device("cuda", threads=2))
    2

    Raises:
        PareoError: there is room for none.
    """
    asked = resources(device)
    found = int(available.get("CPU", 0) // asked["num_cpus"])
    if asked["num_gpus"]:
        found = min(found, int(available.get("GPU", 0)))
    if not found:
        gpu = " and a GPU" if asked["num_gpus"] else ""
        raise PareoError(f"the Ray cluster has no {asked['num_cpus']} CPUs{gpu} for a worker")
    return found


@contextmanager
def connected(address: str = "ray") -> Iterator[Any]:
    """The `ray` module, connected to a cluster until the scope ends.

    Args:
        address: `ray`, which is the cluster that $RAY_ADDRESS names, or else one that is started on
            this machine, which only this machine can reach, and ends with the scope; or
            `ray://HOST:PORT`, the address of a cluster.

    Raises:
        PareoError: Ray is not installed, or there is no cluster at that address.
    """
    check(address)
    named = None if address == "ray" else address
    if named is None and "RAY_ADDRESS" not in os.environ:
        named = "local"
        # Whoever reaches a port of Ray can run programs here, so it listens on this machine only.
        # Ray reads the variable when it is imported.
        os.environ.setdefault(LOCAL_ONLY, "0")
    ray = import_ray()
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if named == "local":
        quiet["include_dashboard"] = False
    try:
        with warnings.catch_warnings(action="ignore"):  # the error that follows says enough
            ray.init(address=named, **quiet)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = address if named else os.environ["RAY_ADDRESS"]
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise PareoError(f"{where}: expected a Ray cluster; got: {reason}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
