"""Priorities of trained rows."""
