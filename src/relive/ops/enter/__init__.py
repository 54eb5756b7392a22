"""Leaves of new rows, in kernels."""
