"""A run directory, as far as commands know it that need nothing else of training."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CHECKPOINT = "checkpoint"  # folder of the last save
MANIFEST = "manifest.json"  # in it, once it is whole


def is_saved(out: Path) -> bool:
    """Whether the run in a directory has something to go on from."""
    return (out / CHECKPOINT / MANIFEST).is_file()


def resume_command(out: Path | str) -> str:
    """What to type to go on with the run in a directory."""
    return f"relive train --resume {shlex.quote(str(out))}"
