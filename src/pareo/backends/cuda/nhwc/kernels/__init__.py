"""Kernels of lowered programs other than convolutions: CUDA source and its launches."""
