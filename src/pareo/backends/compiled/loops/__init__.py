"""Training loops for whole networks, which pay for Python once for many steps.

`dense`           networks of dense layers: the batch is split once for a whole step
`network`         other very small networks: a generated loop over images
`emit`            how each instruction becomes lines of that loop
`source`          the text of that loop
`templates`       functions with literal sizes for that loop
`narrow_matvec`, `window_rows`  parts of that loop as LLVM instructions

`groups`          any other network whose values fit into a cache: a generated loop over groups of
                  images, which lie side by side as the innermost axis of every value
`group_emit`      how each instruction becomes lines of that loop
`group_source`    the text of that loop, and where its values lie
`group_conv`, `group_dense`, `group_pool`, `group_vectors`  its kernels as LLVM instructions
`group_moves`     its other loops
`group_costs`     whether that loop is worth it
`window_runs`     which pixels the windows of a convolution or pooling cover
"""
