"""Where training data comes from: MNIST, which is shipped, and files in the IDX format.

>>> from pareo.data import mnist
>>> mnist.load().train_images.shape
(60000, 28, 28)
"""

from pareo.data import idx, mnist
from pareo.data.mnist import Mnist

__all__ = ["Mnist", "idx", "mnist"]
