"""Training of dense layers as one compiled loop, the batch split once for a whole step.

Each worker takes its rows of the batch forward and back through all layers, with matrix products
on one thread. The workers meet. Then each moves its rows of all weights, from the whole batch's
values and errors, so that no gradient is ever written or added up. They meet again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.backends import blas
from pareo.backends.compiled.kernels import elementwise_loops
from pareo.backends.compiled.kernels.activations import NONE, RELU, SIGMOID, TANH
from pareo.backends.compiled.kernels.loss import cross_entropy_rows
from pareo.backends.compiled.kernels.reduction import ROWS
from pareo.backends.compiled.loops.runtime import multiply, wait_for_all
from pareo.backends.compiled.runtime.jit import jit
from pareo.backends.threads import run_concurrently

GRAIN = 200_000  # FLOPs of a step for each worker: some microseconds, as long as two meetings
ACTIVATIONS = {
    "dot_bias": NONE,
    "dot_bias_sigmoid": SIGMOID,
    "dot_bias_tanh": TANH,
    "dot_bias_relu": RELU,
}


@dataclass(frozen=True)
class Dense:
    """A dense layer, by the numbers of its parameters in a program."""

    weights: int
    bias: int
    activation: int


def chain(program: Any) -> list[Dense] | None:
    """The dense layers from the image to the loss; None where there is anything else.

    `program` gives a loss and its gradients, so the way forward says all.
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
def _activate(y: Any, bias: Any, activation: int) -> None:
    """y = activation(y + bias), row by row."""
    for n in range(y.shape[0]):
        row = y[n]
        for i in range(bias.size):
            row[i] += bias[i]
        if activation == SIGMOID:
            elementwise_loops.sigmoid_here(row)
        elif activation == TANH:
            elementwise_loops.tanh_here(row)
        elif activation == RELU:
            elementwise_loops.relu_here(row)


@jit
def _back(g: Any, y: Any, activation: int) -> None:
    """g times the slope of the activation whose result was y, row by row."""
    for n in range(g.shape[0]):
        if activation == SIGMOID:
            elementwise_loops.sigmoid_gradient_here(g[n], y[n])
        elif activation == TANH:
            elementwise_loops.tanh_gradient_here(g[n], y[n])
        elif activation == RELU:
            elementwise_loops.relu_gradient_here(g[n], y[n])


@jit
def _descend(p: Any, velocity: Any, g: Any, rate: Any, momentum: Any, decay: Any) -> None:
    """Move a flat parameter by its gradient g; velocity is empty without momentum."""
    if velocity.size:
        for i in range(p.size):
            velocity[i] = momentum * velocity[i] + g[i] + decay * p[i]
        for i in range(p.size):
            p[i] -= rate * velocity[i]
    else:
        for i in range(p.size):
            p[i] -= rate * (g[i] + decay * p[i])


@jit
def _move_weights(
    product: int, w: Any, velocity: Any, x: Any, d: Any, lo: int, hi: int,
    rate: Any, momentum: Any, decay: Any,
) -> None:  # fmt: skip
    """Rows lo to hi of the weights, whose gradient x.T @ d goes straight into what it changes."""
    kind = w.dtype.type
    part = x[:, lo:hi]
    if velocity.size:
        multiply(product, velocity[lo:hi], part, True, d, False, kind(1), momentum)
        flat, speed = w[lo:hi].reshape(-1), velocity[lo:hi].reshape(-1)
        if decay != 0:
            for i in range(flat.size):
                speed[i] += decay * flat[i]
        for i in range(flat.size):
            flat[i] -= rate * speed[i]
    else:
        multiply(product, w[lo:hi], part, True, d, False, -rate, kind(1) - rate * decay)


