"""Datasets: MNIST, which is included, files of CIFAR, IDX, NPZ and images, or synthetic images.

>>> from pareo.data import load
>>> load("mnist")
<Dataset mnist: 60,000 images of 1x28x28 uint8, 10,000 more for testing, 10 classes>
"""

from pareo.data import cifar, fashion_mnist, idx, images, mnist, npz, synthetic
from pareo.data.dataset import Dataset
from pareo.data.mnist import Mnist
from pareo.data.sources import load
from pareo.data.statistics import ChannelStatistics

__all__ = [
    "ChannelStatistics",
    "Dataset",
    "Mnist",
    "cifar",
    "fashion_mnist",
    "idx",
    "images",
    "load",
    "mnist",
    "npz",
    "synthetic",
]
