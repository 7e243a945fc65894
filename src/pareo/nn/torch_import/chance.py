"""PyTorch's modules without chance: no two frameworks draw the same numbers."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

# Attributes in which layers keep the share that they drop, by the end of the name of their class:
# PyTorch's own, torchvision's StochasticDepth, and timm's DropPath.
SHARES = {
    "Dropout": "p",
    "Dropout1d": "p",
    "Dropout2d": "p",
    "Dropout3d": "p",
    "AlphaDropout": "p",
    "StochasticDepth": "p",
    "DropPath": "drop_prob",
    "MultiheadAttention": "dropout",
}


def settle(module: Any) -> None:
    """Let the layers of a module that drop values drop none."""
    if hasattr(module, "without_chance"):  # one from a .pt2 file
        module.without_chance()
    for layer in module.modules():
        for name, attribute in SHARES.items():
            if type(layer).__name__.endswith(name) and isinstance(
                getattr(layer, attribute, None), float
            ):
                setattr(layer, attribute, 0.0)


def draws(module: Any, images: Any) -> bool:
    """Whether a module still draws numbers in training, by functions in its own `forward`."""
    torch = import_module("torch")
    state = {name: a.clone() for name, a in module.state_dict().items()}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        before = torch.random.get_rng_state()
        module(images)
        drawn = not torch.equal(before, torch.random.get_rng_state())
        module.load_state_dict(state)  # running statistics have moved
    return bool(drawn)


@contextmanager
def without_chance(torch: Any) -> Iterator[None]:
    """Let PyTorch's dropout do nothing, and draw the mean of what stochastic depth draws."""
    functional = torch.nn.functional
    nothing = {functional.dropout, torch.dropout, torch.dropout_, torch.feature_dropout,
               functional.dropout1d, functional.dropout2d, functional.dropout3d}  # fmt: skip

    class Sure(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            kwargs = kwargs or {}
            if function in nothing:
                return args[0] if args else kwargs["input"]
            if function is torch.Tensor.bernoulli_:
                return args[0].fill_(args[1] if len(args) > 1 else kwargs["p"])
            return function(*args, **kwargs)

    with Sure():
        yield


@contextmanager
def in_float64(torch: Any) -> Iterator[None]:
    """Let a module that was made one of float64 compute in it where it asks for float32.

    In the module as the user has it, whose weights are of float32, such a request does nothing.
    """

    def wider(given: Any) -> Any:
        return torch.float64 if given is torch.float32 else given

    class Wide(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function is torch.Tensor.float:
                return args[0].double()
            kwargs = {key: wider(one) for key, one in (kwargs or {}).items()}
            return function(*(wider(one) for one in args), **kwargs)

    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # of constants that `forward` makes
    try:
        with Wide():
            yield
    finally:
        torch.set_default_dtype(usual)
