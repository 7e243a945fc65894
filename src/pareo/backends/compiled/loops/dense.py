"""Training of dense layers as one compiled loop, in which the batch is split once for a whole step.

A step has two halves, with a barrier after each. First, each worker runs its rows of the batch
forward and backward through all layers, with matrix products on one thread. Then, each worker
updates its rows of all weights from the whole batch's values and gradients of values, so that no
gradient of weights is ever written or added up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pareo.array import Array
from pareo.backends import blas
from pareo.backends.compiled.kernels import elementwise_loops
from pareo.backends.compiled.kernels.activations import NONE, RELU, SIGMOID, TANH
from pareo.backends.compiled.kernels.loss import cross_entropy_rows
from pareo.backends.compiled.kernels.reduction import ROWS
from pareo.backends.compiled.loops.gather import gather
from pareo.backends.compiled.runtime.gemm import gemm
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.compiled.runtime.spin_barrier import spin_barrier
from pareo.backends.compiled.runtime.subnormals import flushed
from pareo.backends.threads import run_concurrently
from pareo.program.ir import Program

MIN_FLOPS = 200_000  # of a step for each worker: some microseconds, as long as two barriers
Arrays = tuple[Array, ...]
ACTIVATIONS = {
    "dot_bias": NONE,
    "dot_bias_sigmoid": SIGMOID,
    "dot_bias_tanh": TANH,
    "dot_bias_relu": RELU,
}


@dataclass(frozen=True)
class Dense:
    """A dense layer: the numbers of its parameters in a program, and its activation."""

    weights: int
    bias: int
    activation: int


def dense_layers(program: Program) -> list[Dense] | None:
    """The dense layers from the image to the loss; None if there is anything else.

    `program` computes a loss and its gradients, so the forward pass determines the rest.
    """
    made_by = {number: i for i in program.instructions for number in i.outputs}
    *parameters, image, label = program.inputs
    found: list[Dense] = []
    last = made_by.get(program.outputs[0])
    if last is None or last.name != "cross_entropy_with_gradient" or last.inputs[2] != label:
        return None
    value = last.inputs[1]
    while (i := made_by.get(value)) is not None and i.name in ACTIVATIONS:
        found.append(Dense(i.inputs[1], i.inputs[2], ACTIVATIONS[i.name]))
        value = i.inputs[0]
    if i is not None and i.name == "reshape":
        value = i.inputs[0]
    layers = found[::-1]
    used = [number for layer in layers for number in (layer.weights, layer.bias)]
    return layers if value == image and used == parameters else None


@jit
def _activate(y: Array, bias: Array, activation: int) -> None:
    """y = activation(y + bias), row by row."""
    for n in range(y.shape[0]):
        row = y[n]
        for i in range(bias.size):
            row[i] += bias[i]
        if activation == SIGMOID:
            elementwise_loops.sigmoid_in_place(row)
        elif activation == TANH:
            elementwise_loops.tanh_in_place(row)
        elif activation == RELU:
            elementwise_loops.relu_in_place(row)


@jit
def _activate_backward(g: Array, y: Array, activation: int) -> None:
    """g *= the derivative of the activation whose result is y, row by row."""
    for n in range(g.shape[0]):
        if activation == SIGMOID:
            elementwise_loops.sigmoid_gradient_in_place(g[n], y[n])
        elif activation == TANH:
            elementwise_loops.tanh_gradient_in_place(g[n], y[n])
        elif activation == RELU:
            elementwise_loops.relu_gradient_in_place(g[n], y[n])


@jit
def _descend(
    p: Array, velocity: Array, g: Array, rate: float, momentum: float, decay: float
) -> None:
    """Update a flat parameter by its gradient g; velocity is empty without momentum."""
    if velocity.size:
        for i in range(p.size):
            velocity[i] = momentum * velocity[i] + g[i] + decay * p[i]
        for i in range(p.size):
            p[i] -= rate * velocity[i]
    else:
        for i in range(p.size):
            p[i] -= rate * (g[i] + decay * p[i])


@jit
def _update_weights(
    product: int, w: Array, velocity: Array, x: Array, d: Array, lo: int,
    hi: int, rate: float, momentum: float, decay: float,
) -> None:  # fmt: skip
    """Update rows lo to hi of the weights; their gradient x.T @ d is added without a copy."""
    kind = w.dtype.type
    part = x[:, lo:hi]
    if velocity.size:
        gemm(product, velocity[lo:hi], part, True, d, False, kind(1), momentum)
        flat, moving = w[lo:hi].reshape(-1), velocity[lo:hi].reshape(-1)
        if decay != 0:
            for i in range(flat.size):
                moving[i] += decay * flat[i]
        for i in range(flat.size):
            flat[i] -= rate * moving[i]
    else:
        gemm(product, w[lo:hi], part, True, d, False, -rate, kind(1) - rate * decay)


@jit
def _add_rows(total: Array, part: Array, d: Array, lo: int) -> None:
    """total = the sums of d's columns from lo on; part is a buffer for a block of rows."""
    total[:] = 0
    for start in range(0, d.shape[0], ROWS):
        part[:] = 0
        for n in range(start, min(start + ROWS, d.shape[0])):
            row = d[n, lo : lo + part.size]
            for i in range(row.size):
                part[i] += row[i]
        for i in range(part.size):
            total[i] += part[i]


