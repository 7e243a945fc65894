"""What `pareo train` prints: in a log, lines for epochs; at its end settings, accuracy, speed."""

import sys

from pareo.cli.live import Log, say_if_busy
from pareo.data import Dataset
from pareo.program.text import amount
from pareo.training.callbacks import Callback
from pareo.training.evaluate import evaluate
from pareo.training.fit import Result
from pareo.training.losses import CrossEntropy
from pareo.training.optimizers import SGD
from pareo.training.schedules import Constant
from pareo.training.settings import Settings

BRIEFLY = 0.2  # seconds in which to see whether the machine is busy


class Lines(Callback):
    """Says if the machine is busy; in a log, a line for each epoch, a second apart at least."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs
        self._log = (lambda doing: None) if sys.stderr.isatty() else Log(every=1.0)

    def on_start(self, result: Result) -> None:
        """Announce the compilation."""
        if result.device.name != "cuda":
            say_if_busy(result.device.threads, BRIEFLY)
        self._log("building the training step; the first time, code is compiled")

    def on_epoch(self, result: Result) -> None:
        """Log the last epoch."""
        last = result.history[-1]
        words = [f"epoch {last.number} of {self._epochs}: loss {last.loss:.4f}"]
        words += [] if last.accuracy is None else [f"accuracy {last.accuracy:.2%}"]
        self._log(", ".join([*words, f"{last.images:,.0f} images/s"]))


def report(result: Result, data: Dataset) -> None:
    """Print the result of a run."""
    settings, history = result.settings, result.history
    place, count = str(result.device), result.device.threads
    if result.device.name != "cuda":
        place += f", {count} thread{'s' if count > 1 else ''}"
    print(f"{result.network.name} on {place}: {', '.join(_words(settings))}")
    print(f"epochs      {len(history)} of {_count(data, settings):,} images")
    if history:
        _report_test(result, data)
        print(f"loss        {history[-1].loss:.4f}")
        print(f"seconds     {history.seconds:.2f} of training alone")
        print(f"images/s    {history.images:,.0f}")
        if history.floor is not None:
            limit = amount(history.flops / history.floor, "FLOP/s")
            reached = amount(history.flops, "FLOP/s")
            print(f"floor       {history.floor:.1%} ({reached} of {limit}, a large matrix product)")
    if result.checkpoint is not None:
        print(f"checkpoint  {result.checkpoint}")


def _words(settings: Settings) -> list[str]:
    """The settings of a run that are not as usual, in words."""
    words = [f"batch {settings.batch_size}", f"rate {settings.rate:g}"]
    words += [str(settings.schedule)] if settings.schedule != Constant() else []
    sgd = isinstance(settings.optimizer, SGD) and not settings.optimizer.nesterov
    words += [] if sgd else [str(settings.optimizer)]
    words += [f"momentum {settings.momentum:g}"] if sgd and settings.momentum else []
    words += [settings.loss.name] if settings.loss.name != CrossEntropy.name else []
    for name in ("decay", "clip", "smoothing", "average", "augment", "validation"):
        value = getattr(settings, name)
        words += [f"{name} {value if name == 'augment' else format(value, 'g')}"] if value else []
    words += [f"only {', '.join(settings.train_only)}"] if settings.train_only else []
    return [*words, f"seed {settings.seed}", settings.precision]


def _count(data: Dataset, settings: Settings) -> int:
    """How many images were trained on."""
    if not settings.validation:
        return len(data.images)
    return len(data.split(settings.validation, settings.seed)[0].images)


def _report_test(result: Result, data: Dataset) -> None:
    """Print what the tests found; after a validation, also that of the test set."""
    settings, last = result.settings, result.history[-1]
    left = len(data.images) - _count(data, settings)
    kind = f"{left:,} validation images" if left else f"{len(data.test_images):,} test images"
    if last.accuracy is not None:
        print(f"accuracy    {last.accuracy:.2%} of {kind}")
    elif last.test_loss is not None:
        print(f"test loss   {last.test_loss:.4f} of {kind}")
    best = result.best
    if best is not None and best is not last and best.accuracy is not None:
        print(f"best        {best.accuracy:.2%} in epoch {best.number}")
    if left and len(data.test_images) and not data.has_targets:
        found = evaluate(result, data, device=result.device)
        print(f"test        {found.accuracy:.2%} of {found.images:,} test images")
