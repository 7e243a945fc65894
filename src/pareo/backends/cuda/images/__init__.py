"""Training steps of small networks with one kernel for the forward and backward pass.

Each block computes one image: `rows` finds the instructions that can be, `emit` writes the kernel
(`source`), whose layers are in conv.cuh, pool.cuh and rows.cuh, `costs` says where it is worth it,
and `lower` rewrites the program. What an image adds to the gradients of filters and biases is
summed by another kernel; gradients of dense layers are matrix products of rows that the first one
saves.
"""
