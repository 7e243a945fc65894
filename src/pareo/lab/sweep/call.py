"""A sweep from Python, and the settings that the command line shares with it."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from pareo.device import cores
from pareo.errors import PareoError
from pareo.lab.contestants.registry import chosen
from pareo.lab.experiment import main_guard
from pareo.lab.experiment.in_notebook import watching
from pareo.lab.experiment.tasks import check_pixels, task_for
from pareo.lab.machine import memory
from pareo.lab.sweep.admission import GPU_TURN
from pareo.lab.sweep.engine import Sweep
from pareo.lab.sweep.result import SweepResult
from pareo.lab.sweep.settings import Settings, batch_sizes
from pareo.machine import gpus
from pareo.nn.layers import Shape
from pareo.training.own import find, is_own, named

USUAL = ("pareo-compiled", "torch", "torch-onednn-off", "jax", "tensorflow")
USUAL_ON_GPU = ("pareo-cuda", "torch-cuda", "torch-cudagraph", "jax-cuda")
TURN = 0.5  # seconds of a sample


def sweep(
    network: Any,
    batches: str | Sequence[int] = "1..512",
    contestants: Sequence[str] = (),
    *,
    name: str | None = None,
    input_shape: Shape | None = None,
    data: str | None = None,
    watch: Callable[[Sweep], None] | None = None,
    **more: Any,
) -> SweepResult:
    """Time per image and memory of every contestant at every batch size, as `pareo sweep`.

    Args:
        network: a name, as on the command line; a network of pareo, what `pareo.from_torch`
            returned, or a `torch.nn.Module`, which is imported and also trained as itself.
        batches: "1..512" doubles from 1 to 512; or batch sizes.
        name: what to call a network that is not given by name.
        input_shape: of one input, for a network that does not say.
        watch: called with the sweep whenever something changes; without, a notebook shows it.
        more: further arguments of `settings_for`.

    Contestants run in processes of their own, which import the main program: in a script, call this
    below `if __name__ == "__main__":`. An interrupted sweep goes on when it is called again. The
    result shows itself in a notebook.
    """
    main_guard.check("pareo.sweep")
    sizes = batches if isinstance(batches, str) else ",".join(map(str, batches))
    settings = settings_for(
        named(network, name), sizes, list(contestants), data=data, shape=input_shape, **more
    )
    with closing(Sweep(settings)) as under_way:
        result = under_way.run(watch or watching(lambda sweep: sweep.cells.values(), "image"))
        under_way.finish()
    return result


def settings_for(
    network: str,
    batches: str,
    contestants: list[str],
    precision: str = "float32",
    threads: int | None = None,
    pixels: int | None = None,
    data: str | None = None,
    epochs: int | None = None,
    memory_limit: str | None = None,
    seconds: float = 60.0,
    patience: float = 600.0,
    interleave: int = 1,
    largest: bool = False,
    shape: Shape | None = None,
    within: float = 0.0,
) -> Settings:
    """The settings of a sweep, by the options of `pareo sweep`; `within` is in percent.

    >>> settings_for("lenet5", "1..4", ["jax-best"]).contestants
    ('jax', 'jax-scan', 'jax-channels-last')
    """
    check_pixels(pixels, network, data)
    if within and not largest and memory_limit is None:
        raise PareoError("--within expects --largest or --memory-limit, whose search it ends")
    names = _names(contestants)
    size = pixels or _inputs(network, data, shape)[-1]
    turn = GPU_TURN if all(one.gpu for one in chosen(list(names)).values()) else TURN
    return Settings(
        network, batch_sizes(batches), names, precision, threads or cores(), size, data, epochs,
        _limit(memory_limit, names), turn, seconds, patience, interleave, largest,
        within / 100, shape,
    )  # fmt: skip


def _inputs(network: str, data: str | None, shape: Shape | None) -> Shape:
    """The shape of one input."""
    if is_own(network):
        return task_for(network, 1, 1, source=data, shape=shape).network.inputs
    return find(network, shape).network.inputs


def _names(contestants: list[str]) -> tuple[str, ...]:
    """The contestants; each setting of a framework is one, as the best one depends on the batch."""
    usual = USUAL_ON_GPU if gpus() else USUAL
    found: list[str] = []
    for name, one in chosen(contestants or list(usual)).items():
        found += [*(one.tries or (name,))]
    return tuple(dict.fromkeys(found))


def _limit(text: str | None, names: tuple[str, ...]) -> int | None:
    """The limit in bytes, at most what is free wherever a contestant computes."""
    if text is None:
        return None
    try:
        asked = memory.parsed(text)
    except PareoError as error:
        raise PareoError(f"--memory-limit: {error}") from None
    on_gpu = {one.gpu for one in chosen(list(names)).values()}
    free = [memory.free()] if False in on_gpu else []
    free += [card.free for card in gpus()[:1]] if True in on_gpu else []
    least = min((size for size in free if size), default=None)
    if least is not None and asked > least:
        raise PareoError(
            f"--memory-limit expects at most the free memory, {least / 1e9:.1f} GB; got {text}"
        )
    return asked
