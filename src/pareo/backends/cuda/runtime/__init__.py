"""What kernels are built on. Nothing here knows an operator.

`toolkit` finds CUDA's libraries, `nvrtc` compiles, `source` reads our `.cu` files and caches their
machine code, `launch` launches them, `cublas` multiplies matrices. `memory` allocates and copies
arrays, `graph` captures and replays work as CUDA graphs, `streams` runs a captured program on
several streams, and `indexed_batch` is a batch that is read from the dataset by index.
"""
