"""Workers with their own parameters train as one alone; a lost worker is replaced."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from splitting import EXACT, NORMAL, WIDE, alone, by_parts, same

from pareo.data import load
from pareo.parallel.data.replica import Replica, SharedMemoryReduce, train
from pareo.parallel.group.shared_memory import SharedArrays
from pareo.parallel.group.worker_group import WorkerGroup, run_workers
from pareo.training import checkpoint as files
from pareo.training import fit
from pareo.training.settings import Settings

pytestmark = pytest.mark.smoke

RUN = Settings(batch_size=11, rate=0.05, momentum=0.9, precision="float64")


def work(group: WorkerGroup, shared: SharedArrays, epochs: int) -> Any:
    images = load("synthetic:16:3:60")
    replica = Replica(WIDE, images, RUN, group.rank, group.workers, "vectorized")
    losses = train(replica, SharedMemoryReduce(group, shared), epochs)
    return losses, replica.checkpoint()


def test_replicas_stay_the_same_and_are_what_one_alone_would_be() -> None:
    specs = SharedMemoryReduce.specs(WIDE, RUN, 3)
    results, _ = run_workers(work, 3, "threads", specs, 2)
    expected = alone(WIDE, load("synthetic:16:3:60"), RUN, 2, "vectorized")
    for losses, found in results:
        assert losses == results[0][0]
        for path, array in found.parameters.items():
            np.testing.assert_array_equal(array, results[0][1].parameters[path])
        same(found.parameters, expected.parameters, **EXACT)
        same(found.slots, expected.slots, **EXACT)
        expected_losses = expected.history.column("loss")
        np.testing.assert_allclose(found.history.column("loss"), expected_losses, rtol=1e-9)


@pytest.mark.parametrize("lost_in", [2, 5, 7])
def test_a_lost_worker_is_created_again_from_the_others_checkpoint(
    lost_in: int, tmp_path: Path
) -> None:
    images = load("synthetic:16:3:60")

    def pair(start: Any = None) -> list[Replica]:
        return [Replica(WIDE, images, RUN, rank, 2, "vectorized", start) for rank in range(2)]

    def step(replicas: list[Replica]) -> float:
        total = sum(replica.gradients() for replica in replicas)
        losses = [replica.move(total) for replica in replicas]
        return losses[0]

    undisturbed = pair()
    expected = [step(undisturbed) for _ in range(10)]  # five in an epoch
    replicas = pair()
    found = [step(replicas) for _ in range(lost_in)]
    replicas[0].gradients()  # rank 1 is lost before it computes its own
    files.write(tmp_path / "last.safetensors", replicas[0].checkpoint())
    replicas = pair(files.load(tmp_path))
    found += [step(replicas) for _ in range(10 - lost_in)]
    assert found == expected


def test_fit_goes_on_from_a_replicas_checkpoint(tmp_path: Path) -> None:
    images = load("synthetic:16:3:60")
    replica = Replica(WIDE, images, RUN, 0, 1, "vectorized")
    for _ in range(7):
        replica.move(replica.gradients().copy())
    files.write(tmp_path / "last.safetensors", replica.checkpoint())
    found = fit(
        WIDE, images, RUN, epochs=2, device="vectorized", resume=tmp_path, progress=False,
    )  # fmt: skip
    same(found.parameters, alone(WIDE, images, RUN, 2, "vectorized").parameters, **EXACT)


FULL = Settings(
    7, 0.01, seed=3, precision="float64", optimizer="adamw", decay=0.1, clip=0.5, average=0.9,
    augment="flip,crop:1", smoothing=0.1, class_weights=(1.0, 0.5, 2.0),
    schedule="warmup:1+cosine", epochs=2, train_only=("3", "6"),
)  # fmt: skip


def test_replicas_follow_the_recipe_and_are_restored_with_their_slots(tmp_path: Path) -> None:
    images = load("synthetic:2x8x8:3:32")  # 27 to train with
    one = Replica(NORMAL, images, FULL, 0, 1, "vectorized")
    for step in range(8):
        one.move(one.gradients().copy())
        if step == 4:  # in the second epoch
            files.write(tmp_path / "last.safetensors", one.checkpoint())
    expected = alone(NORMAL, images, FULL, 2, "vectorized")
    same(one.checkpoint().parameters, expected.parameters, **EXACT)
    same(one.checkpoint().slots, expected.slots, **EXACT)
    again = Replica(NORMAL, images, FULL, 0, 1, "vectorized", files.load(tmp_path))
    for _ in range(3):
        again.move(again.gradients().copy())
    same(again.checkpoint().parameters, one.checkpoint().parameters, rtol=0, atol=0)
    same(again.checkpoint().slots, one.checkpoint().slots, rtol=0, atol=0)


def test_each_replica_has_its_own_statistics() -> None:
    images = load("synthetic:2x8x8:3:32")
    run = Settings(8, 0.01, seed=3, precision="float64", optimizer="adam", decay=0.1)
    pair = [Replica(NORMAL, images, run, rank, 2, "vectorized") for rank in range(2)]
    losses = []
    for _ in range(8):  # four in an epoch
        total = pair[0].gradients() + pair[1].gradients()
        losses.append(pair[0].move(total))
        assert pair[1].move(total) == losses[-1]
    expected, parameters = by_parts(NORMAL, images, run, 2, parts=2, chained=False)
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    same(pair[0].checkpoint().parameters, parameters, **EXACT)
    others = pair[1].checkpoint().parameters
    for path, array in parameters.items():
        assert np.allclose(others[path], array) != (path in NORMAL.state), path
