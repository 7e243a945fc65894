"""Any small network whose values fit into a cache: a generated loop over groups of images.

The images of a group lie side by side as the innermost axis of every value.

`loop`       the loop, and when it is used
`costs`      whether it is estimated to be worth it
`segments`   the program, cut where images depend on each other
`source`     the text of the loop, and where its values lie in `memory`
`emitters/`  how each instruction becomes lines of the loop
`kernels/`   the loops and LLVM instructions that these lines call
"""
