"""PyTorch's operators; backward is autograd's."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from pareo.lab.ops.peers.peer import Missing
from pareo.lab.ops.work import FORWARD, Work

torch: Any = None  # imported when needed


class Torch:
    """PyTorch, on the CPU or, as 'cuda', on a GPU; float32 is IEEE's on both."""

    def __init__(self, place: str, threads: int) -> None:
        global torch
        torch = import_module("torch")
        torch.set_num_threads(threads)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True  # times cuDNN's algorithms and takes the fastest
        self._place = place or "cpu"

    def call(self, work: Work, arrays: list[Any]) -> Callable[[], Any]:
        """A function that does the work on these arrays."""
        name = work.case.operator.name
        if name not in OPERATORS:
            raise Missing(f"PyTorch has no {name}")
        here = [torch.from_numpy(array).to(self._place) for array in arrays]
        if work.direction == FORWARD:
            return self._forward(work, here)
        return self._backward(work, here)

    def _forward(self, work: Work, arrays: list[Any]) -> Callable[[], Any]:
        case, name = work.case, work.case.operator.name
        operands, function = case.filled(arrays), OPERATORS[name]
        more = dict(case.attributes)
        if name in INTO:
            (spec,) = work.results()
            more["out"] = torch.empty(spec.shape, dtype=torch.float32, device=self._place)

        def run() -> Any:
            with torch.no_grad():
                return function(*operands, **more)

        return run

    def _backward(self, work: Work, arrays: list[Any]) -> Callable[[], Any]:
        case = work.case
        gradient, _, *operands = arrays
        leaves = [a.requires_grad_() for a in operands if a.is_floating_point()]
        result = OPERATORS[case.operator.name](*case.filled(operands), **case.attributes)

        def run() -> Any:
            return torch.autograd.grad(result, leaves, gradient, retain_graph=True)

        return run

    def wait(self) -> None:
        """Wait until the GPU has finished."""
        if self._place == "cuda":
            torch.cuda.synchronize()

    def host(self, result: Any) -> Any:
        """A result as a NumPy array."""
        return result.detach().cpu().numpy()


def _conv(x: Any, w: Any, padding: int) -> Any:
    return torch.nn.functional.conv2d(x, w, padding=padding)


def _subsample(x: Any, w: Any, b: float, stride: int) -> Any:
    n, c, height, width = x.shape
    planes = x.reshape(n * c, 1, height, width)
    pooled = torch.nn.functional.conv2d(planes, w.reshape(1, 1, *w.shape), stride=stride) + b
    return pooled.reshape(n, c, *pooled.shape[2:])


def _lrn(x: Any, size: int) -> Any:
    return torch.nn.functional.local_response_norm(x, size, alpha=1e-4, beta=0.75, k=1.0)


def _sgd(p: Any, g: Any, v: Any, rate: float, momentum: float, decay: float) -> Any:
    moved = torch.add(g, v, alpha=momentum).add_(p, alpha=decay)
    return torch.add(p, moved, alpha=-rate), moved


def _conv_input_gradient(g: Any, w: Any, size: Any, padding: int) -> Any:
    shape = (g.shape[0], w.shape[1], *size)
    return torch.nn.grad.conv2d_input(shape, w, g, padding=padding)


def _conv_weight_gradient(x: Any, g: Any, size: Any, padding: int) -> Any:
    shape = (g.shape[1], x.shape[1], *size)
    return torch.nn.grad.conv2d_weight(x, shape, g, padding=padding)


# Operators that can write into an existing array.
INTO = {"add", "sub", "hadamard", "div", "scale", "exp", "log", "sigmoid", "tanh", "dot"}
OPERATORS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, **out: torch.add(a, b, **out),
    "sub": lambda a, b, **out: torch.sub(a, b, **out),
    "hadamard": lambda a, b, **out: torch.mul(a, b, **out),
    "div": lambda a, b, **out: torch.div(a, b, **out),
    "scale": lambda alpha, a, **out: torch.mul(a, alpha, **out),
    "exp": lambda a, **out: torch.exp(a, **out),
    "log": lambda a, **out: torch.log(a, **out),
    "sigmoid": lambda a, **out: torch.sigmoid(a, **out),
    "tanh": lambda a, **out: torch.tanh(a, **out),
    "relu": lambda a: torch.relu(a),
    "dot": lambda a, b, **out: torch.mm(a, b, **out),
    "transpose": lambda a: a.t().contiguous(),
    "add_bias": lambda a, b: a + b,
    "concat": lambda arrays, axis: torch.cat(arrays, axis),
    "part": lambda a, axis, between: a.narrow(axis, between[0], between[1]).contiguous(),
    "broadcast": lambda a, shape: a.expand(shape).contiguous(),
    "conv": _conv,
    "max_pool": lambda x, size: torch.nn.functional.max_pool2d(x, size),
    "average_pool": lambda x, size: torch.nn.functional.avg_pool2d(x, size),
    "subsample": _subsample,
    "lrn": _lrn,
    "sum": lambda a: torch.sum(a),
    "mean": lambda a: torch.mean(a),
    "max": lambda a: torch.amax(a),
    "argmax": lambda a: torch.argmax(a),
    "softmax": lambda a: torch.softmax(a, -1),
    "log_softmax": lambda a: torch.log_softmax(a, -1),
    "cross_entropy": lambda logits, labels: torch.nn.functional.cross_entropy(logits, labels),
    "squared_error": lambda a, b: torch.nn.functional.mse_loss(a, b),
    "sgd": _sgd,
    "gelu": lambda a: torch.nn.functional.gelu(a),
    "silu": lambda a: torch.nn.functional.silu(a),
    "hard_sigmoid": lambda a: torch.nn.functional.hardsigmoid(a),
    "hard_swish": lambda a: torch.nn.functional.hardswish(a),
    "leaky_relu": lambda a, slope: torch.nn.functional.leaky_relu(a, slope),
    "clip": lambda a, low, high: torch.nn.functional.hardtanh(a, low, high),
    "layer_norm": lambda x, w, b: torch.nn.functional.layer_norm(x, w.shape, w, b),
    "pad": lambda a, widths: torch.nn.functional.pad(a, widths[1]),
    "take": lambda a, index: torch.nn.functional.embedding(index, a),
    "sigmoid_gradient": lambda g, y: torch.ops.aten.sigmoid_backward(g, y),
    "tanh_gradient": lambda g, y: torch.ops.aten.tanh_backward(g, y),
    "relu_gradient": lambda g, y: torch.ops.aten.threshold_backward(g, y, 0),
    "conv_input_gradient": _conv_input_gradient,
    "conv_weight_gradient": _conv_weight_gradient,
}
