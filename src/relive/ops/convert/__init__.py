"""Floats that are stored in fewer bits."""
