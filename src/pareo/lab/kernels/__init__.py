"""Which kernels a training step's time goes to: one table of one form for every contestant."""