@jit
def _train(
    worker: int, workers: int, counter: Array, product: int, order: Array,
    images: Array, labels: Array, rate: float, momentum: float, decay: float,
    losses: Array, shares: Array, chosen_labels: Array, weights: Arrays,
    biases: Arrays, weight_velocities: Arrays, bias_velocities: Arrays,
    activations: tuple[int, ...], values: Arrays, gradients: Arrays, sums: Array,
) -> None:  # fmt: skip
    """Steps of training, one for each row of order.

    `values` are the inputs of each layer, and the logits; `gradients` are those of the outputs.
    """
    batch = order.shape[1]
    first, last = batch * worker // workers, batch * (worker + 1) // workers
    one, none = sums.dtype.type(1), sums.dtype.type(0)
    depth = len(weights)
    arrivals = 0
    for step in range(order.shape[0]):
        gather(values[0], chosen_labels, images, labels, order[step], first, last)
        for k in range(depth):
            y = values[k + 1][first:last]
            gemm(product, y, values[k][first:last], False, weights[k], False, one, none)
            _activate(y, biases[k], activations[k])
        shares[worker] = cross_entropy_rows(
            gradients[depth - 1][first:last], values[depth][first:last], chosen_labels[first:last],
            1.0 / batch, True,
        )  # fmt: skip
        for k in range(depth - 1, -1, -1):
            d = gradients[k][first:last]
            _activate_backward(d, values[k + 1][first:last], activations[k])
            if k > 0:
                before = gradients[k - 1][first:last]
                gemm(product, before, d, False, weights[k], True, one, none)
        arrivals += workers
        spin_barrier(counter.ctypes.data, arrivals)
        if worker == 0:
            losses[step] = shares.sum() / batch
        for k in range(depth - 1, -1, -1):
            w, b, d = weights[k], biases[k], gradients[k]
            lo, hi = w.shape[0] * worker // workers, w.shape[0] * (worker + 1) // workers
            _update_weights(
                product, w, weight_velocities[k], values[k], d, lo, hi, rate, momentum, decay
            )
            lo, hi = b.size * worker // workers, b.size * (worker + 1) // workers
            total, part = sums[worker, 0, : hi - lo], sums[worker, 1, : hi - lo]
            _add_rows(total, part, d, lo)
            _descend(b[lo:hi], bias_velocities[k][lo:hi], total, rate, momentum, decay)
        arrivals += workers
        spin_barrier(counter.ctypes.data, arrivals)


class DenseLoop:
    """Steps of training of a network of dense layers."""

    def __init__(self, program: Program, layers: list[Dense], threads: int, product: int) -> None:
        self._shapes = [program.specs[layer.weights].shape for layer in layers]
        self._itemsize = program.specs[layers[0].weights].dtype.itemsize
        self._activations = tuple(layer.activation for layer in layers)
        self._threads = threads
        self._product = product

    @flushed
    def __call__(
        self,
        parameters: Sequence[Array],
        velocities: Sequence[Array],
        images: Array,
        labels: Array,
        order: Array,
        rate: float,
        momentum: float,
        decay: float,
    ) -> Array:
        """Update parameters (and velocities) in place, one step for each row of order; the losses.

        The caller has checked all arguments (see `training.arguments`).
        """
        batch = order.shape[1]
        kind = parameters[0].dtype.type
        workers, widths = self._workers(batch), self._widths()
        values = tuple(np.empty((batch, width), kind) for width in widths)
        gradients = tuple(np.empty((batch, width), kind) for width in widths[1:])
        sums = np.empty((workers, 2, max(widths)), kind)
        losses, shares = np.zeros(len(order)), np.zeros(workers)
        counter, chosen_labels = np.zeros(1, np.int64), np.empty(batch, labels.dtype)
        no_velocities = [np.empty((0,) * p.ndim, kind) for p in parameters]
        moving = list(velocities) or no_velocities
        blas.threads(1)
        run_concurrently(
            workers,
            lambda worker: _train(
                worker, workers, counter, self._product, order, images.reshape(len(images), -1),
                labels, kind(rate), kind(momentum), kind(decay), losses, shares, chosen_labels,
                tuple(parameters[::2]), tuple(parameters[1::2]), tuple(moving[::2]),
                tuple(moving[1::2]), self._activations, values, gradients, sums,
            ),
        )  # fmt: skip
        return losses

    def nbytes(self, batch: int, momentum: bool) -> int:
        """The bytes of values and gradients for all images of a batch, and of sums."""
        widths = self._widths()
        numbers = batch * (sum(widths) + sum(widths[1:])) + 2 * self._workers(batch) * max(widths)
        return numbers * self._itemsize + 8 * batch  # and labels

    def _workers(self, batch: int) -> int:
        flops = 6 * batch * sum(rows * columns for rows, columns in self._shapes)
        return max(1, min(self._threads, flops // MIN_FLOPS))

    def _widths(self) -> list[int]:
        return [self._shapes[0][0]] + [columns for _, columns in self._shapes]


def loop(program: Program, threads: int) -> DenseLoop | None:
    """A loop for the gradient program of one image; None if not all layers are dense."""
    layers = dense_layers(program)
    product = blas.address(program.specs[program.inputs[0]].dtype)
    return DenseLoop(program, layers, threads, product) if layers and product else None
