"""Neural networks: layers, containers of layers, and networks by name."""

from pareo.nn import networks
from pareo.nn.activations import (
    GELU,
    Clip,
    HardSigmoid,
    HardSwish,
    LeakyReLU,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from pareo.nn.containers import (
    Add,
    Append,
    Branches,
    Container,
    Gate,
    Multiply,
    Residual,
)
from pareo.nn.graph import Graph
from pareo.nn.layers import (
    AveragePool,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Identity,
    Layer,
    MaxPool,
    Scale,
    StochasticDepth,
    Subsample,
    register,
)
from pareo.nn.network import (
    Auxiliary,
    Sequential,
)
from pareo.nn.normalisation import (
    BatchNorm,
    LayerNorm,
    Lrn,
    Normalise,
)
from pareo.nn.pooling import AdaptiveAveragePool
from pareo.nn.shapes import Part, Permute, Reshape
from pareo.nn.tokens import (
    Attention,
    ClassToken,
    FirstToken,
    PositionEmbedding,
    Tokens,
)

__all__ = [
    "GELU",
    "AdaptiveAveragePool",
    "Add",
    "Append",
    "Attention",
    "Auxiliary",
    "AveragePool",
    "BatchNorm",
    "Branches",
    "ClassToken",
    "Clip",
    "Container",
    "Conv",
    "Dense",
    "Dropout",
    "FirstToken",
    "Flatten",
    "Gate",
    "GlobalAveragePool",
    "Graph",
    "HardSigmoid",
    "HardSwish",
    "Identity",
    "Layer",
    "LayerNorm",
    "LeakyReLU",
    "Lrn",
    "MaxPool",
    "Multiply",
    "Normalise",
    "Part",
    "Permute",
    "PositionEmbedding",
    "ReLU",
    "Reshape",
    "Residual",
    "Scale",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "StochasticDepth",
    "Subsample",
    "Tanh",
    "Tokens",
    "networks",
    "register",
]
