"""Energy of phases: the counter beside the integral of the power, and joules an image."""

import pytest
from benchmarks import energy
from benchmarks.energy import Phase
from benchmarks.tables import drawn
from benchmarks.today import Cell

from pareo.errors import PareoError
from pareo.lab.machine import nvml
from pareo.lab.machine.energy import Energy


def test_a_phase_integrates_its_power() -> None:
    phase = Phase("load", joules=305.0, moments=[0.0, 1.0, 3.0], watts=[100.0, 100.0, 100.0])
    assert (phase.seconds, phase.integral) == (3.0, 300.0)
    table = drawn(energy.phases([phase]))
    assert table is not None
    assert table.rows[0][:5] == ["load", "3.0", "305.0", "300.0", "+1.67%"]


def test_joules_an_image_are_shown_with_and_without_idling() -> None:
    cells = {name: Cell("alexnet", 128, name, seconds_per_step=[0.01]) for name in "ab"}
    cells["b"].note = "refused: its first loss is 3"
    used = Energy(source="NVML", joules=700.0, seconds=2.0, images=100, turns=1, idle_watts=100.0)
    table = drawn(energy.images(cells, dict.fromkeys("ab", used), "AlexNet"))
    assert table is not None
    assert table.rows[0] == ["a", "10.000", "350", "7", "5", "5.0%", ""]
    assert table.rows[1][-1].startswith("refused")


def test_without_a_gpu_there_is_no_energy() -> None:
    if nvml.opened() is not None:
        pytest.skip("this machine has a GPU")
    with pytest.raises(PareoError, match="energy not measurable here"):
        energy.main()
