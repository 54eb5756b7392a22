"""Arrays in files that are whole or not there: written beside, checksummed, then renamed."""

from __future__ import annotations

import json
import os
import stat
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from relive.errors import CorruptError, InputError, shown

if TYPE_CHECKING:
    import io
    from collections.abc import Iterable, Iterator

    from torch import Tensor

CHUNK = 1 << 23  # bytes written, read and summed at a time
CHECKSUM = "crc32"
LARGEST_MANIFEST = 1 << 28  # bytes; numbers of a note belong into arrays


class Stored(NamedTuple):
    """A file of bytes, and what is known of it."""

    file: str
    nbytes: int
    crc32: int


def folder_at(path: Any) -> Path:
    """A folder by name.

    Raises:
        InputError: this is no name of a folder.
    """
    try:
        folder = Path(path)
    except TypeError:
        raise InputError(f"path is the name of a folder; given {shown(path)}") from None
    if "\0" in str(folder):
        raise InputError(f"path is the name of a folder; given {shown(path)}")
    return folder


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def write_bytes(
    folder: Path, name: str, parts: Iterable[memoryview], *, alone: bool = False
) -> Stored:
    """Write parts one after the other into a new file, down to the disk.

    Args:
        alone: Do without a second thread, which Python does not give to a thread that goes on when
            the program has ended.
    """
    crc = nbytes = 0
    with ExitStack() as stack:
        file = stack.enter_context((folder / name).open("wb", buffering=0))
        other = None if alone else stack.enter_context(ThreadPoolExecutor(1))
        for chunk in (chunk for part in parts for chunk in _chunks(part)):
            summed = other and other.submit(zlib.crc32, chunk, crc)  # while it is written
            write_all(file, chunk)
            nbytes += len(chunk)
            crc = summed.result() if summed else zlib.crc32(chunk, crc)
        os.fsync(file.fileno())
    return Stored(name, nbytes, crc)


def write_all(file: io.RawIOBase, chunk: memoryview) -> None:
    """Write a chunk whole; the system may take less at a time."""
    while len(chunk):
        chunk = chunk[file.write(chunk) or 0 :]


def read_bytes(folder: Path, stored: Stored, parts: Iterable[memoryview]) -> None:
    """Read a file into parts of memory that have its size together.

    Raises:
        CorruptError: the file is missing, cut, longer, or has changed.
    """
    check_size(folder, stored)
    path, crc = folder / stored.file, 0
    try:
        with path.open("rb") as file:
            for part in parts:
                for chunk in _chunks(part):
                    if file.readinto(chunk) != len(chunk):
                        raise CorruptError(f"{path} ends early")
                    crc = zlib.crc32(chunk, crc)
    except OSError as error:
        raise CorruptError(f"{path} cannot be read: {error}") from None
    if crc != stored.crc32:
        raise CorruptError(f"{path} has changed since it was saved: its checksum differs")


def check_size(folder: Path, stored: Stored) -> None:
    """Raise CorruptError unless a file is there and has the size it should have."""
    size = _size_of(folder / stored.file)
    if size is None:
        raise CorruptError(f"{folder / stored.file} cannot be read: there is no such file")
    if size != stored.nbytes:
        raise CorruptError(
            f"{folder / stored.file} has {size} bytes, expected {stored.nbytes}: it is cut or not "
            "of this save; copy the whole folder again, or load another save"
        )


def _size_of(path: Path) -> int | None:
    """Bytes of a file; None where there is none, or a pipe, a device or a folder instead."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _chunks(part: memoryview) -> Iterator[memoryview]:
    for start in range(0, len(part), CHUNK):
        yield part[start : start + CHUNK]


def write_manifest(folder: Path, name: str, content: dict[str, Any]) -> None:
    """Put a JSON file in place in one step: until then the one before it counts.

    Raises:
        InputError: it is too large to be read again.
    """
    text = json.dumps({**content, CHECKSUM: _checksum(content)}, indent=1)
    if len(text) > LARGEST_MANIFEST:
        raise InputError(f"{name} would have {len(text)} bytes; put numbers of a note into arrays")
    write_whole(folder / name, text)


def write_whole(path: Path, text: str) -> None:
    """Put a text file in place in one step: until then, the one before it is there."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def read_manifest(folder: Path, name: str) -> dict[str, Any]:
    """What `write_manifest` wrote.

    Raises:
        InputError: there is no such file.
        CorruptError: it is no JSON, or its checksum differs.
    """
    path = folder / name
    if not path.exists():
        below = next(iter(sorted(folder.glob(f"*/{name}"))), None)
        hint = "" if below is None else f"; {below.parent} has one"
        raise InputError(f"{folder} holds no saved buffer: there is no {name}{hint}")
    size = _size_of(path)
    if size is None or size > LARGEST_MANIFEST:
        raise CorruptError(f"{name} cannot be read: it is no file that save() wrote")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        expected, found_sum = content.pop(CHECKSUM), _checksum(content)
    except OSError as error:
        raise CorruptError(f"{name} cannot be read: {error}") from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise CorruptError(f"{name} is damaged: it is not what save() wrote") from None
    if expected != found_sum:
        raise CorruptError(f"{name} has changed since it was saved: its checksum differs")
    found: dict[str, Any] = content
    return found


def _checksum(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def sync_folder(folder: Path) -> None:
    """Make sure that names are on the disk, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
