"""Priorities by rank."""
