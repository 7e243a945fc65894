"""How operators are computed: one table of kernels for each device."""
