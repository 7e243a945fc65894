"""Counters: the ladder says in one line what this machine forbids, and what is read is real."""

import mmap
import sys

import pytest

from pareo.lab.ops.counters import ncu, perf_event, rung_of
from pareo.lab.ops.counters.ladder import LADDERS

pytestmark = pytest.mark.smoke

PRINTED = '''==PROF== Connected to process 7
"ID","Kernel Name","{fadd}","{ffma}","dram__bytes_read.sum","gpu__time_duration.sum","{wait}"
"","","inst","inst","Mbyte","us","%"
"0","gemm","1,000","500","1.5","3","10"
"1","sum","0","0","0.5","1","50"
'''.format(
    fadd=ncu.COUNTS["adds"], ffma=ncu.COUNTS["multiply-adds"], wait=ncu.STALL.format("wait")
)  # fmt: skip


@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_the_ladder_ends_in_timing_and_says_why_in_one_line(place):
    rung = rung_of(place)
    assert rung.name in [*(name for name, _ in LADDERS[place]), "timing"]
    assert "\n" not in rung.why
    assert (rung.name == "timing") <= rung.why.startswith("no ")


@pytest.mark.skipif(sys.platform != "linux", reason="perf_event is Linux's")
def test_the_kernel_counts_what_all_threads_did():
    def touch():
        with mmap.mmap(-1, 64 << 20) as fresh:
            for page in range(0, len(fresh), mmap.PAGESIZE):
                fresh[page] = 1

    try:
        found = perf_event.counted(touch, perf_event.SOFTWARE_EVENTS)
    except perf_event.NoCounter as reason:
        pytest.skip(str(reason))
    quiet = perf_event.counted(lambda: None, perf_event.SOFTWARE_EVENTS)
    assert found["page faults"] > quiet["page faults"]


@pytest.mark.skipif(sys.platform != "linux", reason="perf_event is Linux's")
def test_an_event_that_is_not_there_is_one_line():
    with pytest.raises(perf_event.NoCounter) as raised:
        perf_event.counted(lambda: None, {"nonsense": (perf_event.SOFTWARE, 999)})
    assert "\n" not in str(raised.value)


def test_what_ncu_prints_is_summed_over_kernels_and_averaged_by_time():
    found = ncu.summed(ncu.parsed(PRINTED))
    assert found["kernels"] == ["gemm", "sum"]
    assert found["flops"] == 1000 + 2 * 500
    assert (found["bytes read"], found["nanoseconds"]) == (2e6, 4e3)
    assert found["stalls"]["wait"] == pytest.approx((3 * 10 + 1 * 50) / 4)
    assert found["paper's stalls"]["execution dependency"] == pytest.approx(20)


def test_ncu_that_saw_nothing_says_so():
    assert ncu.summed(ncu.parsed("==ERROR== no permission")) == {
        "rung": "ncu",
        "failed": "ncu saw no kernel",
    }
