"""The loops that generated loops over groups of images call.

`conv`, `dense`, `pool`  layers as LLVM instructions, which `vectors` emits
`batch_norm`, `channels`  normalisations
`moves`                  gathers, sums along axes and copies
`window_runs`            which pixels the windows of a convolution or pooling cover
"""