@jit
def _add_rows(total: Any, part: Any, d: Any, lo: int) -> None:
    """total = the sums of d's columns from lo on; part has room for those of a block of rows."""
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
    worker: int, workers: int, counter: Any, product: int, order: Any, images: Any, labels: Any,
    rate: Any, momentum: Any, decay: Any, losses: Any, shares: Any, chosen: Any,
    weights: Any, biases: Any, weight_speeds: Any, bias_speeds: Any, activations: Any,
    values: Any, errors: Any, sums: Any,
) -> None:  # fmt: skip
    """Steps of training, one for each row of order.

    `values` are what goes into each layer, and the logits; `errors` what comes back to each.
    """
    batch = order.shape[1]
    first, last = batch * worker // workers, batch * (worker + 1) // workers
    one, none = sums.dtype.type(1), sums.dtype.type(0)
    depth = len(weights)
    met = 0
    for step in range(order.shape[0]):
        for place in range(first, last):
            values[0][place] = images[order[step, place]]
            chosen[place] = labels[order[step, place]]
        for k in range(depth):
            y = values[k + 1][first:last]
            multiply(product, y, values[k][first:last], False, weights[k], False, one, none)
            _activate(y, biases[k], activations[k])
        shares[worker] = cross_entropy_rows(
            errors[depth - 1][first:last], values[depth][first:last], chosen[first:last],
            1.0 / batch, True,
        )  # fmt: skip
        for k in range(depth - 1, -1, -1):
            d = errors[k][first:last]
            _back(d, values[k + 1][first:last], activations[k])
            if k > 0:
                before = errors[k - 1][first:last]
                multiply(product, before, d, False, weights[k], True, one, none)
        met += workers
        wait_for_all(counter.ctypes.data, met)
        if worker == 0:
            losses[step] = shares.sum() / batch
        for k in range(depth - 1, -1, -1):
            w, b, d = weights[k], biases[k], errors[k]
            lo, hi = w.shape[0] * worker // workers, w.shape[0] * (worker + 1) // workers
            _move_weights(product, w, weight_speeds[k], values[k], d, lo, hi, rate, momentum, decay)
            lo, hi = b.size * worker // workers, b.size * (worker + 1) // workers
            total, part = sums[worker, 0, : hi - lo], sums[worker, 1, : hi - lo]
            _add_rows(total, part, d, lo)
            _descend(b[lo:hi], bias_speeds[k][lo:hi], total, rate, momentum, decay)
        met += workers
        wait_for_all(counter.ctypes.data, met)


class DenseLoop:
    """Steps of training for a chain of dense layers."""

    def __init__(self, program: Any, layers: list[Dense], threads: int, product: int) -> None:
        self._shapes = [program.specs[layer.weights].shape for layer in layers]
        self._itemsize = program.specs[layers[0].weights].dtype.itemsize
        self._activations = tuple(layer.activation for layer in layers)
        self._threads = threads
        self._product = product

    def __call__(
        self,
        parameters: Sequence[Any],
        velocities: Sequence[Any],
        images: Any,
        labels: Any,
        order: Any,
        rate: float,
        momentum: float,
        decay: float,
    ) -> Any:
        """Move parameters (and velocities) in place, one step for each row of order; the losses.

        Whoever calls has checked everything (`training.arguments`).
        """
        batch = order.shape[1]
        kind = parameters[0].dtype.type
        workers, widths = self._workers(batch), self._widths()
        values = tuple(np.empty((batch, width), kind) for width in widths)
        errors = tuple(np.empty((batch, width), kind) for width in widths[1:])
        sums = np.empty((workers, 2, max(widths)), kind)
        losses, shares = np.zeros(len(order)), np.zeros(workers)
        counter, chosen = np.zeros(1, np.int64), np.empty(batch, labels.dtype)
        still = [np.empty((0,) * p.ndim, kind) for p in parameters]
        speeds = list(velocities) or still
        blas.threads(1)
        run_concurrently(
            workers,
            lambda worker: _train(
                worker, workers, counter, self._product, order, images.reshape(len(images), -1),
                labels, kind(rate), kind(momentum), kind(decay), losses, shares, chosen,
                tuple(parameters[::2]), tuple(parameters[1::2]), tuple(speeds[::2]),
                tuple(speeds[1::2]), self._activations, values, errors, sums,
            ),
        )  # fmt: skip
        return losses

    def nbytes(self, batch: int, momentum: bool) -> int:
        """What there is of values and errors, for all images of a batch, and of sums."""
        widths = self._widths()
        numbers = batch * (sum(widths) + sum(widths[1:])) + 2 * self._workers(batch) * max(widths)
        return numbers * self._itemsize + 8 * batch  # and labels

    def _workers(self, batch: int) -> int:
        flops = 6 * batch * sum(rows * columns for rows, columns in self._shapes)
        return max(1, min(self._threads, flops // GRAIN))

    def _widths(self) -> list[int]:
        return [self._shapes[0][0]] + [columns for _, columns in self._shapes]


def loop(program: Any, threads: int) -> DenseLoop | None:
    """A loop for the gradient program of one image, or None where it is not dense layers alone."""
    layers = chain(program)
    product = blas.address(program.specs[program.inputs[0]].dtype)
    return DenseLoop(program, layers, threads, product) if layers and product else None
