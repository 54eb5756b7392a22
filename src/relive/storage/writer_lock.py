"""One writer at a time: a lock that ends with the process that holds it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from relive.errors import UnsupportedError

if TYPE_CHECKING:
    import io
    from pathlib import Path

LOCK = "lock"


class Lock:
    """Held by at most one process, and let go when that ends, however it ends.

    Args:
        folder: Has a file for it.
        instead: What to do while another process writes.

    Raises:
        UnsupportedError: another holds it.
    """

    def __init__(self, folder: Path, instead: str) -> None:
        self._file = (folder / LOCK).open("a+b", buffering=0)
        if not _lock(self._file):
            self._file.seek(0)
            holder = self._file.read(20).decode(errors="replace") or "unknown"
            self._file.close()
            raise UnsupportedError(
                f"{folder} is being written by process {holder}, and has one writer at a time; "
                f"{instead}"
            )
        self._file.truncate(0)
        self._file.write(str(os.getpid()).encode())

    def release(self) -> None:
        """Let go, for every process that has inherited it."""
        _unlock(self._file)
        self._file.close()

    def leave(self) -> None:
        """Close it in a forked child; the parent goes on holding it."""
        self._file.close()


if sys.platform == "win32":
    import msvcrt

    def _lock(file: io.FileIO) -> bool:
        file.seek(64)  # behind the number that others read
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(file: io.FileIO) -> None:
        file.seek(64)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(file: io.FileIO) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _unlock(file: io.FileIO) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)
