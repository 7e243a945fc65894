"""Ways to convolve on a CPU, and the choice between them."""
