"""The activations of fused kernels, as numbers for compiled code."""

NONE, SIGMOID, TANH, RELU = 0, 1, 2, 3
ACTIVATIONS = {"none": NONE, "sigmoid": SIGMOID, "tanh": TANH, "relu": RELU}
