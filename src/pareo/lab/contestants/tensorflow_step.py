"""TensorFlow: one tf.function for every step, through XLA or not, channels last."""

import os
from importlib import import_module
from typing import Any

from pareo import nn
from pareo.lab.contestants import Task, Trainer, Window, forward, pair, unknown

tf: Any  # imported by `build`, hence only where it is asked for


def build(task: Task, xla: bool = False, gpu: bool = False, precision: str = "float32") -> Trainer:
    """The task in TensorFlow, on a GPU only where that is asked for."""
    global tf
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # its notes on start-up are no result
    tf = import_module("tensorflow")
    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.config.threading.set_inter_op_parallelism_threads(task.threads)
    cards = tf.config.list_physical_devices("GPU")
    if not gpu:
        tf.config.set_visible_devices([], "GPU")
    elif not cards:
        raise RuntimeError("this TensorFlow sees no GPU")
    elif precision == "bfloat16":
        raise RuntimeError("this adapter computes in float32 or tf32, not in bfloat16")
    else:
        tf.config.experimental.set_memory_growth(cards[0], True)  # the card is shared
        tf.config.experimental.enable_tensor_float_32_execution(precision == "tf32")
    return TensorflowTrainer(task, xla, gpu, precision)


class TensorflowTrainer:
    """The task with variables and a tape, traced once into a graph."""

    def __init__(self, task: Task, xla: bool, gpu: bool, precision: str) -> None:
        self._xla, self._gpu, self._precision = xla, gpu, precision
        images, labels = task.data()
        if images.ndim == 4:
            images = images.transpose(0, 2, 3, 1)
        images, labels = tf.constant(images), tf.constant(labels)
        self._variables = {
            path: tf.Variable(a.transpose(2, 3, 1, 0) if a.ndim == 4 else a)
            for path, a in task.parameters().items()
        }
        moving = list(self._variables.values())

        @tf.function(autograph=False, jit_compile=xla)
        def step(chosen: Any) -> Any:
            with tf.GradientTape() as tape:
                x, y = tf.gather(images, chosen), tf.gather(labels, chosen)
                out = forward(task.network, self._variables, x, layer, lambda p: tf.concat(p, -1))
                loss = tf.reduce_mean(
                    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=out)
                )
            for variable, gradient in zip(moving, tape.gradient(loss, moving), strict=True):
                variable.assign_sub(task.rate * gradient)
            return loss

        self._step = step

    def run(self, order: Any) -> Any:
        """Train one step for each row of image numbers; the losses."""
        losses = [self._step(chosen) for chosen in tf.unstack(tf.constant(order))]
        losses[-1].numpy()  # which waits for all
        return losses

    def parameters(self) -> dict[str, Any]:
        """The parameters now, filters first."""
        found = {path: variable.numpy() for path, variable in self._variables.items()}
        return {path: a.transpose(3, 2, 0, 1) if a.ndim == 4 else a for path, a in found.items()}

    def load(self, parameters: dict[str, Any]) -> None:
        """Go on from other parameters, filters first."""
        for path, variable in self._variables.items():
            a = parameters[path]
            variable.assign(a.transpose(2, 3, 1, 0) if a.ndim == 4 else a)

    def facts(self) -> dict[str, Any]:
        """How it computes."""
        return {
            "precision": self._precision,
            "layout": "channels last",
            "mode": "tf.function, XLA" if self._xla else "tf.function",
            "version": tf.__version__,
            "first_layer_data_gradient": False,
        }

    def peak_bytes(self) -> int | None:
        """The most that TensorFlow has had of a GPU's memory; None on a CPU."""
        if not self._gpu:
            return None
        return int(tf.config.experimental.get_memory_info("GPU:0")["peak"])


def layer(this: nn.Layer, w: Any, b: Any, x: Any) -> Any:
    """One layer of pareo's, on images (N, H, W, C)."""
    match this:
        case nn.Conv():
            return tf.nn.bias_add(conv(x, w, this), b)
        case nn.Subsample():
            return subsample(x, w, b, pair(this.stride))
        case nn.MaxPool():
            window = Window.of(this, tuple(x.shape[1:3]))
            return tf.nn.max_pool2d(
                padded(x, window.padding, x.dtype.min), window.size, window.stride, "VALID"
            )
        case nn.AveragePool():
            window = Window.of(this, tuple(x.shape[1:3]))
            means = tf.nn.avg_pool2d(padded(x, window.padding), window.size, window.stride, "VALID")
            return means * (window.size[0] * window.size[1] / window.counts[..., None])
        case nn.Lrn() if this.size % 2:
            return tf.nn.local_response_normalization(
                x, this.size // 2, this.k, this.alpha / this.size, this.beta
            )
        case nn.Dense():
            return tf.nn.bias_add(x @ w, b)
        case nn.Flatten():
            first = tf.transpose(x, (0, 3, 1, 2)) if len(x.shape) == 4 else x
            return tf.reshape(first, (x.shape[0], -1))
        case nn.Sigmoid():
            return tf.sigmoid(x)
        case nn.Tanh():
            return tf.tanh(x)
        case nn.ReLU():
            return tf.nn.relu(x)
        case nn.Softmax():
            return tf.nn.softmax(x)
    raise unknown(this)


def padded(x: Any, padding: Any, value: float = 0.0) -> Any:
    """Images with pixels of a value around them."""
    if padding == ((0, 0), (0, 0)):
        return x
    return tf.pad(x, ((0, 0), *padding, (0, 0)), constant_values=value)


def conv(x: Any, w: Any, this: nn.Conv) -> Any:
    """A convolution without bias; groups one by one, for its CPU kernels know no others."""
    vertical, horizontal = pair(this.padding)
    sides = ((0, 0), (vertical, vertical), (horizontal, horizontal), (0, 0))
    if this.groups == 1:
        return tf.nn.conv2d(x, w, pair(this.stride), sides)
    parts = zip(tf.split(x, this.groups, -1), tf.split(w, this.groups, -1), strict=True)
    return tf.concat([tf.nn.conv2d(x, w, pair(this.stride), sides) for x, w in parts], -1)


def subsample(x: Any, w: Any, b: Any, stride: tuple[int, int]) -> Any:
    """One filter over every channel; as a plain product where windows do not overlap."""
    n, height, width, channels = x.shape
    kh, kw = w.shape
    if stride != (kh, kw):
        planes = tf.reshape(tf.transpose(x, (0, 3, 1, 2)), (-1, height, width, 1))
        planes = tf.nn.conv2d(planes, w[:, :, None, None], stride, "VALID")
        planes = tf.reshape(planes, (n, channels, *planes.shape[1:3]))
        return tf.transpose(planes, (0, 2, 3, 1)) + b
    rows, columns = height // kh, width // kw
    tiles = tf.reshape(x[:, : rows * kh, : columns * kw], (n, rows, kh, columns, kw, channels))
    return tf.einsum("nyuxvc,uv->nyxc", tiles, w) + b
