"""Times single operators, on pareo's devices and in other libraries, against their limits."""
