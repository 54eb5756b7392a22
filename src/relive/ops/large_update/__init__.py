"""Updates of many rows, in kernels."""
