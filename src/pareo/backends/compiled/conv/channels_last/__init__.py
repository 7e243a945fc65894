"""Convolution with the channels of a pixel next to each other, read where they lie."""
