"""Layers of transformers: images as tokens, the class token, positions, and attention."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pareo.operators as op
from pareo.errors import ShapeError
from pareo.nn.layers import Context, Layer, Parameter, Shape


def _tokens(name: str, shape: Shape) -> tuple[int, int]:
    if len(shape) != 2:
        raise ShapeError(f"{name} expects tokens (tokens, features); got inputs of shape {shape}")
    return shape[0], shape[1]


@dataclass(frozen=True)
class Tokens(Layer):
    """Images (C, H, W) as H * W tokens of C features."""

    def output(self, shape: Shape) -> Shape:
        if len(shape) != 3:
            raise ShapeError(f"Tokens expects images (C, H, W); got inputs of shape {shape}")
        return shape[1] * shape[2], shape[0]

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        batch, channels, height, width = x.shape
        return op.transpose(op.reshape(x, (batch, channels, height * width)), (0, 2, 1))


@dataclass(frozen=True)
class ClassToken(Layer):
    """One more token, in front of the others; it is trained and the same for every input."""

    start: str = "zeros"

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        features = _tokens("ClassToken", shape)[1]
        return {"w": Parameter((1, 1, features), (features, features), self.start)}

    def output(self, shape: Shape) -> Shape:
        count, features = _tokens("ClassToken", shape)
        return count + 1, features

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        first = op.broadcast(parameters["w"], (x.shape[0], 1, x.shape[2]))
        return op.concat([first, x], axis=1)


@dataclass(frozen=True)
class Learned(Layer):
    """A trained array of this shape, the same for every input: queries of attention, or tokens.

    It depends on its input only in the number of inputs of a batch.
    """

    shape: Shape
    start: str = "normal_0.02"

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        size = self.shape[-1]
        return {"w": Parameter((1, *self.shape), (size, size), self.start)}

    def output(self, shape: Shape) -> Shape:
        if not self.shape or min(self.shape) < 1:
            raise ShapeError(f"Learned expects a shape of sizes above 0; got {self.shape}")
        return tuple(self.shape)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.broadcast(parameters["w"], (x.shape[0], *self.shape))


@dataclass(frozen=True)
class PositionEmbedding(Layer):
    """Adds to each token a trained vector for its position."""

    start: str = "normal_0.02"

    def parameters(self, shape: Shape) -> dict[str, Parameter]:
        count, features = _tokens("PositionEmbedding", shape)
        return {"w": Parameter((1, count, features), (features, features), self.start)}

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.add(x, parameters["w"])


@dataclass(frozen=True)
class Attention(Layer):
    """Self-attention of tokens that hold queries, keys and values side by side (3 * features).

    The projections before and after it are `Dense` layers.
    """

    heads: int
    causal: bool = False

    def output(self, shape: Shape) -> Shape:
        count, features = _tokens("Attention", shape)
        if features % (3 * self.heads):
            raise ShapeError(
                f"Attention expects features that 3 * {self.heads} heads divide; got {features}"
            )
        return count, features // 3

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        batch, count, features = x.shape
        size = features // (3 * self.heads)
        parted = op.transpose(op.reshape(x, (batch, count, 3, self.heads, size)), (2, 0, 3, 1, 4))
        three = op.split(parted, (1, 1, 1), axis=0)
        q, k, v = (op.reshape(one, (batch, self.heads, count, size)) for one in three)
        y = op.attention(q, k, v, causal=self.causal)
        return op.reshape(op.transpose(y, (0, 2, 1, 3)), (batch, count, features // 3))


@dataclass(frozen=True)
class FirstToken(Layer):
    """The first token alone: the class token."""

    def output(self, shape: Shape) -> Shape:
        return (_tokens("FirstToken", shape)[1],)

    def apply(self, parameters: Mapping[str, Any], x: Any, context: Context) -> Any:
        return op.reshape(op.part(x, 1, (0, 1)), (x.shape[0], x.shape[2]))
