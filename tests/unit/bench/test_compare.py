"""The run: what is asked of whom, and what becomes of those that fail."""

from __future__ import annotations

from relive.bench import compare as _  # noqa: F401
