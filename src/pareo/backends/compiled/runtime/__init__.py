"""What compiled code needs: Numba, its cache, vector instructions, threads."""
