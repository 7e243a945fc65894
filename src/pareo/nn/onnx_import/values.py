"""What the tensors of an ONNX graph stand for while it is read, besides values of the network."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pareo.nn.layers import Shape
from pareo.nn.torch_names import TorchName


class Turned(TorchName):
    """A matrix (features, units) that is the filters (units, features, 1, 1) of a layer."""

    def to_torch(self, array: Any) -> Any:
        """A parameter's array in the file's shape."""
        return np.asarray(array).reshape(self.shape[::-1]).T

    def from_torch(self, array: Any, shape: Shape) -> Any:
        """The file's array in the parameter's shape."""
        return np.asarray(array).T.reshape(shape)


@dataclass(frozen=True, eq=False)
class Constant:
    """An array that does not depend on the input.

    name: that of the tensor in the file.
    origin: the initialiser whose elements these are, and how that became this array.
    repeated: the constant that `Expand` repeated to make this one.
    """

    array: Any
    name: str
    origin: TorchName | None = None
    repeated: "Constant | None" = None

    @property
    def shape(self) -> Shape:
        """The shape of the array."""
        return tuple(self.array.shape)

    def named(self, how: str) -> TorchName:
        """The counterpart in the file of a parameter that is this array, used in some way."""
        origin = self.origin
        if origin is not None:
            both = {origin.how, how} - {"same"}
            if not both or (len(both) == 1 and origin.how != how):
                return TorchName(origin.name, both.pop() if both else "same", origin.shape)
            if origin.how == how:
                turned = "same" if how == "transposed" else "reshaped"
                return TorchName(origin.name, turned, origin.shape)
        return TorchName(self.name, how, self.shape)


@dataclass(frozen=True, eq=False)
class Term:
    """A part of an expression that is one layer as a whole, such as GELU written with erf.

    kind: what it is of `x`. more: numbers and constants that it has so far.
    """

    kind: str
    x: Any
    more: tuple[Any, ...] = ()

    @property
    def reason(self) -> str:
        """Why it is refused where something else follows than its layer has."""
        if self.kind == "padding":
            return "of Pad before other operators than convolutions and pooling"
        if self.kind == "scaled":
            return "of values whose batch is not the first axis"
        if self.kind in ("scores", "shares"):
            return "of a product that is not attention"
        if "erf" in self.kind:
            return "of erf outside of GELU"
        return "of a mean outside of layer normalisation"
