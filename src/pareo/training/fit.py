"""The training loop: shuffle, step, test, record; it stops cleanly and resumes exactly."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import ArrayLike

from pareo.data import Dataset
from pareo.device import PRECISIONS, Device, current
from pareo.interrupt import ENDINGS, Interrupt, Terminated, report
from pareo.nn.network import Sequential
from pareo.training import checkpoint as files
from pareo.training import inputs
from pareo.training.callbacks import Callback, Callbacks, Function
from pareo.training.checkpoint import Checkpoint
from pareo.training.checks import SettingError, whole
from pareo.training.evaluate import Evaluator, evaluation_batch
from pareo.training.floor import peak
from pareo.training.history import Epoch
from pareo.training.lock import locked
from pareo.training.notebook_bar import NotebookBar as Bar
from pareo.training.result import DivergenceError, Result
from pareo.training.resume import identity, resumed, target
from pareo.training.settings import Settings, Shortcuts
from pareo.training.step import Step, new_slots

__all__ = ["Callback", "DivergenceError", "Result", "fit", "shuffled"]

CHUNK_SECONDS = 0.2  # often enough for the progress bar and Ctrl-C, seldom enough to cost nothing
CHECKPOINT_SECONDS = 60.0


def fit(
    network: Sequential,
    data: Dataset | ArrayLike,
    labels: ArrayLike | Settings | None = None,
    settings: Settings | None = None,
    *,
    epochs: int | None = None,
    device: Device | str | None = None,
    weights: Mapping[str, Any] | None = None,
    patience: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    callbacks: Sequence[Callback | Function] = (),
    progress: bool = True,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    threads: Callable[[], int] | None = None,
    **shortcuts: Unpack[Shortcuts],
) -> Result:
    """Train a network on data, testing after every epoch.

    The same settings, data and device give the same bits, whether the run was interrupted or not.

    Args:
        network: what to train; it starts from `network.initialise(seed)`.
        data: a `pareo.data.Dataset`; or images, all of which are trained on, with their labels.
        labels: of images that are arrays, as `Dataset.of` takes them.
        settings: how to train: optimizer, rate, schedule, batch size and the others that `Settings`
            lists. Each of them may also be given here by its name, which replaces that of
            `settings`: `fit(network, data, optimizer="adam", rate=1e-3)`.
        epochs: how many passes over the data in all, those before `resume` included; 1 unless
            the settings have another number.
        device: where to run, by name or as a `Device`; None is the one in scope.
        weights: parameters by path to start from, such as those of another run; a path that is
            missing gets its initial value.
        patience: end the run after so many epochs without a better one; see `History.best`.
        checkpoint: a directory for `last.safetensors` and, of the best epoch so far,
            `best.safetensors`; or one file. The last is written at the start, after each epoch,
            every `checkpoint_seconds` in between, and at Ctrl-C, SIGTERM and SIGHUP. Two runs at a
            time cannot write to one.
        resume: a checkpoint, or its directory, to resume from; the settings must match it. More
            `epochs` extend a finished run: a schedule that depends on their number continues as
            that of the longer run.
        callbacks: each a `Callback`, or a function that is called with the `Result` so far after
            each epoch; one that returns True ends the run.
        progress: whether to show a bar, in a notebook or where standard error is a terminal.
        threads: called between steps, returns how many CPU threads to use from now on, for a run
            that shares the machine with others; `floor` of its epochs is then None.

    Raises:
        SettingError: a setting is out of range, or does not fit the data.
        DivergenceError: the loss became NaN or infinite.
        DataError: a checkpoint cannot be read or written, or is of another run.
        Terminated: SIGTERM or SIGHUP came; a checkpoint was written before.

    Example:
        >>> from pareo.data import load
        >>> from pareo.nn import networks
        >>> data = load("synthetic:16:3:120")
        >>> fit(networks.mlp([16, 8, 3]), data, epochs=9, batch_size=20).accuracy
        1.0
        >>> result = fit(networks.mlp([16, 8, 3]), data.images, data.labels, epochs=9, rate=0.5)
        >>> float((result.predict(data.test_images) == data.test_labels).mean())
        1.0
    """
    data, settings = _given(network, data, labels, settings)
    place = Device(device) if isinstance(device, str) else device or current()
    chosen, epochs = _chosen(settings, epochs, shortcuts, place)
    if chosen.precision in PRECISIONS:
        place = Device(str(place), place.threads, chosen.precision)
    chosen.recipe.check(network)  # before anything is written
    patience = None if patience is None else whole("patience", patience, 1)
    file = None if checkpoint is None else target(checkpoint, resume)
    with ExitStack() as scope:
        if file is not None:
            scope.enter_context(locked(file))  # first: another run may be about to write it
        start = None if resume is None else resumed(resume, network, data, chosen)
        run = _Run(network, data, chosen, place, start, file, checkpoint_seconds, threads, weights)
        watching = Callbacks(callbacks)
        # Without a checkpoint nothing could be saved, so these signals end the process as usual.
        interrupt = scope.enter_context(Interrupt(ENDINGS if file is not None else ()))
        bar = scope.enter_context(Bar(network.name, epochs, run.count, progress))
        if file is not None and start is None:
            run.write()  # fail now if the directory cannot be written
        watching.start(run.result)
        while run.state.epoch < epochs and not run.waited(patience):
            run.train(interrupt, bar)
            if run.state.step:
                run.write()
                run.result.interrupted = True
                break
            run.write()
            run.keep_best()
            bar.tested(run.state.history[-1])
            if watching.epoch(run.result):
                break
            if interrupt.asked and run.state.epoch < epochs:
                run.result.interrupted = True
                break
    watching.end(run.result)
    if interrupt.signal is not None:
        report(interrupt.signal, f": continue with --resume {file}")
        raise Terminated(interrupt.signal)
    return run.result


def _given(
    network: Any, data: Any, labels: Any, settings: Settings | None
) -> tuple[Dataset, Settings | None]:
    """The data, and the settings, which may follow a dataset without a name."""
    if not isinstance(network, Sequential):
        raise SettingError(f"fit expects a network, such as nn.Sequential; got {network!r:.60}")
    if not network.parameters(network.inputs):
        raise SettingError(f"fit expects a network with parameters; {network.name} has none")
    if not isinstance(data, Dataset):
        if labels is None or isinstance(labels, Settings):
            raise SettingError(f"fit expects a Dataset, or images and labels; got {type(data)!r}")
        return Dataset.of(data, labels, test=0), settings
    if labels is None:
        return data, settings
    if settings is None and isinstance(labels, Settings):
        return data, labels
    raise SettingError("fit expects labels with images that are arrays, not with a Dataset")


def _chosen(
    settings: Settings | None, epochs: int | None, shortcuts: Shortcuts, place: Device
) -> tuple[Settings, int]:
    """The settings with the shortcuts, and the number of epochs."""
    if settings is not None and not isinstance(settings, Settings):
        raise SettingError(f"fit expects settings of pareo.training.Settings; got {settings!r:.60}")
    settings = settings or Settings()
    epochs = whole("epochs", settings.epochs or 1 if epochs is None else epochs, 1)
    settings = settings.changed(**shortcuts, epochs=epochs)
    if settings.precision == "float32":  # unless the device was given another
        settings = settings.changed(precision=place.precision)
    return settings, epochs


class _Run:
    """A run in progress: arrays, programs, and the checkpoint it would write now."""

    def __init__(
        self,
        network: Sequential,
        data: Dataset,
        settings: Settings,
        device: Device,
        start: Checkpoint | None,
        target: Path | None,
        every: float,
        threads: Callable[[], int] | None = None,
        weights: Mapping[str, Any] | None = None,
    ) -> None:
        self.settings, self.device, self.target, self.every = settings, device, target, every
        self._threads = threads
        self.network = network
        self.images, self.labels, self.test = inputs.parts(network, data, settings)
        self.count = len(self.images)
        self.state = start or self._new(data, weights)
        self.state.place = {"device": str(device), "threads": device.threads}
        self.result = Result(
            network, self.state.parameters, self.state.history, device, settings, False, target,
            self.state.slots,
        )  # fmt: skip
        self._place()
        self._steps: dict[tuple[int, Device], Step] = {}
        self._evaluators: dict[Device, Evaluator] = {}
        self._rows = 1
        self._written, self._cost = time.monotonic(), 0.0

    def _place(self) -> None:
        """Move everything that steps need to the device."""
        backend = self.device.backend
        with self.device, backend.scope(self.device):
            self.labels = backend.to_device(self.labels)
            self.images = backend.place_dataset(self.images)
            if self.test is not None:
                self.test = backend.place_dataset(self.test[0]), self.test[1]
            moved = self.state.parameters, self.state.slots
            self.parameters, self.slots = (
                {path: backend.to_device(a) for path, a in arrays.items()} for arrays in moved
            )

    def _fetch(self) -> None:
        """Copy the present parameters to the result and the checkpoint."""
        backend = self.device.backend
        with self.device, backend.scope(self.device):
            for known, arrays in (
                (self.state.parameters, self.parameters),
                (self.state.slots, self.slots),
            ):
                known.update({path: backend.to_host(a) for path, a in arrays.items()})

    def _new(self, data: Dataset, weights: Mapping[str, Any] | None) -> Checkpoint:
        parameters = self.network.initialise(self.settings.seed, self.settings.dtype)
        parameters |= inputs.starting(weights or {}, parameters)
        return Checkpoint(
            self.network,
            parameters,
            new_slots(self.network, self.settings.recipe, parameters),
            settings=self.settings.plain(),
            data={} if self.target is None else identity(data),  # the fingerprint reads all of it
        )

    def waited(self, patience: int | None) -> bool:
        """Whether the last `patience` epochs brought nothing better."""
        best, history = self.state.history.best, self.state.history
        return patience is not None and best is not None and len(history) - 1 - best >= patience

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """The batch size, how many batches of it an epoch has, and the images that are left."""
        size = min(self.settings.batch_size, self.count)
        return size, *divmod(self.count, size)

    def train(self, interrupt: Interrupt, bar: Bar) -> None:
        """Train for the rest of an epoch; if interrupted, `state.step` is how far it came."""
        state = self.state
        order = shuffled(self.count, self.settings.order_seed, state.epoch)
        size, whole_steps, rest = self._sizes
        steps = whole_steps + bool(rest)
        if rest and self.network.state:
            self._step(rest)  # too small a batch has no statistics: fail before the epoch
        while state.step < steps:
            if interrupt.asked and state.step:
                return
            self._share()
            first = state.step
            if first < whole_steps:
                last = min(whole_steps, first + self._rows)
                rows = order[first * size : last * size].reshape(-1, size)
            else:
                rows = order[whole_steps * size :].reshape(1, rest)
            self._chunk(rows, state.epoch * steps + first)
            done = min(self.count, state.step * size)
            speed = done / state.partial["seconds"]
            bar.move(state.epoch + 1, done, state.partial["loss"] / done, speed)
            if state.step < steps and self._due():
                self.write()
        self._finish()

    def _share(self) -> None:
        """Continue with as many threads as this run may use now."""
        count = self.device.threads if self._threads is None else self._threads()
        if count != self.device.threads:
            self.device = Device(str(self.device), count, self.device.precision)

    def _chunk(self, rows: Any, first: int) -> None:
        """Do several steps of one batch size in one call."""
        state = self.state
        step = self._step(rows.shape[1])
        _, whole_steps, rest = self._sizes
        rates = self.settings.rates(first, len(rows), whole_steps + bool(rest))
        begin = time.perf_counter()
        losses = step.run(
            self.parameters, self.slots, self.images, self.labels, rows, rates,
            seed=self.settings.seed, first=first,
        )  # fmt: skip
        took = time.perf_counter() - begin
        self._check(losses, state.step)
        # A running sum, term by term: the same bits however the steps are divided into chunks.
        terms = np.asarray(losses, np.float64) * rows.shape[1]
        state.partial["loss"] = float(np.cumsum([state.partial["loss"], *terms])[-1])
        state.partial["seconds"] += took
        state.step += len(rows)
        wanted = int(CHUNK_SECONDS / max(took / len(rows), 1e-9))
        self._rows = max(1, min(wanted, 8 * self._rows))

    def _check(self, losses: Any, before: int) -> None:
        wrong = np.flatnonzero(~np.isfinite(losses))
        if len(wrong):
            self._diverged(f"the loss became {losses[wrong[0]]}", before + int(wrong[0]) + 1)

    def _diverged(self, what: str, step: int) -> None:
        kept = ""
        if self.target is not None:
            kept = f"; {self.target} is unchanged"
        raise DivergenceError(
            f"{what} in epoch {self.state.epoch + 1}, step {step}: "
            f"try a rate below {self.settings.rate:g}{kept}"
        )

    def _finish(self) -> None:
        """Test, record the epoch, and prepare for the next."""
        state = self.state
        tested: tuple[float | None, float | None] = (None, None)
        if self.test is not None:
            weights = files.averaged(self.parameters, self.slots)
            tested = self._evaluator(self.test[0])(weights, *self.test, self.settings.loss)
        seconds = state.partial["seconds"]
        speed = self._epoch_flops() / seconds
        alone = self._threads is None
        limit = peak(self.device, self.settings.dtype, reached=speed) if alone else None
        epoch = Epoch(
            number=state.epoch + 1,
            seconds=seconds,
            loss=state.partial["loss"] / self.count,
            accuracy=tested[1],
            test_loss=tested[0],
            images=self.count / seconds,
            flops=speed,
            floor=speed / limit if limit else None,
        )
        state.history.add(epoch)
        state.epoch, state.step = state.epoch + 1, 0
        state.partial = {"loss": 0.0, "seconds": 0.0}
        self._fetch()

    def _epoch_flops(self) -> int:
        size, whole_steps, rest = self._sizes
        flops = whole_steps * self._step(size).program.flops
        return flops + (self._step(rest).program.flops if rest else 0)

    def _evaluator(self, images: Any) -> Evaluator:
        if self.device not in self._evaluators:
            size, dtype = self.settings.batch_size, self.settings.dtype
            batch = min(evaluation_batch(self.network, self.device, size, dtype), len(images))
            self._evaluators[self.device] = Evaluator(self.network, self.device, batch, dtype)
        return self._evaluators[self.device]

    def _step(self, size: int) -> Step:
        if (size, self.device) not in self._steps:
            settings = self.settings
            step = Step(self.network, size, self.device, settings.recipe, settings.dtype)
            if self.device.name in ("compiled", "cuda"):
                self._warm(step)
            self._steps[size, self.device] = step
        return self._steps[size, self.device]

    def _warm(self, step: Step) -> None:
        """Do one untimed step on copies: the first step compiles machine code."""
        with self.device.backend.scope(self.device):
            parameters = {path: a.copy() for path, a in self.parameters.items()}
            slots = {path: a.copy() for path, a in self.slots.items()}
        rows = np.zeros((1, step.batch), np.int64)
        step.run(parameters, slots, self.images, self.labels, rows, 0.0)

    def _due(self) -> bool:
        """Whether a checkpoint is due: writing may take at most a twentieth of the time."""
        since = time.monotonic() - self._written
        return self.target is not None and since >= max(self.every, 20 * self._cost)

    def write(self) -> None:
        """Write the checkpoint, if one was requested."""
        if self.target is None:
            return
        self._fetch()
        # No loss has checked the last step's weights yet, and bad ones must not replace the file.
        if not all(np.isfinite(a).all() for a in self.state.parameters.values()):
            self._diverged("the weights became infinite", self.state.step)
        begin = time.monotonic()
        files.write(self.target, self.state)
        self._written = time.monotonic()
        self._cost = self._written - begin

    def keep_best(self) -> None:
        """Keep the checkpoint that was just written, if its epoch is the best so far."""
        best = self.state.history.best == len(self.state.history) - 1
        if best and self.target is not None and self.target.name == files.NAME:
            files.keep(self.target, files.BEST)


def shuffled(count: int, seed: int, epoch: int) -> Any:
    """The order of the images in an epoch, from the seed and the epoch alone.

    >>> sorted(shuffled(4, seed=0, epoch=3).tolist())
    [0, 1, 2, 3]
    """
    return np.random.default_rng([seed, epoch]).permutation(count)
