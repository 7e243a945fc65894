"""The fourth paper's three MLPs in the framework of the paper, Keras on TensorFlow, as it is today.

TensorFlow's threads are set once in a process: those inside an operator, and the operators at once.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pareo.array import Array
from pareo.lab.contestants import Task, tensorflow_step
from pareo.lab.parallel.papers_peers import AT_ONCE
from pareo.parallel.trials.scoring import PIECE


class TensorflowNetworks:
    """Networks in Keras, each with a graph of a training step and one of a test."""

    def __init__(self, tasks: Sequence[Task], how: str, threads: int) -> None:
        tensorflow_step.configure(threads, len(tasks) if how == AT_ONCE else threads)
        self._tf = tensorflow_step.tf
        self._tasks = tasks
        data = tensorflow_step.tensors(tasks[0].data())  # one copy for all networks
        self._trainers = [
            tensorflow_step.TensorflowTrainer(task, False, False, "float32", data) for task in tasks
        ]
        tests = tasks[0].test_data()
        assert tests is not None
        self._tests, self._answers = tensorflow_step.tensors(tests)
        self._scores = [self._score(trainer.model) for trainer in self._trainers]

    def restart(self, number: int) -> None:
        """Return to the first weights."""
        self._trainers[number].load(self._tasks[number].parameters())

    def train(self, number: int, order: Array) -> list[Any]:
        """Train a network, a step for each row; the losses."""
        return self._trainers[number].run(order)

    def test(self, number: int) -> tuple[float, float]:
        """The mean loss and the share of right answers, as pareo's own test has them."""
        pieces = [
            self._scores[number](
                self._tests[start : start + PIECE], self._answers[start : start + PIECE]
            )
            for start in range(0, len(self._answers), PIECE)
        ]
        loss, right = np.sum([[float(value) for value in piece] for piece in pieces], axis=0)
        return loss / len(self._answers), right / len(self._answers)

    def _score(self, model: Any) -> Any:
        """A graph of a piece of the test images: the sum of the losses, and the right answers."""
        tf = self._tf

        @tf.function(autograph=False)
        def score(images: Any, labels: Any) -> Any:
            logits = model(images, training=False)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            right = tf.argmax(logits, 1) == tf.cast(labels, tf.int64)
            return tf.reduce_sum(losses), tf.reduce_sum(tf.cast(right, tf.float32))

        return score
