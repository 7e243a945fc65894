"""Kernels of the `compiled` device, one module for each family of operators.

`elementwise`, `linear`, `loss`, `normalisation`, `pooling`, `reduction` and `update` fill the
table. The others are what these and `conv` are made of:

`activations`           the numbers of activations in compiled code
`elementwise_loops`     single-threaded loops over flat arrays
`parallel_elementwise`  the same, split over threads without Python
`max_pool_loops`        single-threaded loops of max pooling
`matmul`                matrix products: BLAS, or loops where BLAS is slow
`skinny_matmul`         products of few rows with a large matrix
`gradient_sums`         sums and updates that generated modules call
"""
