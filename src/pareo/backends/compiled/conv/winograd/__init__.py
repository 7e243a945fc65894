"""3x3 and 5x5 convolutions with a fraction of the multiplications: Winograd's minimal filtering."""
