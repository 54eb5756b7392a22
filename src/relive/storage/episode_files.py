"""The files of a trajectory store.

    store.json    fields, a random id; in place last when a store is made
    index.bin     a header, then an entry for each run of steps (`episode_index`)
    data.bin      a header, then the payload of each run (`episode_runs`)
    lock          held by the process that writes, for as long as it lives

A payload is written before the entry that names it, so that what the index names is there. Both
files only grow; what a killed writer left behind the last whole entry is removed by the next one.
"""

from __future__ import annotations

import os
import struct
import uuid
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.errors import CorruptError, InputError
from relive.storage.episode_index import ENTRY
from relive.storage.files import read_manifest, sync_folder, write_manifest
from relive.storage.writer_lock import LOCK

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FORMAT = 1
KIND = "relive trajectories"
STORE, INDEX, DATA = "store.json", "index.bin", "data.bin"
HEADER = struct.Struct("<32s28sI")  # kind, id, checksum


def _header(name: str, store_id: str) -> bytes:
    head = HEADER.pack(f"{KIND} {name}".encode(), store_id.encode(), 0)[:-4]
    return head + struct.pack("<I", zlib.crc32(head))


def is_made(folder: Path) -> bool:
    """Whether there is a store in a folder, whole or damaged.

    Raises:
        InputError: there is something else.
        CorruptError: there are steps, and not what says what they are.
    """
    if (folder / STORE).exists():
        return True
    try:
        others = {path.name for path in folder.iterdir()} - {f"{STORE}.part"}
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise InputError(f"{folder} is a file; a store is a folder") from None
    if foreign := sorted(others - {INDEX, DATA, LOCK}):
        raise InputError(
            f"{folder} holds other files ({', '.join(foreign[:3])}) and no store; give a new folder"
        )
    if any((folder / name).stat().st_size > HEADER.size for name in others & {INDEX, DATA}):
        raise CorruptError(f"{folder} holds episodes, but {STORE} is missing")
    return False


def none_there(folder: Path) -> InputError:
    """What is said where a store is expected."""
    return InputError(f"there is no store in {folder}; give fields= (and mode='a') to make one")


def size(folder: Path) -> int:
    """Bytes of a store.

    Raises:
        CorruptError: a file is missing.
    """
    try:
        return sum((folder / name).stat().st_size for name in (INDEX, DATA))
    except OSError as error:
        raise CorruptError(f"the store in {folder} cannot be read: {error}") from None


def make(folder: Path, settings: dict[str, Any]) -> None:
    """Make an empty store, of settings that are JSON, in a folder that is locked."""
    store_id = uuid.uuid4().hex[:28]
    for name in (INDEX, DATA):
        with (folder / name).open("wb") as file:
            file.write(_header(name, store_id))
            file.flush()
            os.fsync(file.fileno())
    write_manifest(folder, STORE, {"format": FORMAT, "kind": KIND, "id": store_id, **settings})
    sync_folder(folder.absolute().parent)


def read_settings(folder: Path) -> dict[str, Any]:
    """What `make` was given, once both other files are known to belong to it.

    Raises:
        InputError: there is no store, or one of another format.
        CorruptError: it is damaged.
    """
    if not is_made(folder):
        raise none_there(folder)
    content = read_manifest(folder, STORE)
    if content.get("kind") != KIND:
        raise InputError(f"{folder} holds {content.get('kind')!r}, expected {KIND!r}")
    if content.get("format") != FORMAT:
        raise InputError(
            f"{folder} is of format {content.get('format')!r}, this version of relive reads "
            f"{FORMAT}; use the version that made it"
        )
    for name in (INDEX, DATA):
        if _read(folder, name, 0, HEADER.size) != _header(name, str(content.get("id"))):
            raise CorruptError(f"{folder / name} is damaged at its start, or of another store")
    return content


def _read(folder: Path, name: str, start: int, nbytes: int | None = None) -> bytes:
    try:
        with (folder / name).open("rb") as file:
            file.seek(start)
            return file.read(nbytes)
    except OSError as error:
        raise CorruptError(f"{folder / name} cannot be read: {error}") from None


def read_entries(folder: Path, first: int) -> tuple[bytes, int]:
    """All whole entries from number `first` on, and how many bytes behind them are none.

    Those are what a write that was cut leaves: part of an entry, or zeros.
    """
    raw = _read(folder, INDEX, HEADER.size + first * ENTRY.itemsize)
    used = len(raw.rstrip(b"\0"))
    whole = min(-(-used // ENTRY.itemsize), len(raw) // ENTRY.itemsize) * ENTRY.itemsize
    return raw[:whole], len(raw) - whole


def read_payloads(folder: Path, entries: NDArray[Any]) -> list[NDArray[np.uint8]]:
    """The payload of each run.

    Raises:
        CorruptError: one is missing or has changed.
    """
    found = []
    try:
        with (folder / DATA).open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            for entry in entries:
                offset, nbytes = int(entry["offset"]), int(entry["nbytes"])
                if nbytes and not HEADER.size <= offset <= offset + nbytes <= size:
                    raise CorruptError(f"{DATA} ends before it")
                payload = np.empty(nbytes, np.uint8)
                file.seek(offset)
                if nbytes and file.readinto(payload.data) != nbytes:
                    raise CorruptError(f"{DATA} ends early")
                if zlib.crc32(payload.data) != entry["crc32"]:
                    raise CorruptError(f"{DATA} has changed: its checksum differs")
                found.append(payload)
    except OSError as error:
        raise CorruptError(f"{DATA} cannot be read: {error}") from None
    return found
