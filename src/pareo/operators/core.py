"""What an operator is: a declaration that runs on arrays and records on symbols.

A declaration is a function whose body is the shape rule, on specs. Its cost and its gradient are
attached to it. Parameters annotated `Array`, `Number`, `Labels`, `Seed` or `Arrays` are operands;
every other parameter is an attribute, which the parser in its annotation makes canonical.
"""

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, get_type_hints

import numpy as np

from pareo import device
from pareo.array import Array as AnyArray
from pareo.errors import DtypeError, GradientError, PareoError, ShapeError
from pareo.spec import FLOATS, Spec


@dataclass(frozen=True)
class Operand:
    """What an operand may be."""

    integer: bool = False
    number: bool = False
    many: bool = False


Array = Annotated[AnyArray, Operand()]
Number = Annotated[AnyArray, Operand(number=True)]
Labels = Annotated[AnyArray, Operand(integer=True)]
Seed = Annotated[Any, Operand(integer=True, number=True)]
Arrays = Annotated[Sequence[Any], Operand(many=True)]


class Recorder(Protocol):
    """Something that records what happens to symbols (see `pareo.program.trace`)."""

    def record(
        self, operator: "Operator", operands: list[Any], attributes: dict[str, Any], out: Any
    ) -> Any: ...


# NumPy's functions that `array + symbol` and the like call, and the operators that they are here.
UFUNCS = {
    "add": "add", "subtract": "sub", "multiply": "hadamard", "divide": "div", "matmul": "dot",
}  # fmt: skip
LARGEST_POWER = 16


