"""Training steps whose values are matrices, run by machine code from a table of instructions.

`table`        from a compiled program to the table, and where threads must wait for each other
`interpreter`  the loop over steps and instructions, compiled once for all networks
`blas_product` matrix products by BLAS
`small_batch`  matrix products of small batches, from the `tiles` in registers
`runner`       binds a table to the caller's arrays
"""
