"""The fourth paper: three MLPs on MNIST, each in its own thread, or one after another.

A. H. da Costa and T. Banevicius, Processamento Paralelo para Treinamento de Deep Neural Networks.
Keras 2.1.5 on TensorFlow 1.8.0; 256 epochs at batch 128. The paper does not name its processor.
"""

from pareo.lab.papers.published import paper
from pareo.parallel.trials.trial import Trial

PAPER = paper("costa-banevicius")
SIZES = ("small", "medium", "big")
EPOCHS, BATCH = int(PAPER.value("epochs")), int(PAPER.value("batch"))
RATE = 0.01

# Table 2: seconds of training and of testing.
PUBLISHED = {
    "separate threads": (PAPER.value("train-threads"), PAPER.value("test-threads")),
    "one thread": (PAPER.value("train-one"), PAPER.value("test-one")),
}


def trials(epochs: int = 1) -> list[Trial]:
    """The three networks, by plain SGD.

    >>> [trial.built.count() for trial in trials()]
    [233054, 619762, 1854170]
    """
    return [Trial(f"mlp-{size}", rate=RATE, batch_size=BATCH, epochs=epochs) for size in SIZES]
