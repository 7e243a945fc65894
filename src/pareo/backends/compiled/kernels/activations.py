"""The activations of fused kernels, as numbers for compiled code."""

NONE, SIGMOID, TANH, RELU, CLIP, SILU, HARD_SWISH = range(7)
ACTIVATIONS = {"none": NONE, "sigmoid": SIGMOID, "tanh": TANH, "relu": RELU}
