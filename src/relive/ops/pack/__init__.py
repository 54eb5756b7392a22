"""Columns of values become packed rows."""
