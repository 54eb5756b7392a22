"""The exact sum tree."""
