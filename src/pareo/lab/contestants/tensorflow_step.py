"""Keras 3 on TensorFlow: a model of Keras's own layers, a tf.function for each step, XLA or not.

The step is Keras's own `train_step` (tape, loss, SGD) without the metrics and callbacks that `fit`
and `train_on_batch` add to it. Images are channels last: others Keras transposes around each pool.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pareo import nn
from pareo.lab.contestants import (
    Array,
    Task,
    Trainer,
    tensorflow_layers,
    tensorflow_operators,
)
from pareo.lab.contestants.losses import loss_in

tf: Any  # imported by `load`, when needed
keras: Any


def build(task: Task, xla: bool = False, gpu: bool = False, precision: str = "float32") -> Trainer:
    """The task in Keras on TensorFlow, on a GPU only if asked."""
    configure(task.threads, task.threads)
    gpus = tf.config.list_physical_devices("GPU")
    if not gpu:
        tf.config.set_visible_devices([], "GPU")
    elif not gpus:
        raise RuntimeError("this TensorFlow sees no GPU")
    elif precision == "bfloat16":
        raise RuntimeError("this adapter computes in float32 or tf32, not in bfloat16")
    else:
        tf.config.experimental.set_memory_growth(gpus[0], True)  # the GPU is shared
        tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    return TensorflowTrainer(task, xla, gpu, precision)


def configure(threads: int, at_once: int) -> None:
    """Import TensorFlow with so many threads in an operator, and so many operators at once."""
    load()
    keras.config.set_floatx("float32")  # whatever the user's keras.json says
    keras.config.set_image_data_format("channels_last")
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(at_once)


def load(**_: object) -> None:
    """Import TensorFlow and Keras for this module."""
    global tf, keras
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # without its messages on start-up
    os.environ["KERAS_BACKEND"] = "tensorflow"  # read once, when Keras is imported
    with _silent():
        tf, keras = tensorflow_layers.load()


@contextmanager
def _silent() -> Iterator[None]:
    """Drop what the process writes to standard error: TensorFlow logs before it reads a level."""
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def tensors(data: tuple[Array, Array]) -> tuple[Any, Any]:
    """Images, channels last, and labels."""
    images, labels = data
    if images.ndim == 4:
        images = images.transpose(0, 2, 3, 1)
    return tf.constant(images), tf.constant(labels)


class TensorflowTrainer:
    """The task as a Keras model and optimizer, whose step is traced once into a graph."""

    def __init__(
        self, task: Task, xla: bool, gpu: bool, precision: str, data: tuple[Any, Any] | None = None
    ) -> None:
        """`data` are tensors that trainers share, with channels last; without, the task's own."""
        self._xla, self._gpu, self._precision = xla, gpu, precision
        images, labels = data or tensors(task.data())
        # A model for batches of any size, which also tests, where it shares data with others.
        model, weights = tensorflow_layers.model_of(task.network, None if data else task.batch)
        self.model = model
        layers = task.network.walk(task.network.inputs)
        filters = {path for path, layer, _ in layers if isinstance(layer, nn.Conv)}
        self._filters = {
            path: a.shape
            for path, a in task.parameters().items()
            if a.ndim == 4 and path.rpartition(".")[0] in filters
        }
        self._variables = tensorflow_layers.variables_of(model, task.network)
        self.load(task.parameters())
        state = set(task.network.state)  # running statistics: the layers move them themselves
        moving = [variable for path, variable in self._variables.items() if path not in state]
        # Keras's own cross-entropy would take the logits out of a last Softmax layer.
        mean_loss = loss_in(task, tensorflow_operators.load(), tf.constant)
        optimizer = keras.optimizers.SGD(task.rate)
        optimizer.build(moving)

        @tf.function(autograph=False, jit_compile=xla)
        def step(chosen: Any) -> Any:
            with tf.GradientTape() as tape:
                x, y = tf.gather(images, chosen), tf.gather(labels, chosen)
                outs = keras.tree.flatten(model(x, training=True))  # one comes without a list
                loss = sum(
                    weight * mean_loss(out, y) for weight, out in zip(weights, outs, strict=True)
                )
            optimizer.apply(tape.gradient(loss, moving), moving)
            return loss

        self._step = step

    def run(self, order: Array) -> list[Array]:
        """Train one step for each row of image numbers; the losses."""
        losses = [self._step(chosen) for chosen in tf.unstack(tf.constant(order))]
        losses[-1].numpy()  # which waits for all
        return losses

    def parameters(self) -> dict[str, Array]:
        """The parameters now, with running statistics, filters first."""
        found = {path: variable.numpy() for path, variable in self._variables.items()}
        return {path: self._filters_first(path, a) for path, a in found.items()}

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters, filters first."""
        for path, variable in self._variables.items():
            a = parameters[path]
            a = a.transpose(2, 3, 1, 0) if path in self._filters else a
            variable.assign(a.reshape(variable.shape))

    def _filters_first(self, path: str, a: Array) -> Array:
        """A variable in pareo's layout.

        Filters of a depthwise convolution are (kh, kw, channels, 1 or more): in this order they are
        those of (kh, kw, 1, filters).
        """
        shape = self._filters.get(path)
        if shape is None:
            return a
        return a.reshape(shape[2], shape[3], shape[1], shape[0]).transpose(3, 2, 0, 1)

    def facts(self) -> dict[str, object]:
        """How it computes."""
        return {
            "precision": self._precision,
            "layout": "channels last",
            "mode": "tf.function, XLA" if self._xla else "tf.function",
            "version": f"{tf.__version__}, Keras {keras.__version__}",
            "first_layer_data_gradient": False,
        }

    def peak_bytes(self) -> int | None:
        """The most GPU memory that TensorFlow has had; None on a CPU."""
        if not self._gpu:
            return None
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])
