"""Neural networks: layers, and the networks of the papers."""

from pareo.nn import networks
from pareo.nn.layers import (
    AveragePool,
    Conv,
    Dense,
    Dropout,
    Flatten,
    Layer,
    Lrn,
    MaxPool,
    ReLU,
    Sigmoid,
    Softmax,
    Subsample,
    Tanh,
)
from pareo.nn.network import Auxiliary, Branches, Sequential

__all__ = [
    "Auxiliary",
    "AveragePool",
    "Branches",
    "Conv",
    "Dense",
    "Dropout",
    "Flatten",
    "Layer",
    "Lrn",
    "MaxPool",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "Softmax",
    "Subsample",
    "Tanh",
    "networks",
]