@dataclass(frozen=True, eq=False)
class Symbol:
    """Stands for an array while a function is traced.

    Python's operators record those of pareo. What would need a value, which it has not, is refused.

    >>> from pareo import grad
    >>> grad(lambda a: op.sum(3 * a ** 2 - a))(np.array([1.0, 2.0]))
    array([ 5., 11.])
    """

    spec: Spec
    number: int
    recorder: Recorder

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.spec.dtype

    @property
    def ndim(self) -> int:
        return self.spec.ndim

    @property
    def size(self) -> int:
        return self.spec.size

    @property
    def T(self) -> Any:
        """The array with its axes in reverse order."""
        return registry["transpose"](self)

    def __add__(self, other: Any) -> Any:
        return _combined("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return _combined("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return _combined("sub", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _combined("sub", other, self)

    def __mul__(self, other: Any) -> Any:
        return _combined("hadamard", self, other)

    def __rmul__(self, other: Any) -> Any:
        return _combined("hadamard", other, self)

    def __truediv__(self, other: Any) -> Any:
        return _combined("div", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return _combined("div", other, self)

    def __matmul__(self, other: Any) -> Any:
        return _combined("dot", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _combined("dot", other, self)

    def __neg__(self) -> Any:
        return _combined("scale", -1.0, self)

    def __pos__(self) -> Any:
        return self

    def __pow__(self, power: Any) -> Any:
        if type(power) is not int or not 1 <= power <= LARGEST_POWER:
            raise DtypeError(
                f"a symbol is raised to a whole number from 1 to {LARGEST_POWER}; got {power!r}"
            )
        found = self
        for digit in bin(power)[3:]:
            found = registry["hadamard"](found, found)
            found = registry["hadamard"](found, self) if digit == "1" else found
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        name = UFUNCS.get(ufunc.__name__)
        if method == "__call__" and name is not None and not options:
            return _combined(name, *inputs)
        raise _numpy(ufunc.__name__)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise _numpy(function.__name__)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise DtypeError(f"a symbol {NO_VALUES}: NumPy cannot make an array of it")

    def __bool__(self) -> bool:
        raise DtypeError(f"a symbol {NO_VALUES}: `if`, `while`, `and` and `not` cannot test it")

    def __float__(self) -> float:
        raise DtypeError(f"a symbol {NO_VALUES}: it cannot become a Python number")

    __int__ = __index__ = __complex__ = __round__ = __float__

    def __len__(self) -> int:
        if not self.shape:
            raise DtypeError("a symbol of one number has no length")
        return self.shape[0]

    def __iter__(self) -> Any:
        raise DtypeError(f"a symbol {NO_VALUES}: it cannot be iterated; `op.split` divides it")

    def __getitem__(self, key: Any) -> Any:
        raise DtypeError("a symbol has no elements to index; `op.part` and `op.take` select some")

    def __abs__(self) -> Any:
        raise _numpy("abs")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"a symbol has no attribute {name!r}")
        raise AttributeError(
            f"a symbol has no {name!r}, which NumPy's arrays have: use {_instead(name)}"
        )

    def _compared(self, other: Any) -> Any:
        raise DtypeError(f"a symbol {NO_VALUES}: it cannot be compared; see `op.relu` and `op.max`")

    __lt__ = __le__ = __gt__ = __ge__ = _compared


NO_VALUES = "stands for an array while a function is traced, and has no values yet"


def _combined(name: str, *operands: Any) -> Any:
    """An operator on operands of which one is a symbol; lists and the like are refused."""
    plain = [float(a) if isinstance(a, np.floating) else a for a in operands]
    return registry[name](*plain)


def _numpy(name: str) -> DtypeError:
    return DtypeError(f"np.{name} was given a symbol, which {NO_VALUES}: use {_instead(name)}")


def _instead(name: str) -> str:
    """What to write in the place of a function or a method of NumPy's."""
    own = UFUNCS.get(name, name)
    return f"op.{own}" if own in registry else "the operators of pareo.op"


@dataclass(frozen=True)
class Where:
    """What a parser may use: the call that it serves, and what is known so far."""

    operator: str
    parameter: str
    operands: Sequence[Spec]
    attributes: dict[str, Any]

    def expects(self, what: str, got: Any) -> ShapeError:
        return ShapeError(f"{self.operator} expects {self.parameter} to be {what}; got {got!r}")


Parser = Callable[[Any, Where], Any]
registry: dict[str, "Operator"] = {}
MAX_KNOWN = 1000  # calls whose checks an operator remembers, by shapes and dtypes
PLAIN: set[type] = {np.ndarray}  # array types that shape and dtype describe; not subclasses


class Operator:
    """One operator: what it computes, what that costs, and its gradient, for any device."""

    def __init__(self, rule: Callable[..., Any]) -> None:
        self.name = rule.__name__.rstrip("_")
        self.view_function: Callable[..., Any] | None = None
        self._rule = rule
        self._flops: Callable[..., int] | None = None
        self._reads: Callable[..., Sequence[int]] | None = None
        self._gradient: Callable[..., Any] | None = None
        self._operands: dict[str, Operand] = {}
        self._parsers: dict[str, Parser] = {}
        signature = inspect.signature(rule)
        hints = get_type_hints(rule, include_extras=True)
        for name in signature.parameters:
            kind = hints[name].__metadata__[0]
            if isinstance(kind, Operand):
                self._operands[name] = kind
            else:
                self._parsers[name] = kind
        self._names = tuple(signature.parameters)
        self._defaults = {
            name: parameter.default
            for name, parameter in signature.parameters.items()
            if parameter.default is not parameter.empty
        }
        self._known: dict[Any, tuple[dict[str, Any], list[Spec], Any]] = {}
        self._many = any(kind.many for kind in self._operands.values())
        self._only_operands = not (self._many or self._parsers)
        functools.update_wrapper(self, rule)
        self.__name__ = self.name
        shown = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        shown.append(inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None))
        self.__signature__ = signature.replace(parameters=shown, return_annotation=signature.empty)
        registry[self.name] = self

    def flops(self, function: Callable[..., int]) -> Callable[..., int]:
        """Attach the FLOP count: a function of the specs of output and operands, and attributes."""
        self._flops = function
        return function

    def reads(self, function: Callable[..., Sequence[int]]) -> Callable[..., Sequence[int]]:
        """Attach how many elements of each operand are read, if not all of them."""
        self._reads = function
        return function

    def gradient(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach the gradient: from (output gradient, output, operands...) to one per operand."""
        self._gradient = function
        return function

    def view(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Attach a function that returns the result as a view of the operand, moving nothing."""
        self.view_function = function
        return function

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        operands, attributes, specs, result = self.bind(args, kwargs)
        for operand in operands:
            if isinstance(operand, Symbol):
                if out is not None:
                    raise PareoError(f"{self.name} takes no out= while it is being traced")
                return operand.recorder.record(self, operands, attributes, result)
        return device.current().backend.run(self, out, operands, attributes, specs, result)

    def bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any], list[Spec], Any]:
        """Check one call; return its operands, attributes, operand specs and result spec."""
        seen = tuple([
            (a.shape, a.dtype) if type(a) in PLAIN else float
            for a in args if type(a) in PLAIN or (self._only_operands and type(a) is float)
        ])  # fmt: skip
        if kwargs or not len(seen) == len(args) == len(self._operands):
            return self._bind(args, kwargs)
        # Operands only: the result of an earlier call with the same shapes and dtypes applies.
        # The lookup takes 2 microseconds, `_bind` 15.
        known = self._known.get(seen)
        if known is None:
            if len(self._known) > MAX_KNOWN:
                self._known.clear()
            known = self._known[seen] = self._bind(args, kwargs)[1:]
        if float not in seen:
            return list(args), *known
        specs = known[1]
        return [
            as_array(a, spec.dtype) if type(a) is float else a
            for a, spec in zip(args, specs, strict=True)
        ], *known

    def _bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[list[Any], dict[str, Any], list[Spec], Any]:
        given = self._match(args, kwargs)
        slots = list(self._slots(given))
        dtype = self._dtype(slots)
        operands = [
            as_array(value, np.dtype(np.int64) if kind.integer else dtype)
            if isinstance(value, (int, float))
            else value
            for _, kind, value in slots
        ]
        specs = [v.spec if isinstance(v, Symbol) else Spec.of(v) for v in operands]
        attributes: dict[str, Any] = {}
        for name, parse in self._parsers.items():
            attributes[name] = parse(given[name], Where(self.name, name, specs, attributes))
        return operands, attributes, specs, self.infer(specs, attributes)

    def infer(self, specs: Sequence[Spec], attributes: dict[str, Any]) -> Any:
        """The spec of the result (a tuple of specs for an operator with several results)."""
        operands = zip(self._operands, self._grouped(specs), strict=True)
        return self._rule(**dict(operands), **attributes)

    def count_flops(self, out: Any, specs: Sequence[Spec], attributes: dict[str, Any]) -> int:
        """The floating-point operations of one call; a function such as exp counts as one."""
        if self._flops is None:
            return 0
        return int(self._flops(out, *self._grouped(specs), **attributes))

    def count_bytes(self, out: Any, specs: Sequence[Spec], attributes: dict[str, Any]) -> int:
        """The fewest bytes one call must move: what it needs is read once, results written once."""
        results = out if isinstance(out, tuple) else (out,)
        written = sum(spec.nbytes for spec in results)
        if written == 0:
            return 0
        if self._reads is None:
            return written + sum(spec.nbytes for spec in specs)
        counts = self._reads(out, *self._grouped(specs), **attributes)
        return written + sum(
            count * spec.dtype.itemsize for count, spec in zip(counts, specs, strict=True)
        )

    def is_default(self, name: str, value: Any) -> bool:
        """Whether an attribute has its default value, which a listing need not show."""
        default = self._defaults.get(name)
        return value == default or (isinstance(default, tuple) and value == default + default)

    def differentiate(
        self, gradient: Any, out: Any, operands: Sequence[Any], attributes: dict[str, Any]
    ) -> list[Any]:
        """The gradient with respect to each operand, None for one that has none."""
        if self._gradient is None:
            raise GradientError(f"{self.name} has no gradient")
        found = self._gradient(gradient, out, *self._grouped(operands), **attributes)
        return list(found) if isinstance(found, (tuple, list)) else [found]

    @property
    def differentiable(self) -> bool:
        return self._gradient is not None

    def _grouped(self, operands: Sequence[Any]) -> list[Any]:
        return [tuple(operands)] if self._many else list(operands)

    def _match(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = self._names
        if len(args) <= len(names):
            given = {**self._defaults, **dict(zip(names, args, strict=False)), **kwargs}
            known = all(name in names[len(args) :] for name in kwargs)
            if known and len(given) == len(names):
                return given
        wanted = ", ".join(f"{n}=..." if n in self._defaults else n for n in names)
        named = ", ".join(kwargs)
        raise TypeError(
            f"{self.name} expects ({wanted}); got {len(args)} positional arguments"
            + (f" and {named}" if named else "")
        )

    def _slots(self, given: dict[str, Any]) -> Iterator[tuple[str, Operand, Any]]:
        """Every operand of a call with its label and kind, checked."""
        for name, kind in self._operands.items():
            if not kind.many:
                yield name, kind, _checked(self.name, name, kind, given[name])
                continue
            if not isinstance(given[name], (list, tuple)) or not given[name]:
                raise DtypeError(
                    f"{self.name} expects {name} to be a list of at least one array; "
                    f"got {_described(given[name])}"
                )
            for position, value in enumerate(given[name]):
                label = f"{name}[{position}]"
                yield label, kind, _checked(self.name, label, kind, value)

    def _dtype(self, slots: list[tuple[str, Operand, Any]]) -> np.dtype[Any]:
        """The dtype that all floating-point operands of a call have in common."""
        found: np.dtype[Any] | None = None
        for label, kind, value in slots:
            if kind.integer or isinstance(value, (int, float)):
                continue
            if found is not None and value.dtype != found:
                raise DtypeError(
                    f"{self.name} expects operands of one dtype; got {found} and, for {label}, "
                    f"{value.dtype}"
                )
            found = value.dtype
        return found or FLOATS[1]

    def __repr__(self) -> str:
        return f"op.{self.name}"


def operator(rule: Callable[..., Any]) -> Operator:
    """Declare an operator: the decorated function is its shape rule and carries its docstring."""
    return Operator(rule)


def is_array(value: Any) -> bool:
    """Whether value is an array of a library that some device uses."""
    if isinstance(value, np.ndarray):
        return not isinstance(value, np.ma.MaskedArray)
    return type(value).__module__.partition(".")[0] == "cupy"


def _checked(operator: str, label: str, kind: Operand, value: Any) -> Any:
    """The operand, checked."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not kind.number or (kind.integer and not isinstance(value, int)):
            what = "a whole number" if kind.number else "an array"
            raise DtypeError(f"{operator} expects {what} for {label}; got {_described(value)}")
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise DtypeError(f"{operator} expects {label} to fit into 64 bits; got {value}")
        return value
    if not (isinstance(value, Symbol) or is_array(value)):
        raise DtypeError(f"{operator} expects an array for {label}; got {_described(value)}")
    if kind.integer:
        if value.dtype.kind not in "iu":
            raise DtypeError(f"{operator} expects {label} to hold integers; got {value.dtype}")
    elif value.dtype not in FLOATS:
        raise DtypeError(f"{operator} expects {label} to be float32 or float64; got {value.dtype}")
    return value


def as_array(number: float, dtype: np.dtype[Any]) -> Any:
    """A Python number as an array; one too large for the dtype is infinite, as in IEEE."""
    with np.errstate(over="ignore"):
        return np.asarray(number, dtype)


def _described(value: Any) -> str:
    if isinstance(value, (int, float, str)) or value is None:
        return repr(value)
    return f"a {type(value).__name__}"
