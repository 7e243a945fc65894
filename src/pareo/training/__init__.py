"""Training: the step, the loop, checkpoints."""
