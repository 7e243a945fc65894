"""`pareo train --on ray`: split the batches of one network over the workers of a Ray cluster."""

from pathlib import Path

from pareo.data import Dataset
from pareo.device import Device
from pareo.nn.network import Sequential
from pareo.parallel.data import on_ray
from pareo.parallel.group.ray_cluster import connected
from pareo.training.fit import Result
from pareo.training.progress import Bar
from pareo.training.settings import Settings


def train_on(
    on: str,
    workers: int,
    network: Sequential,
    data: Dataset,
    device: Device,
    checkpoint: Path | None,
    resume: Path | None,
    settings: Settings,
    epochs: int,
) -> Result:
    """Train on a cluster, with a progress bar where standard error is a terminal."""
    count = len(data.images)
    with connected(on) as ray, Bar(network.name, epochs, count) as bar:

        def watch(run: on_ray.Run) -> None:
            history, batch = run.state.history, settings.batch_size
            speed = history[-1].images if history else 0.0
            if run.ahead:
                bar.move(run.state.epoch + 1, len(run.ahead) * batch, run.ahead[-1], speed)
            elif history:
                bar.tested(history[-1])

        return on_ray.fit(
            ray, network, data, settings.changed(epochs=epochs), epochs, workers, device,
            checkpoint, resume, watch,
        )  # fmt: skip
