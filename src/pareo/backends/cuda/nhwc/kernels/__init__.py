"""Kernels of lowered programs, other than convolutions.

Each module enters its instructions into `table`; its `.cu` file has the CUDA source. `launch` knows
the template instances and chooses grids.
"""
