"""Training steps as one kernel whose blocks compute every layer together.

Small networks at small batch sizes wait for launches, not for arithmetic. Here a launch computes
the forward and the backward pass of a step, or thousands of whole steps.

- `plan`, `steps`, `parts`: the instructions as tasks, some in two steps, and the levels in which
  they can run.
- `updates`, `joined`: updates that belong to gradients, and losses that belong to logits.
- `emit`, `products`, `norms`, `shapes`: the code of each task, in one way or in several.
- `tiles`, `sharing`: what each way costs, and how the blocks share a level.
- `later`: tasks that nobody waits for, in later levels.
- `source`, `loop`: the kernels of one step and of many. `kernel` launches them.
- `lower` decides whether a program is computed this way, and what that is expected to take.
"""
