"""A cluster that pareo starts itself is reached from this machine only."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pareo.parallel.group import ray_cluster

LISTENING = """
from pathlib import Path
from pareo.parallel.group.ray_cluster import connected

def listening():
    lines = [line.split() for name in ("tcp", "tcp6")
             for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {line[1] for line in lines if line[3] == "0A"}

if __name__ == "__main__":
    before = listening()
    with connected("ray"):
        print(*(address.split(":")[0] for address in listening() - before))
"""


@pytest.mark.parametrize(("address", "alone"), [("ray", True), ("ray://head:10001", False)])
def test_ray_is_imported_for_this_machine_only(
    address: str, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def init(address: str, **more: Any) -> None:
        seen.append((address, os.environ.get(ray_cluster.LOCAL_ONLY)))

    fake = SimpleNamespace(init=init, shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv(ray_cluster.LOCAL_ONLY, "")  # restored afterwards
    monkeypatch.delenv(ray_cluster.LOCAL_ONLY)
    with ray_cluster.connected(address):
        pass
    assert seen == [("local", "0") if alone else (address, None)]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells who listens")
def test_no_port_is_open_to_others(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: make test-ray")
    script = tmp_path / "listening.py"
    script.write_text(LISTENING)
    environment = {key: value for key, value in os.environ.items() if key != "RAY_ADDRESS"}
    folder = str(Path(ray_cluster.__file__).parents[3])
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=200, check=True,
        env={**environment, "PYTHONPATH": folder},
    )  # fmt: skip
    # 127.0.0.1, as an address of IPv4 and as one of IPv6.
    assert set(done.stdout.split()) <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert done.stdout
