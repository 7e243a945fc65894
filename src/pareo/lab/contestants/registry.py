"""Everyone who can race, by name: pareo's devices, its peers, and who came by an entry point."""

from importlib.metadata import entry_points

from pareo.errors import PareoError
from pareo.lab.contestants import CONTESTANTS, Contestant, Task
from pareo.machine import gpus
from pareo.training.step import step_program

GROUP = "pareo.contestants"
ADAPTERS = "pareo.lab.contestants."
SLICE = 2  # images in a step of plain loops, which need half a second for one of MNIST


def _on_gpu(
    framework: str, needs: str | None = None, warms: bool = False, **options: object
) -> Contestant:
    return Contestant(f"{ADAPTERS}{framework}", options, needs, gpu=True, warms=warms)


ON_GPU = {
    "pareo-cuda": _on_gpu("pareo_step", device="cuda"),
    "torch-cuda": _on_gpu("torch_cuda", "torch"),
    "torch-cuda-default": _on_gpu("torch_cuda", "torch", benchmark=False),
    "torch-cuda-compile": _on_gpu("torch_cuda", "torch", warms=True, compiled=True),
    "torch-cudagraph": _on_gpu("torch_cuda", "torch", graph=True),
    "torch-cudagraph-default": _on_gpu("torch_cuda", "torch", graph=True, benchmark=False),
    "torch-cudagraph-cudnn-off": _on_gpu("torch_cuda", "torch", graph=True, cudnn=False),
    "torch-cudagraph-compile": _on_gpu(
        "torch_cuda", "torch", warms=True, compiled=True, graph=True
    ),
    "jax-cuda": _on_gpu("jax_cuda", "jax"),
    "jax-cuda-scan": _on_gpu("jax_cuda", "jax", scan=True),
    "jax-cuda-last": _on_gpu("jax_cuda", "jax", last=True),
    "tensorflow-cuda": _on_gpu("tensorflow_step", "tensorflow", gpu=True),
}

# The fastest of a framework's settings, found in a short trial before the race.
BEST = {
    "torch-best": Contestant(
        needs="torch",
        tries=("torch", "torch-onednn-off", "torch-channels-last", "torch-compile"),
    ),
    "jax-best": Contestant(needs="jax", tries=("jax", "jax-scan", "jax-channels-last")),
    "tensorflow-best": Contestant(needs="tensorflow", tries=("tensorflow", "tensorflow-xla")),
    "torch-cuda-best": Contestant(
        needs="torch",
        gpu=True,
        tries=(
            "torch-cuda",
            "torch-cuda-default",
            "torch-cudagraph",
            "torch-cudagraph-default",
            "torch-cudagraph-cudnn-off",
            "torch-cuda-compile",
            "torch-cudagraph-compile",
        ),
    ),
    "jax-cuda-best": Contestant(
        needs="jax", gpu=True, tries=("jax-cuda", "jax-cuda-scan", "jax-cuda-last")
    ),
}
SLOW_TO_BUILD = ("torch-compile", "torch-cuda-compile", "torch-cudagraph-compile")

BUILT_IN = {
    "pareo-sequential": Contestant(f"{ADAPTERS}pareo_step", {"device": "sequential"}, images=SLICE),
    **CONTESTANTS,
    **BEST,
    **ON_GPU,
}

# Who races unless others are named.
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
    """Who races unless others are named: GPUs where there is one, and whoever entered.

    >>> from pareo.nn import networks
    >>> "pareo-sequential" in usual(Task(networks.googlenet(), batch=1))
    False
    """
    names = [*USUAL, *(USUAL_ON_GPU if gpus() else ()), *_entered()]
    if step_program(task.network, 1).flops > LOOPED:
        names.remove("pareo-sequential")
    return names


def known() -> dict[str, Contestant]:
    """Every contestant, those of other packages after pareo's own.

    >>> known()["jax-best"].tries
    ('jax', 'jax-scan', 'jax-channels-last')
    """
    return BUILT_IN | _entered()


def _entered() -> dict[str, Contestant]:
    """What other packages have under the entry point group `pareo.contestants`."""
    found = {}
    for point in entry_points(group=GROUP):
        try:
            contestant = point.load()
        except Exception as error:  # whatever a stranger's module does, it is said whose it was
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
    everyone = known()
    for name in names:
        if name not in everyone:
            raise PareoError(f"no contestant is called {name!r}; there are {', '.join(everyone)}")
    return {name: everyone[name] for name in names}
