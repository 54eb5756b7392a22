"""Appending runs of steps to the files of a store."""

from __future__ import annotations

import itertools
import os
import zlib
from typing import TYPE_CHECKING, Any

from relive.errors import CorruptError
from relive.storage.episode_files import DATA, HEADER, INDEX
from relive.storage.episode_index import ENTRY, UNFINISHED, Index, Run
from relive.storage.files import write_all
from relive.storage.writer_lock import LOCK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from relive.storage.writer_lock import Lock

LARGE = 1 << 16  # bytes that are worth a write of their own
PENDING = 1 << 20  # bytes held back until there is enough to write


class Writer:
    """Appends runs; nothing is in the files, nor in the index, before `write_out`.

    Args:
        folder: of a store.
        held: its lock.
        index: what it names already; grows.
        rest: bytes at the end of the index that are no entry.

    Raises:
        CorruptError: the data that the index names is not all there; nothing has been touched.
    """

    def __init__(self, folder: Path, held: Lock, index: Index, rest: int) -> None:
        self._held, self._index = held, index
        self._entries: list[bytes] = []
        self._parts: list[Any] = []
        self._waiting = 0  # bytes of parts
        self._files = {name: (folder / name).open("r+b", buffering=0) for name in (INDEX, DATA)}
        self._end = self._named_end = max(index.end_of_data, HEADER.size)
        size = os.fstat(self._files[DATA].fileno()).st_size
        if index.num_entries and size < self._end:
            self.close()
            raise CorruptError(
                f"{folder / DATA} has {size} bytes, and the index names {self._end}: bring the "
                "whole file back; or read it with mode='r', and write to another store"
            )
        self._folder = folder
        self.rest = rest + max(0, size - self._end)
        self._cut()
        for number, entry in index.open_runs():
            stop = int(entry["first_step"]) + int(entry["steps"])
            reward, env = float(entry["reward"]), int(entry["env"])
            self.put(Run(number, stop, 0, 0, reward, env, UNFINISHED), [])
        self.write_out()

    def _cut(self) -> None:
        """Remove what stands behind the last whole entry and its payload."""
        ends = {INDEX: HEADER.size + self._index.num_entries * ENTRY.itemsize, DATA: self._end}
        for name, end in ends.items():
            file = self._files[name]
            if os.fstat(file.fileno()).st_size > end:
                file.truncate(end)

    def put(self, run: Run, parts: list[Any]) -> int:
        """Take a run: offset, nbytes and crc32 are filled in here; returns its number.

        Args:
            parts: its payload, contiguous runs of bytes; held until they are written.
        """
        nbytes = crc = 0
        for part in parts:
            crc = zlib.crc32(part, crc)
            nbytes += len(part)
        number = self._index.num_entries + len(self._entries)
        placed = run._replace(offset=self._end + self._waiting, nbytes=nbytes, crc32=crc)
        self._entries.append(placed.packed(number))
        self._parts += parts
        self._waiting += nbytes
        return number

    @property
    def has_much(self) -> bool:
        """Whether enough is waiting to be written."""
        return self._waiting >= PENDING

    def write_data(self) -> None:
        """Hand the payloads that wait to the system; nobody knows of them yet."""
        if self._parts:
            data = self._files[DATA]
            data.seek(self._end)
            for part in _pieces(self._parts):
                write_all(data, part)
            self._end += self._waiting
            self._parts, self._waiting = [], 0

    def write_out(self, *, sync: bool = False) -> None:
        """Hand all that waits to the system, and with `sync` down to the disk.

        Raises:
            OSError: as the file system says; what could not be written goes on waiting.
            CorruptError: the files, or the lock, have been removed.
        """
        self._require_files()
        data, index = self._files[DATA], self._files[INDEX]
        self.write_data()
        if sync:
            os.fsync(data.fileno())
        if self._entries:
            raw = b"".join(self._entries)
            index.seek(HEADER.size + self._index.num_entries * ENTRY.itemsize)
            write_all(index, memoryview(raw))
            self._index.add(raw)
            self._entries = []
        if sync:
            os.fsync(index.fileno())
        self._named_end = self._end

    def _require_files(self) -> None:
        """Refuse to write into files that nobody will find, or that others may write into."""
        for name, file in self._files.items():
            if os.fstat(file.fileno()).st_nlink == 0:
                raise CorruptError(
                    f"{self._folder / name} has been removed while the store was open to write: "
                    "close it, and make another one; buffers that tee here: buffer.tee(None)"
                )
        if not self._held.is_there:
            raise CorruptError(
                f"{self._folder / LOCK} has been removed while the store was open to write, so "
                "that another process may write too: close it, and open it again; buffers that tee "
                "here: buffer.tee(None)"
            )

    def take_back(self) -> None:
        """Drop all that has been put since `write_out`."""
        self._entries, self._parts, self._waiting = [], [], 0
        self._end = self._named_end
        if self._held.is_there:  # else what stands there may be another writer's
            self._cut()

    def close(self) -> None:
        """Close the files; what waits is gone."""
        for file in self._files.values():
            file.close()


def _pieces(parts: list[Any]) -> Iterator[memoryview]:
    """Parts in order, small ones put together."""
    for large, group in itertools.groupby(parts, lambda part: len(part) >= LARGE):
        if large:
            yield from (memoryview(part) for part in group)
        else:
            yield memoryview(b"".join(group))
