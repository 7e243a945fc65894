"""The gate: whether a contestant computes what float64 computes, up to rounding."""
