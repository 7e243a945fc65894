"""All contestants by name: pareo's devices, other frameworks, and those of entry points."""

from dataclasses import replace
from importlib.metadata import entry_points

from pareo.errors import PareoError
from pareo.lab.contestants.contestant import Contestant
from pareo.lab.contestants.task import Task
from pareo.machine import gpus
from pareo.training.step import step_program

GROUP = "pareo.contestants"
ADAPTERS = "pareo.lab.contestants."
SLICE = 2  # images in a step of plain loops, which need half a second for one of MNIST


def _adapter(module: str, **options: object) -> Contestant:
    """An adapter of this package, whose name begins with the framework that it needs."""
    framework = module.partition("_")[0]
    return Contestant(f"{ADAPTERS}{module}", options, None if framework == "pareo" else framework)


def _on_gpu(module: str, warms: bool = False, **options: object) -> Contestant:
    return replace(_adapter(module, **options), gpu=True, warms=warms)


def _fastest_of(*tries: str, gpu: bool = False) -> Contestant:
    """The fastest of a framework's settings, found in a short trial before the race."""
    return Contestant(needs=tries[0].partition("-")[0], gpu=gpu, tries=tries)


CONTESTANTS = {
    "pareo-compiled": _adapter("pareo_step", device="compiled"),
    "pareo-vectorized": _adapter("pareo_step", device="vectorized"),
    "torch": _adapter("torch_step"),
    "torch-onednn-off": _adapter("torch_step", onednn=False),
    "torch-channels-last": _adapter("torch_step", last=True),
    "torch-compile": _adapter("torch_step", compiled=True),
    "jax": _adapter("jax_step"),
    "jax-scan": _adapter("jax_step", scan=True),
    "jax-channels-last": _adapter("jax_step", last=True),
    "tensorflow": _adapter("tensorflow_step"),
    "tensorflow-xla": _adapter("tensorflow_step", xla=True),
}
# Not in a race for which none are named: PyTensor compiles for minutes.
OTHERS = {
    "pytensor": _adapter("pytensor_step"),
    "pytensor-c": _adapter("pytensor_step", linker="cvm"),
    "pytensor-numba": _adapter("pytensor_step", linker="numba"),
    "tinygrad": replace(_adapter("tinygrad_step"), tool="clang"),
}

ON_GPU = {
    "pareo-cuda": _on_gpu("pareo_step", device="cuda"),
    "torch-cuda": _on_gpu("torch_cuda"),
    "torch-cuda-default": _on_gpu("torch_cuda", benchmark=False),
    "torch-cuda-compile": _on_gpu("torch_cuda", warms=True, compiled=True),
    "torch-cudagraph": _on_gpu("torch_cuda", graph=True),
    "torch-cudagraph-default": _on_gpu("torch_cuda", graph=True, benchmark=False),
    "torch-cudagraph-cudnn-off": _on_gpu("torch_cuda", graph=True, cudnn=False),
    "torch-cudagraph-compile": _on_gpu("torch_cuda", warms=True, compiled=True, graph=True),
    "jax-cuda": _on_gpu("jax_cuda"),
    "jax-cuda-scan": _on_gpu("jax_cuda", scan=True),
    "jax-cuda-last": _on_gpu("jax_cuda", last=True),
    "tensorflow-cuda": _on_gpu("tensorflow_step", gpu=True),
}

BEST = {
    "torch-best": _fastest_of("torch", "torch-onednn-off", "torch-channels-last", "torch-compile"),
    "jax-best": _fastest_of("jax", "jax-scan", "jax-channels-last"),
    "tensorflow-best": _fastest_of("tensorflow", "tensorflow-xla"),
    "torch-cuda-best": _fastest_of(
        "torch-cuda", "torch-cuda-default", "torch-cudagraph", "torch-cudagraph-default",
        "torch-cudagraph-cudnn-off", "torch-cuda-compile", "torch-cudagraph-compile", gpu=True,
    ),
    "jax-cuda-best": _fastest_of("jax-cuda", "jax-cuda-scan", "jax-cuda-last", gpu=True),
}  # fmt: skip
SLOW_TO_BUILD = ("torch-compile", "torch-cuda-compile", "torch-cudagraph-compile")

BUILT_IN = {
    "pareo-sequential": replace(_adapter("pareo_step", device="sequential"), images=SLICE),
    **CONTESTANTS,
    **OTHERS,
    **BEST,
    **ON_GPU,
}

# The contestants of a race for which none are named.
USUAL = (
    "pareo-compiled", "pareo-vectorized", "pareo-sequential",
    "torch", "torch-best", "jax", "jax-best", "tensorflow", "tensorflow-best",
)  # fmt: skip
USUAL_ON_GPU = (
    "pareo-cuda", "torch-cuda-default", "torch-cuda", "torch-cudagraph", "torch-cuda-best",
    "jax-cuda", "jax-cuda-best", "tensorflow-cuda",
)  # fmt: skip
LOOPED = 10**6  # FLOP of an image beyond which plain loops would take longer than all others


def usual(task: Task) -> list[str]:
    """The contestants of a race for which none are named: on a GPU, too, if there is one.

    >>> from pareo.nn import networks
    >>> "pareo-sequential" in usual(Task(networks.googlenet(), batch=1))
    False
    """
    names = [*USUAL, *(USUAL_ON_GPU if gpus() else ()), *_entered()]
    if step_program(task.network, 1).flops > LOOPED:
        names.remove("pareo-sequential")
    return names


def known() -> dict[str, Contestant]:
    """All contestants, those of other packages after pareo's own.

    >>> known()["jax-best"].tries
    ('jax', 'jax-scan', 'jax-channels-last')
    """
    return BUILT_IN | _entered()


def _entered() -> dict[str, Contestant]:
    """The contestants of other packages, which have entry points in `pareo.contestants`."""
    found = {}
    for point in entry_points(group=GROUP):
        try:
            contestant = point.load()
        except Exception as error:  # of any kind: the message names the package's entry point
            raise PareoError(
                f"the entry point {point.name} = {point.value} cannot be loaded: {error}"
            ) from error
        if not isinstance(contestant, Contestant):
            raise PareoError(
                f"the entry point {point.name} = {point.value} should be a Contestant; "
                f"it is {contestant!r:.60}"
            )
        if point.name in BUILT_IN:
            raise PareoError(f"the entry point {point.name} = {point.value} has a taken name")
        found[point.name] = contestant
    return found


def chosen(names: list[str]) -> dict[str, Contestant]:
    """The contestants of these names.

    >>> list(chosen(["torch", "jax"]))
    ['torch', 'jax']
    """
    all_known = known()
    for name in names:
        if name not in all_known:
            raise PareoError(f"no contestant is called {name!r}; there are {', '.join(all_known)}")
    return {name: all_known[name] for name in names}
