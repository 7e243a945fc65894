"""Kernels for every operator: CUDA source, and the Python that launches it.

A module for each family of operators enters its kernels into the backend's table. The `.cu` file of
a kernel says in its first comment what it expects; Python chooses grid and block. `common.cuh` is
shared by all of them, `strides` describes strided arrays to them, `channels` divides sums over
channels among blocks, and `batches.cu` serves `cuda/training.py`.
"""
