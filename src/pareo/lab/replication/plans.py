"""The plan of each paper: in full with the paper's sizes, quick in minutes on two cores."""

from pareo.lab.papers.published import paper
from pareo.lab.replication.costa_banevicius import CostaBanevicius
from pareo.lab.replication.engine import Plan
from pareo.lab.replication.finardi_david import FinardiDavid
from pareo.lab.replication.lima_zola import LimaZola
from pareo.lab.replication.melo import Melo
from pareo.lab.replication.trindade_lima import TrindadeLima

FULL: dict[str, Plan] = {
    plan.name: plan
    for plan in (LimaZola(), FinardiDavid(), TrindadeLima(), CostaBanevicius(), Melo())
}
QUICK: dict[str, Plan] = {
    plan.name: plan
    for plan in (
        LimaZola(epochs=1, on_cpu=("pareo-compiled", "torch", "tensorflow"), patience=300.0,
                 seconds=240.0),
        FinardiDavid(epochs=1, conv_bytes=16 << 20, seconds=2.0, race_seconds=100.0, images=10_000),
        TrindadeLima(batches=(1, 4), size=112, seconds=2.0, kernels=1, turns=2,
                     largest=False,
                     on_cpu=("pareo-compiled", "torch", "tensorflow")),
        CostaBanevicius(images=3_840, rounds=3),
        Melo(most=128, seconds=0.3, peers=("numpy", "torch", "pytensor")),
    )
}  # fmt: skip


def plan_of(name: str, quick: bool) -> Plan:
    """The plan of a paper; PareoError names the papers where there is none of that name.

    >>> plan_of("melo", quick=True).name
    'melo'
    """
    paper(name)
    return (QUICK if quick else FULL)[name]
