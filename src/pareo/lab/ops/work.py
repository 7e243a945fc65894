"""One piece of work: an operator, forward or backward, on operands of some size, and its cost."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from pareo.device import Device
from pareo.lab.ops.cases import Case, Values, case_of
from pareo.operators.core import Symbol
from pareo.program import trace
from pareo.program.ir import Program
from pareo.program.passes import remove_dead
from pareo.spec import Spec

Direction = Literal["forward", "backward"]
FORWARD: Direction = "forward"
BACKWARD: Direction = "backward"
SEED = 99  # of the incoming gradient
POINTWISE = (
    "add", "sub", "hadamard", "div", "scale", "exp", "log", "sigmoid", "tanh", "relu",
    "sigmoid_gradient", "tanh_gradient", "relu_gradient",
)  # fmt: skip
WINOGRAD = 4  # 36 products for a tile of 4 x 4 results of a 3 x 3 filter, instead of 144


@dataclass(frozen=True)
class Work:
    """An operator on operands of about `nbytes`, the result included.

    The backward pass computes the gradients of all operands from the gradient of the result and
    from what the forward pass left.

    >>> work = Work("mul", "forward", 3 << 20)
    >>> work.flops, work.read, work.written
    (262144, 2097152, 1048576)
    """

    operator: str
    direction: Direction
    nbytes: int

    def __reduce__(self) -> Any:
        return Work, (
            self.operator,
            self.direction,
            self.nbytes,
        )  # without what is cached

    @cached_property
    def case(self) -> Case:
        """The call of the operator."""
        return case_of(self.operator, self.nbytes)

    def forward(self, arrays: Any) -> Any:
        """The operator, applied to arrays or to symbols."""
        return self.case.operator(*self.case.filled(arrays), **self.case.attributes)

    def program(self, dtype: str = "float32") -> Program:
        """What is computed from the arrays of `inputs`."""
        specs = [_spec(o, dtype) for o in self.case.operands if not isinstance(o, float)]
        if self.direction == FORWARD:
            return trace(lambda *arrays: self.forward(arrays), *specs)
        (out,) = self.results(dtype)
        return remove_dead(trace(self._backward, out, out, *specs))

    def results(self, dtype: str = "float32") -> list[Spec]:
        """The specs of the results of the forward pass."""
        specs = [_spec(o, dtype) for o in self.case.operands if not isinstance(o, float)]
        made = trace(lambda *arrays: self.forward(arrays), *specs)
        return [made.specs[number] for number in made.outputs]

    def inputs(self, dtype: str = "float32") -> list[Any]:
        """The arrays that `program` takes, the same for all contestants."""
        operands = [a.astype(dtype) if a.dtype.kind == "f" else a for a in self.case.arrays()]
        if self.direction == FORWARD:
            return operands
        with Device("vectorized"):
            out = self.forward(operands)
        gradient = Values(out.shape).array(SEED).astype(dtype)
        return [gradient, out, *operands]

    @property
    def pointwise(self) -> bool:
        """Whether each element of the result needs one element of every operand."""
        same = {o.shape for o in self.case.operands if not isinstance(o, float)}
        return (
            self.direction == FORWARD
            and self.case.operator.name in POINTWISE
            and same == {spec.shape for spec in self.results()}
        )

    @property
    def missing(self) -> str:
        """Why there is nothing to measure; empty if there is."""
        if self.direction == FORWARD:
            return ""
        if self.case.operator.name.endswith("_gradient"):
            return "it is the backward pass of another operator"
        if not self.case.operator.differentiable:
            return f"{self.case.operator.name} has no gradient"
        if len(self.results()) > 1:
            return "it has several results; its backward pass is an operator of its own"
        if self.flops * self._cost.specs[0].dtype.itemsize < self.written:
            return "its gradient is the incoming one, at most copied: nothing is computed"
        return ""

    @cached_property
    def _cost(self) -> Program:
        return self.program()

    @property
    def flops(self) -> int:
        """Floating-point operations; a function such as exp counts as one."""
        return self._cost.flops

    @property
    def least_flops(self) -> int:
        """The fewest that are known to suffice: Winograd saves three of four for 3x3 filters."""
        return self.flops // WINOGRAD if "conv" in self.case.operator.name else self.flops

    @property
    def read(self) -> int:
        """The fewest bytes that must be read: everything that is used, once."""
        program = self._cost
        if self.direction == FORWARD:
            moved = sum(instruction.bytes for instruction in program.instructions)
            return moved - self.written if moved else self.written  # what could be a view is copied
        used = {number for i in program.instructions for number in i.inputs} | {*program.outputs}
        return sum(program.specs[number].nbytes for number in program.inputs if number in used)

    @property
    def written(self) -> int:
        """The bytes of the results."""
        program = self._cost
        return sum(program.specs[number].nbytes for number in program.outputs)

    def _backward(self, gradient: Any, out: Any, *operands: Any) -> list[Any]:
        operator, filled = self.case.operator, tuple(self.case.filled(operands))
        given, attributes, _, _ = operator.bind(filled, self.case.attributes)
        symbols = [gradient.recorder.own(operand) for operand in given]
        parts = zip(given, operator.differentiate(gradient, out, symbols, attributes), strict=True)
        return [part for operand, part in parts if isinstance(operand, Symbol) and part is not None]


def _spec(operand: Any, dtype: str) -> Spec:
    return Spec(operand.shape, dtype if isinstance(operand, Values) else "int64")
