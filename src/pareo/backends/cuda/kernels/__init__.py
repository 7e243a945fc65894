"""Kernels of the `cuda` device: CUDA source, and the Python that launches it."""
