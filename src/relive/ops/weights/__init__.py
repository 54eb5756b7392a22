"""Importance weights."""
