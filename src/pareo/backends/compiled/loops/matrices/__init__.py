"""Training steps whose values are matrices, run by machine code from a table of instructions.

`table`         from a compiled program to the table
`rows`          its rows: instructions, and what each worker reads and writes
`opcodes`       which instruction computes the products of a layer
`schedule`      where workers must wait for each other
`interpreter`   the loop over steps and instructions, compiled once for all networks
`blas_product`  matrix products by BLAS
`small_batch`   matrix products of small batches, from the `tiles` in registers
`tile_products` other small products, from tiles that read both factors where they are
`runner`        binds a table to the caller's arrays
"""
