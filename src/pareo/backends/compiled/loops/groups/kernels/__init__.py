"""The loops that generated loops over groups of images call.

`conv`, `filter_gradient`, `dense`, `pool`  layers as LLVM instructions
`vectors`, `tiles`        the instructions on groups of images, and on tiles of pixels
`row`                     dense layers of a single image
`batch_norm`, `channels`  normalisations
`moves`                   gathers, sums along axes and copies
`window_runs`             which pixels the windows of a convolution or pooling cover
"""
