"""A training step as one kernel whose blocks compute every layer together.

Small networks at small batch sizes wait for launches, not for arithmetic. Here the forward and the
backward pass are one launch. `plan` sorts the instructions into levels: those of a level do not
depend on each other, and elementwise instructions belong to the one that made their operand.
`source` writes the kernel, in which the blocks share the tiles of each level and then wait for each
other, and `tiles` chooses the tiles. `lower` decides whether a program is computed this way.
"""
