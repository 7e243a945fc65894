"""A race from Python."""

from collections.abc import Callable, Sequence
from typing import Any

from pareo.device import PRECISIONS, cores
from pareo.errors import PareoError
from pareo.lab.contestants.registry import chosen, usual
from pareo.lab.experiment import main_guard
from pareo.lab.experiment.in_notebook import watching
from pareo.lab.experiment.tasks import task_for
from pareo.lab.race.engine import Race, Rules
from pareo.lab.race.result import RaceResult
from pareo.nn.layers import Shape
from pareo.training.own import named


def race(
    network: Any,
    batch: int = 128,
    contestants: Sequence[str] = (),
    *,
    name: str | None = None,
    input_shape: Shape | None = None,
    data: str | None = None,
    loss: Any = "cross-entropy",
    precision: str = "float32",
    epochs: int | None = None,
    target_accuracy: float | None = None,
    quick: bool = False,
    seconds: float | None = None,
    threads: int | None = None,
    together: bool = False,
    watch: Callable[[Race], None] | None = None,
) -> RaceResult:
    """Train one network in every contestant, and compare with the limit, as `pareo race`.

    Args:
        network: a name, as on the command line; a network of pareo, what `pareo.from_torch`
            returned, or a `torch.nn.Module`, which is imported and also races as itself.
        contestants: by name; without, all that are usual here.
        name: what to call a network that is not given by name.
        input_shape: of one input, for a network that does not say.
        loss: a name, as on the command line; a function of outputs and labels, or a
            `pareo.training.losses.Loss`, at the top of a module.
        watch: called with the race whenever something changes; without, a notebook shows it.

    Contestants run in processes of their own, which import the main program: in a script, call this
    below `if __name__ == "__main__":`. The result shows itself in a notebook.
    """
    main_guard.check("pareo.race")
    if precision not in PRECISIONS:
        raise PareoError(f"a precision is one of {', '.join(PRECISIONS)}; got {precision!r}")
    if type(batch) is not int or batch < 1:
        raise PareoError(f"race expects a batch of at least 1; got {batch!r}")
    found = named(network, name)
    task = task_for(found, batch, threads or cores(), source=data, shape=input_shape, loss=loss)
    rules = Rules.asked(quick, epochs, target_accuracy, seconds, together)
    entered = chosen(list(contestants) or usual(task))
    shown = watch or watching(lambda race: race.rows.values(), "epoch")
    return Race(task, entered, rules, precision, shown).run()
