"""The measurements of `pareo parallel`: one network in every strategy, or the fourth paper's."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack

from pareo import machine
from pareo.device import Device
from pareo.lab.papers import costa_banevicius as paper
from pareo.lab.parallel.datasets import data_for
from pareo.lab.parallel.engine import Watch, race
from pareo.lab.parallel.papers import flops, papers_data, pareo_strategies
from pareo.lab.parallel.papers_peers import Peer, peer_strategies
from pareo.lab.parallel.papers_tensorflow import TensorflowNetworks
from pareo.lab.parallel.papers_torch import TorchNetworks
from pareo.lab.parallel.result import (
    BatchSpeedup,
    OneNetworkResult,
    PapersResult,
    Prediction,
    Published,
    Row,
)
from pareo.lab.parallel.speedup import at_batch, pays_from, scalings
from pareo.lab.parallel.strategies import strategies
from pareo.nn.network import Sequential
from pareo.parallel.trials.prediction import predict
from pareo.parallel.trials.trial import Trial
from pareo.training.floor import matrix_peak

# Frameworks that train the fourth paper's networks beside pareo.
PEERS: dict[str, Callable[..., Peer]] = {"torch": TorchNetworks, "tensorflow": TensorflowNetworks}


def measure(
    network: Sequential,
    batch: int,
    workers: Sequence[int],
    tasks: int,
    rounds: int,
    seconds: float,
    sizes: Sequence[int],
    watch: Watch,
) -> OneNetworkResult:
    """Every strategy with every number of workers, then each at other batch sizes.

    The task strategies train `tasks` networks, each with other weights and another order.
    """
    most = max(workers)
    header = OneNetworkResult.header("parallel", machine.idle_cores())
    with ExitStack() as stack:
        data = data_for(network, batch, seconds)
        rows = race(strategies(network, data, batch, workers, tasks, stack), rounds, watch)
    other: list[BatchSpeedup] = []
    for size in sizes if most > 1 else ():
        with ExitStack() as stack:
            few = data_for(network, size, seconds / 2)
            entered = strategies(network, few, size, [most], tasks, stack)
            found = race(entered, max(1, rounds // 2), watch)
        other += at_batch(found, size, most)
    trials = [Trial(network, batch_size=batch, seed=seed) for seed in range(tasks)]
    expected = predict(trials, data, Device("compiled", most))
    return OneNetworkResult(
        **header,
        network=network.name,
        batch=batch,
        images=len(data.images),
        test_images=len(data.test_images),
        workers=list(workers),
        rows=rows,
        strategies=scalings(rows),
        sizes=other,
        pays_from=pays_from([*other, *at_batch(rows, batch, most)] if most > 1 else []),
        prediction=Prediction(how=expected.how, seconds=expected.seconds, words=str(expected)),
    )


def measure_papers(images: int, cores: int, rounds: int, watch: Watch) -> PapersResult:
    """The fourth paper's experiment, and pareo's strategies beside it."""
    run = PapersRun(images, cores, rounds)
    run.race(watch)
    return run.result()


class PapersRun:
    """The fourth paper's experiment: after `race`, or where it was interrupted, the `result`."""

    def __init__(self, images: int, cores: int, rounds: int) -> None:
        self._header = PapersResult.header("parallel-papers", machine.idle_cores())
        self._data, self._cores, self._rounds = papers_data(images), cores, rounds
        self._rows: list[Row] = []

    def race(self, watch: Watch) -> None:
        """Time all strategies in turn."""
        matrix_peak(self._cores)  # measured before the race, while the machine is idle

        def kept(rows: list[Row], doing: str) -> None:
            self._rows = rows
            watch(rows, doing)

        with ExitStack() as stack:
            entered = pareo_strategies(self._data, self._cores, stack)
            for name, make in PEERS.items():
                entered += peer_strategies(name, make, self._data, self._cores, stack)
            self._rows = race(entered, self._rounds, kept)

    def result(self) -> PapersResult:
        """Everything that is known so far."""
        rows, work = self._rows, flops(self._data)
        rates = [work / (row.networks * row.seconds) if row.seconds else 0.0 for row in rows]
        peak = matrix_peak(self._cores, reached=max(rates, default=0.0))
        for row, rate in zip(rows, rates, strict=True):
            row.of_peak = rate / peak or None
        return PapersResult(
            **self._header,
            network="mlp-small, mlp-medium, mlp-big",
            batch=paper.BATCH,
            images=len(self._data.images),
            test_images=len(self._data.test_images),
            workers=[self._cores],
            flops=work,
            sgemm_peak=peak,
            rows=rows,
            published=Published(
                epochs=paper.EPOCHS,
                seconds={name: list(times) for name, times in paper.PUBLISHED.items()},
            ),
        )
