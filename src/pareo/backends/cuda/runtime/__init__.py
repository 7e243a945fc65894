"""What kernels need: CuPy, NVRTC, memory, launches, graphs and streams."""
