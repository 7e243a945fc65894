"""Whole epochs of training in one launch, for small networks.

`layers` reads the layers off a gradient program. From them a kernel is generated with all shapes as
constants: `source` and `emit` write the one with an image for each block, `tiled` the one with a
tile of a matrix product for each block. The `.cuh` files are their parts. `loops` compiles and
launches them.
"""

from pareo.backends.cuda.epoch.loops import loop

__all__ = ["loop"]
