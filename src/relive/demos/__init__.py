"""Demonstrations: episodes in files of other programs, into a buffer and pinned there."""

from relive.demos.demonstration import Demonstration
from relive.demos.formats import FORMATS, read
from relive.demos.loading import Filter, Loaded, load
from relive.demos.recording import write_minari

__all__ = ["FORMATS", "Demonstration", "Filter", "Loaded", "load", "read", "write_minari"]
