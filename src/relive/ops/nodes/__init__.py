"""Nodes of the tree, in kernels."""
