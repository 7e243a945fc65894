"""Ways to convolve on a CPU, and the choice between them.

`convolution`     chooses by the shapes, and fills the table of kernels
`shifted_rows`    few small filters: loops over whole images
`register_tiles`  the same on one channel, with sums in registers (LLVM instructions)
`tiled_layer`     a generated module that uses `register_tiles`
`direct`          other very small filters: plain loops
`winograd`        3x3 and 5x5 filters with many channels: fewer multiplications
`channels_last`   other filters: images are copied once, and windows read where they lie
`im2col`          everything else: columns and BLAS

`winograd` and `channels_last` share `runtime.lanes`, which has pixels as vectors of channels, and
`runtime.register_products`.
"""
