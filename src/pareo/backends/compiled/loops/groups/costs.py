"""How long an image takes in the loop over groups of images, and instruction by instruction.

The rates are what one core reached, as `benchmarks/group_loops.py` prints them. Only their ratios
matter, so the choice follows from shapes, the batch size, the number of threads and the width of
the registers alone.
"""

from dataclasses import dataclass

from pareo.backends.compiled.conv import by_taps
from pareo.backends.compiled.conv.winograd import layer as winograd
from pareo.backends.compiled.runtime import registers
from pareo.program.ir import Instruction, Program
from pareo.spec import Spec

GFLOP = 1e9
CACHED_WEIGHTS = 1 << 18
FEW_FILTERS = 15  # with as many, half of the rate of other ways: copies take as long as products
BY_TAPS = 0.6  # of the rate with many filters, where each tap is one
FEW_CHANNELS = 300  # with as many channels as the root of this, half of Winograd's rate
MANY_IMAGES = 64  # Winograd's algorithm needs a number of tiles
LANE_SUM = 3e-9  # seconds for a filter's element and group: its gradient is a sum of lanes
# Seconds of a step for each parameter, whose gradients are cleared, added up and read. In groups of
# several images it is not what decides, and the rest is estimated well without.
PARAMETER, PARAMETER_UNCACHED = 1.5e-9, 5.5e-9
LONG = 1500  # instructions of a loop that takes so long to compile that it should save half


@dataclass(frozen=True)
class Rates:
    """What one core reaches: FLOP/s, and seconds for an element of anything but products.

    in_groups:    of convolutions and dense layers, in groups
    out_of_cache: of dense layers with more weights than CACHED_WEIGHTS, in groups
    others, dot:  instruction by instruction, with many filters
    winograd:     the same, by the size of filters, with many channels
    cached:       seconds for an element in groups; `element`: instruction by instruction
    call:         seconds for each instruction of a recorded step besides; not measured on Arm
    shared:       seconds that a step takes longer for being shared: barriers, and what passes
                  between the caches of cores; not measured on Arm
    """

    in_groups: float
    out_of_cache: float
    others: float
    dot: float
    winograd: dict[int, float]
    cached: float
    element: float
    call: float
    shared: float


NEOVERSE_N1 = Rates(
    33 * GFLOP, 10 * GFLOP, 30 * GFLOP, 30 * GFLOP, {3: 50 * GFLOP, 5: 36 * GFLOP}, 0.5e-9, 1e-9,
    6e-6, 0.0,
)  # fmt: skip
CASCADE_LAKE = Rates(
    90 * GFLOP, 40 * GFLOP, 75 * GFLOP, 60 * GFLOP, {3: 130 * GFLOP, 5: 155 * GFLOP}, 0.3e-9,
    0.8e-9, 6e-6, 12e-6,
)  # fmt: skip
RATES = CASCADE_LAKE if registers.HAS_AVX512 else NEOVERSE_N1


@dataclass(frozen=True)
class Split:
    """How the images of a step are divided in the loop over groups.

    lanes:   the images of a group
    workers: those that have groups; instruction by instruction, all `threads` have a share
    waste:   the time that an image adds to a step, relative to one in a full group on one core
    """

    lanes: int = 8
    workers: int = 1
    threads: int = 1
    waste: float = 1.0


@dataclass(frozen=True)
class Estimate:
    """Seconds that each image adds to a step in both ways."""

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


def estimate(program: Program, batch: int, split: Split | None = None) -> Estimate:
    """Both times for the gradient program of one image, in steps of `batch` images.

    Threads share the work of an instruction, but not what it costs to begin one.
    """
    split = split or Split()
    in_groups = work = calls = sums = 0.0
    for i in program.instructions:
        if i.is_view:
            continue
        calls += RATES.call / batch
        if i.name.startswith("conv"):
            in_groups += i.flops / RATES.in_groups
            work += i.flops / _convolution_rate(program, i)
            if i.name == "conv_weight_gradient":
                sums += program.specs[i.outputs[0]].size * LANE_SUM / split.lanes
        elif i.name == "dot":
            weights = max(program.specs[n].size for n in (*i.inputs, *i.outputs))
            is_cached = weights <= CACHED_WEIGHTS
            in_groups += i.flops / (RATES.in_groups if is_cached else RATES.out_of_cache)
            work += i.flops / RATES.dot
        else:
            size = max(program.specs[n].size for n in (*i.inputs, *i.outputs))
            in_groups += size * RATES.cached
            work += size * RATES.element
    return Estimate(
        in_groups * split.waste + sums / split.workers + _updates(program, batch, split),
        calls + work / split.threads,
        len(program.instructions),
    )


def _updates(program: Program, batch: int, split: Split) -> float:
    """What parameters add to each image's time in groups."""
    parameters = sum(program.specs[n].size for n in program.inputs[:-2])
    each = PARAMETER if parameters <= CACHED_WEIGHTS else PARAMETER_UNCACHED
    return each * parameters / batch if split.lanes == 1 else 0.0


def _convolution_rate(program: Program, i: Instruction) -> float:
    """The FLOP/s of a convolution, or a gradient of one, for a batch of some images."""
    specs = [program.specs[n] for n in (*i.inputs, *i.outputs)]
    order = {"conv": (1, 2), "conv_input_gradient": (1, 0), "conv_weight_gradient": (2, 1)}
    filters, out = (specs[n] for n in order[i.name])
    how = {name: i.attributes[name] for name in ("stride", "padding", "dilation", "groups")}
    many = Spec((MANY_IMAGES * out.shape[0], *out.shape[1:]), out.dtype)
    if not winograd.suits(filters.shape, many, **how):
        if i.name != "conv_input_gradient" and by_taps.suits(specs[0], filters.shape, out, **how):
            seen, pixels = (one.size // one.shape[1] for one in (out, specs[0]))
            return RATES.others * BY_TAPS * seen / pixels
        count = filters.shape[0]
        if i.name == "conv_input_gradient":  # which has channels for results
            count = max(count, filters.shape[1] * how["groups"])
        return RATES.others * count / (count + FEW_FILTERS * how["groups"])
    channels = min(filters.shape[:2])
    return RATES.winograd[filters.shape[2]] * channels**2 / (channels**2 + FEW_CHANNELS)
