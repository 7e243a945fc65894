"""Keras 3 on TensorFlow: a model of Keras's own layers, a tf.function for each step, XLA or not.

The step is Keras's own `train_step` (tape, loss, SGD) without the metrics and callbacks that `fit`
and `train_on_batch` add to it. Images are channels last: others Keras transposes around each pool.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pareo import nn
from pareo.lab.contestants import Array, Task, Trainer, Window, forward, pair, unknown

tf: Any  # imported by `load`, when needed
keras: Any

Sides = tuple[tuple[int, int], tuple[int, int]]  # ((top, bottom), (left, right))


def build(task: Task, xla: bool = False, gpu: bool = False, precision: str = "float32") -> Trainer:
    """The task in Keras on TensorFlow, on a GPU only if asked."""
    load()
    keras.config.set_floatx("float32")  # whatever the user's keras.json says
    keras.config.set_image_data_format("channels_last")
    tf.config.threading.set_intra_op_parallelism_threads(task.threads)
    tf.config.threading.set_inter_op_parallelism_threads(task.threads)
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


def load(**_: object) -> None:
    """Import TensorFlow and Keras for this module."""
    global tf, keras
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # without its messages on start-up
    os.environ["KERAS_BACKEND"] = "tensorflow"  # read once, when Keras is imported
    tf, keras = import_module("tensorflow"), import_module("keras")


class TensorflowTrainer:
    """The task as a Keras model and optimizer, whose step is traced once into a graph."""

    def __init__(self, task: Task, xla: bool, gpu: bool, precision: str) -> None:
        self._xla, self._gpu, self._precision = xla, gpu, precision
        images, labels = task.data()
        if images.ndim == 4:
            images = images.transpose(0, 2, 3, 1)
        images, labels = tf.constant(images), tf.constant(labels)
        model, weights = model_of(task)
        self._variables = variables_of(model, task)
        self.load(task.parameters())
        moving = list(self._variables.values())
        optimizer = keras.optimizers.SGD(task.rate)
        optimizer.build(moving)

        @tf.function(autograph=False, jit_compile=xla)
        def step(chosen: Any) -> Any:
            with tf.GradientTape() as tape:
                x, y = tf.gather(images, chosen), tf.gather(labels, chosen)
                outs = keras.tree.flatten(model(x, training=True))  # one comes without a list
                # Keras's own would take the logits out of a last Softmax layer.
                cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
                loss = sum(
                    weight * tf.reduce_mean(cross_entropy(labels=y, logits=out))
                    for weight, out in zip(weights, outs, strict=True)
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
        """The parameters now, filters first."""
        found = {path: variable.numpy() for path, variable in self._variables.items()}
        return {path: a.transpose(3, 2, 0, 1) if a.ndim == 4 else a for path, a in found.items()}

    def load(self, parameters: Mapping[str, Array]) -> None:
        """Continue from other parameters, filters first."""
        for path, variable in self._variables.items():
            a = parameters[path]
            variable.assign(a.transpose(2, 3, 1, 0) if a.ndim == 4 else a)

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


def model_of(task: Task) -> tuple[Any, list[float]]:
    """The task's network as a Keras model, and the weight of the loss of each of its outputs.

    The name of a layer with parameters is its path. Outputs after the first are auxiliary heads.
    """
    shape = task.network.inputs
    x = keras.Input((*shape[1:], shape[0]) if len(shape) == 3 else shape, task.batch)
    paths = {path: path for path in task.network.parameters(task.network.inputs)}
    heads: list[tuple[float, Any]] = []

    def join(parts: list[Any]) -> Any:
        return keras.ops.concatenate(parts, -1)

    out = forward(task.network, paths, x, layer, join, heads=heads)
    return keras.Model(x, [out, *(out for _, out in heads)]), [1.0, *(w for w, _ in heads)]


def variables_of(model: Any, task: Task) -> dict[str, Any]:
    """The model's variables by pareo's paths."""
    found = {}
    for path in task.network.parameters(task.network.inputs):
        name, _, kind = path.rpartition(".")
        kept = model.get_layer(name)
        found[path] = kept.kernel if kind == "w" else kept.bias
    return found


def layer(this: nn.Layer, w: str | None, b: str | None, x: Any) -> Any:
    """One of pareo's layers as Keras's, on images (N, H, W, C); w and b are paths."""
    name = None if w is None else w.removesuffix(".w")
    match this:
        case nn.Conv():
            vertical, horizontal = pair(this.padding)
            sides = (vertical, vertical), (horizontal, horizontal)
            x, how = padded(x, pair(this.size), pair(this.stride), sides)
            kind = keras.layers.Conv2D if this.groups == 1 else grouped_conv()
            return kind(
                this.filters, pair(this.size), pair(this.stride), how, groups=this.groups, name=name
            )(x)
        case nn.Subsample():
            return shared_filter()(pair(this.size), pair(this.stride), name=name)(x)
        case nn.MaxPool():
            window = Window.of(this, x.shape[1:3])
            x, how = padded(x, window.size, window.stride, window.padding, LOWEST)
            return keras.layers.MaxPooling2D(window.size, window.stride, how)(x)
        case nn.AveragePool():
            window = Window.of(this, x.shape[1:3])
            x, how = padded(x, window.size, window.stride, window.padding)
            means = keras.layers.AveragePooling2D(window.size, window.stride, how)(x)
            if how == "same" or window.padding == NO_SIDES:  # it counts a window's own pixels
                return means
            share = window.size[0] * window.size[1] / window.counts[..., None]
            return keras.layers.Lambda(lambda means: means * share)(means)
        case nn.Lrn() if this.size % 2:  # which Keras has not
            around = (this.size // 2, this.k, this.alpha / this.size, this.beta)
            normalise = tf.nn.local_response_normalization
            return keras.layers.Lambda(lambda x: normalise(x, *around))(x)
        case nn.Dense():
            return keras.layers.Dense(this.units, name=name)(x)
        case nn.Flatten():
            first = keras.layers.Permute((3, 1, 2))(x) if len(x.shape) == 4 else x
            return keras.layers.Flatten()(first)
        case nn.Sigmoid() | nn.Tanh() | nn.ReLU() | nn.Softmax():
            return keras.layers.Activation(type(this).__name__.lower())(x)
    raise unknown(this)


NO_SIDES: Sides = ((0, 0), (0, 0))
LOWEST = -3.4028235e38  # of all float32


def padded(
    x: Any, size: tuple[int, int], stride: tuple[int, int], sides: Sides, value: float = 0.0
) -> tuple[Any, str]:
    """Images and Keras's `padding`; the images are padded only if neither value of it fits.

    The values are `valid`, no padding, and `same`, enough for ceil(pixels / stride) windows.
    """
    if sides == NO_SIDES:
        return x, "valid"
    same = []
    for pixels, length, step in zip(x.shape[1:3], size, stride, strict=True):
        total = max(0, (-(-pixels // step) - 1) * step + length - pixels)
        same.append((total // 2, total - total // 2))
    if sides == tuple(same):
        return x, "same"
    return keras.ops.pad(x, ((0, 0), *sides, (0, 0)), constant_values=value), "valid"


def grouped_conv() -> Any:
    """Conv2D whose groups run one by one: Keras would leave them to XLA, in any graph."""

    class GroupedConv(keras.layers.Conv2D):
        def convolution_op(self, inputs: Any, kernel: Any) -> Any:
            split = (keras.ops.split(a, self.groups, -1) for a in (inputs, kernel))
            one = super().convolution_op
            return keras.ops.concatenate([one(x, w) for x, w in zip(*split, strict=True)], -1)

    return GroupedConv


def shared_filter() -> Any:
    """One filter over every channel; a plain product if windows do not overlap."""

    class SharedFilter(keras.layers.Layer):
        def __init__(self, size: tuple[int, int], stride: tuple[int, int], **rest: Any) -> None:
            super().__init__(**rest)
            self.size, self.stride = size, stride

        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=self.size, name="kernel")
            self.bias = self.add_weight(shape=(), name="bias")

        def call(self, x: Any) -> Any:
            return subsample(x, self.kernel, self.stride) + self.bias

    return SharedFilter


def subsample(x: Any, w: Any, stride: tuple[int, int]) -> Any:
    """What `shared_filter` computes, without its bias."""
    _, height, width, channels = x.shape  # the batch is unknown while Keras infers shapes
    kh, kw = w.shape
    ops = keras.ops
    if stride != (kh, kw):
        planes = ops.reshape(ops.transpose(x, (0, 3, 1, 2)), (-1, height, width, 1))
        planes = ops.conv(planes, ops.reshape(w, (kh, kw, 1, 1)), stride)
        planes = ops.reshape(planes, (-1, channels, *planes.shape[1:3]))
        return ops.transpose(planes, (0, 2, 3, 1))
    rows, columns = height // kh, width // kw
    tiles = x[:, : rows * kh, : columns * kw]
    tiles = ops.reshape(tiles, (-1, rows, kh, columns, kw, channels))
    return tf.einsum("nyuxvc,uv->nyxc", tiles, ops.convert_to_tensor(w))
