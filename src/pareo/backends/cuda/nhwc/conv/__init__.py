"""Convolutions: cuDNN, our own kernels beside it, and the choice of the fastest for a shape."""
