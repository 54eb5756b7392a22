"""Filling a batch with the rows that were drawn."""
