"""Training loops for whole networks, which pay for Python once for many steps.

`dense`           networks of dense layers: the batch is split once for a whole step
`network`         other very small networks: a generated loop over images
`emit`            how each instruction becomes lines of that loop
`source`          the text of that loop
`templates`       functions with literal sizes for that loop
`narrow_matvec`, `window_rows`  parts of that loop as LLVM instructions

`matrices`        networks whose values are matrices: a table of instructions in machine code
`gather`          the images of a batch, copied to where `dense` and `matrices` read them
`groups`          any other network whose values fit into a cache: a generated loop over groups of
                  images
"""
