"""Which way a training step is computed: the one that is expected to take the least time.

Small networks have three ways: a block for each image (`images`), all blocks together (`grid`), or
instruction by instruction, with convolutions channels last where they are large enough (`nhwc`).
"""

from pareo.backends.cuda.grid import lower as grid
from pareo.backends.cuda.images import lower as images
from pareo.backends.cuda.images.costs import expected_otherwise
from pareo.backends.cuda.nhwc import lowered as channels_last
from pareo.backends.cuda.nhwc.lower import worth_lowering
from pareo.device import current
from pareo.program.ir import Program
from pareo.program.passes import rewrite

OTHERWISE = "otherwise"
NAMES = {
    "images": "a block for each image",
    "grid": "all blocks together",
    OTHERWISE: "instruction by instruction",
}


def expected(program: Program) -> dict[str, float]:
    """Microseconds that a step is expected to take, by the ways that can compute it."""
    found = {"images": images.microseconds(program), "grid": grid.expected(program)}
    exact = current().precision == "float32"
    found[OTHERWISE] = expected_otherwise(program, exact)
    return {way: time for way, time in found.items() if time is not None}


def chosen(program: Program) -> str:
    """The way that is expected to be the fastest."""
    times = expected(program)
    return min(times, key=lambda way: times[way])


@rewrite
def lowered(program: Program) -> Program:
    """The program, computed in the way that is expected to be the fastest."""
    if not is_step(program):
        return channels_last(program)
    match chosen(program):
        case "images":
            return images.image_by_image(program)
        case "grid":
            return grid.computed_together(program)
    return channels_last(program)


def is_step(program: Program) -> bool:
    """Whether a program computes gradients: other programs are not computed often enough."""
    return any(one.name.endswith("_gradient") for one in program.instructions)


def description(program: Program) -> str:
    """The way that was chosen, and what each is expected to take.

    >>> from pareo.nn import networks
    >>> from pareo.training.step import step_program
    >>> print(description(step_program(networks.by_name("mlp-small"), 16)))
    all blocks together, by what is expected: all blocks together 17 us, instruction by \
instruction 69 us; a block for each image cannot compute a network without convolutions any faster
    """
    times, way = expected(program), chosen(program)
    refused = [images.refusal(program), grid.refusal(program)]
    parts = [f"{NAMES[one]} {time:.0f} us" for one, time in times.items()]
    last = ", convolutions channels last" if way == OTHERWISE and worth_lowering(program) else ""
    said = f"{NAMES[way]}{last}, by what is expected: {', '.join(parts)}"
    return "; ".join([said, *filter(None, refused)])
