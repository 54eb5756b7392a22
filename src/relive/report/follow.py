"""A run directory that another process is writing to, read as it grows."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from relive.errors import InputError
from relive.report.read import METRICS
from relive.report.records import Lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from relive.report.records import Record

CHUNK = 1 << 20  # bytes read at a time
KNOWN = 256  # bytes in front of the place read up to, by which a new file is told from a longer one


class News(NamedTuple):
    """What has been written since the last look.

    Attributes:
        records: In the order in which they were written.
        anew: Whether they are from a new file, so that what was read before is gone.
        more: Whether more is waiting to be read.
    """

    records: list[Record]
    anew: bool
    more: bool


class Follower:
    """Reads what is added to the `metrics.jsonl` of a run, each byte once.

    The file need not exist yet; it may be removed and written again; its last line may be half
    written, which is then read when it is whole.

    Args:
        path: The run directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / METRICS
        self._begin()

    def _begin(self) -> None:
        self._offset, self._inode = 0, 0
        self._known, self._rest = b"", b""
        self._lines = Lines(self.file)

    def read(self) -> News:
        """What is new; reads at most a chunk, and returns at once.

        Raises:
            InputError: A line is no record, or the directory is a file.
        """
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is not a run directory but a file")
        try:
            with self.file.open("rb") as file:
                status = os.fstat(file.fileno())
                anew = self._offset > 0 and not self._goes_on(file, status)
                if anew:
                    self._begin()
                self._inode = status.st_ino
                file.seek(self._offset)
                chunk = file.read(CHUNK)
        except FileNotFoundError:
            gone = self._offset > 0
            self._begin()
            return News([], gone, False)
        self._offset += len(chunk)
        self._known = (self._known + chunk)[-KNOWN:]
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        texts = [line.decode("utf-8", "replace") for line in whole]
        return News(list(self._lines.records(texts)), anew, self._offset < status.st_size)

    def quiet_for(self, now: float) -> float | None:
        """Seconds since something was written; None if there is no file.

        Args:
            now: The time, `time.time()`.
        """
        try:
            return max(0.0, now - self.file.stat().st_mtime)
        except OSError:
            return None

    def _goes_on(self, file: object, status: os.stat_result) -> bool:
        """Whether the file is the one read so far, longer or not."""
        if status.st_ino != self._inode or status.st_size < self._offset:
            return False
        file.seek(self._offset - len(self._known))  # type: ignore[attr-defined]  # a binary file
        return bool(file.read(len(self._known)) == self._known)  # type: ignore[attr-defined]


def newest_run(folder: Path) -> Path:
    """The run directory below a folder that was written to last.

    Raises:
        InputError: There is none.
    """
    found = list(_ages(folder))
    if not found:
        raise InputError(f"there is no run below {folder}/; `relive train` makes one, or name one")
    return max(found)[1]


def is_written_to(path: Path) -> bool | None:
    """Whether a process of this machine has the file open; None where that cannot be told."""
    processes = Path("/proc")
    if not (processes / "self" / "fd").is_dir():
        return None
    target = os.path.realpath(path)
    for folder in processes.glob("[0-9]*/fd"):
        with suppress(OSError):  # of another user, or gone
            for descriptor in folder.iterdir():
                with suppress(OSError):
                    if os.readlink(descriptor) == target:  # noqa: PTH115 - not to be resolved
                        return True
    return False


def _ages(folder: Path) -> Iterator[tuple[float, Path]]:
    for metrics in folder.glob(f"*/{METRICS}"):
        with suppress(OSError):
            yield metrics.stat().st_mtime, metrics.parent
