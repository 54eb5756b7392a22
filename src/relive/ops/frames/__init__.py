"""Frames of stacks, each kept once."""
