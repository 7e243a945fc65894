"""How long an image takes in the loop over groups of images, and instruction by instruction.

The rates are what one core of a Neoverse N1 reached, as `benchmarks/group_loops.py` prints them.
Only their ratios matter, so the choice is the same on all machines, and follows from shapes and the
batch size alone.
"""

from dataclasses import dataclass

from pareo.backends.compiled.conv import winograd
from pareo.program.ir import Instruction, Program
from pareo.spec import Spec

GFLOP = 1e9
IN_GROUPS = 33 * GFLOP  # FLOP/s of convolutions and dense layers
OUT_OF_CACHE = 10 * GFLOP  # of dense layers with more weights than this
CACHED_WEIGHTS = 1 << 18
IM2COL, DOT = 30 * GFLOP, 30 * GFLOP  # instruction by instruction, with many filters
FEW_FILTERS = 15  # with as many, half of that rate: copies take as long as products
WINOGRAD = {3: 50 * GFLOP, 5: 36 * GFLOP}  # by the size of filters, with many channels
FEW_CHANNELS = 300  # with as many channels as the root of this, half of that rate
MANY_IMAGES = 64  # Winograd's algorithm needs a number of tiles
CACHED_ELEMENT, ELEMENT = 0.5e-9, 1e-9  # seconds for an element of anything else
CALL = 15e-6  # seconds for each instruction of a step
LONG = 400  # instructions of a loop that should save half of the time


@dataclass(frozen=True)
class Estimate:
    """Seconds for each image in both ways."""

    in_groups: float
    by_instructions: float
    instructions: int

    @property
    def is_worth_it(self) -> bool:
        """Whether the loop saves enough; a long one takes many seconds to compile."""
        return self.in_groups * (1 + self.instructions / LONG) < self.by_instructions

    def __str__(self) -> str:
        return (
            f"estimated {1e6 * self.in_groups:.0f} us an image in groups of images, "
            f"{1e6 * self.by_instructions:.0f} us instruction by instruction"
        )


def estimate(program: Program, batch: int, waste: float = 1.0) -> Estimate:
    """Both times for the gradient program of one image, in steps of `batch` images.

    `waste` is the time of an image relative to one in a full group of images.
    """
    in_groups = by_instructions = 0.0
    for i in program.instructions:
        if i.is_view:
            continue
        by_instructions += CALL / batch
        if i.name.startswith("conv"):
            in_groups += i.flops / IN_GROUPS
            by_instructions += i.flops / _convolution_rate(program, i)
        elif i.name == "dot":
            weights = max(program.specs[n].size for n in (*i.inputs, *i.outputs))
            in_groups += i.flops / (IN_GROUPS if weights <= CACHED_WEIGHTS else OUT_OF_CACHE)
            by_instructions += i.flops / DOT
        else:
            size = max(program.specs[n].size for n in (*i.inputs, *i.outputs))
            in_groups += size * CACHED_ELEMENT
            by_instructions += size * ELEMENT
    return Estimate(in_groups * waste, by_instructions, len(program.instructions))


def _convolution_rate(program: Program, i: Instruction) -> float:
    """The FLOP/s of a convolution, or a gradient of one, for a batch of some images."""
    specs = [program.specs[n] for n in (*i.inputs, *i.outputs)]
    order = {"conv": (1, 2), "conv_input_gradient": (1, 0), "conv_weight_gradient": (2, 1)}
    filters, out = (specs[n] for n in order[i.name])
    how = {name: i.attributes[name] for name in ("stride", "padding", "dilation", "groups")}
    many = Spec((MANY_IMAGES * out.shape[0], *out.shape[1:]), out.dtype)
    if not winograd.suits(filters.shape, many, **how):
        return IM2COL * filters.shape[0] / (filters.shape[0] + FEW_FILTERS * how["groups"])
    channels = min(filters.shape[:2])
    return WINOGRAD[filters.shape[2]] * channels**2 / (channels**2 + FEW_CHANNELS)
