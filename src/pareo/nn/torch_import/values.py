"""What the nodes of an exported graph stand for, while it is read."""

from dataclasses import dataclass

from pareo.nn.layers import Shape


class Unsupported(Exception):
    """Why an operator of the graph has no counterpart in pareo."""


@dataclass(frozen=True)
class Value:
    """The output of a node of the network, or its input.

    shape: without the batch; that of images is (C, H, W).
    last: whether PyTorch sees these images as (N, H, W, C), which is only another view of them.
    wide: the shape that PyTorch sees where it repeats elements, which only a join may read.
    """

    node: str
    shape: Shape
    last: bool = False
    wide: Shape = ()

    @property
    def seen(self) -> Shape:
        """The shape without the batch as PyTorch sees it."""
        if self.wide:
            return self.wide
        return (*self.shape[1:], self.shape[0]) if self.last else self.shape


@dataclass(frozen=True)
class Weight:
    """A parameter or a buffer, by its name in the `state_dict`.

    viewed: the shape that the module gave it, where that is another one.
    batched: whether its first axis, of one element, is repeated for every input of the batch.
    """

    name: str
    shape: Shape
    viewed: Shape = ()
    batched: bool = False

    @property
    def seen(self) -> Shape:
        """The shape in which it is used."""
        return self.viewed or self.shape


@dataclass(frozen=True)
class Noise:
    """A number for each image, which stochastic depth draws: 1 with the chance `kept`, else 0.

    divided: whether the number was divided by that chance.
    """

    kept: float | None = None
    divided: bool = False


@dataclass(frozen=True)
class Padded:
    """Images with rows and columns of zeros around them, which only a convolution may read.

    around: the zeros before and after, along height and along width.
    """

    origin: Value
    around: tuple[tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Unknown:
    """What depends on an operator that is not supported."""


@dataclass(frozen=True)
class Stale:
    """A view of values that were changed in place after it was taken."""
