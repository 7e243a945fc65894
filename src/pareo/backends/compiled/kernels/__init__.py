"""Kernels of the `compiled` device, one module for each family of operators."""
