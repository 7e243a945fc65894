"""Any small network whose values fit into a cache: a generated loop over groups of images.

The images of a group lie side by side as the innermost axis of every value.

`loop`         the loop, and when it is used
`costs`        whether it is estimated to be worth it
`emit`         how each instruction becomes lines of the loop
`source`       the text of the loop, and where its values lie
`conv`, `dense`, `pool`, `vectors`  its kernels as LLVM instructions
`moves`        its other loops
`window_runs`  which pixels the windows of a convolution or pooling cover
"""
