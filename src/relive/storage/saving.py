"""A buffer on disk: a folder with a manifest, segments of rows and frames, all else in one file.

    manifest.json              settings, what is in which file, checksums; put in place last
    rows-<save>.bin            rows of the ring written since the save before, by id
    frames-<save>.bin          the same of frames, where they are kept once
    state-<save>.bin           words, lanes, priorities, demonstrations, rows that changed, note
    save.lock                  while a save writes; others wait for it

A save writes new files and then renames the manifest, so the save before it counts until the new
one is whole. Files that no manifest names any more are removed afterwards. Nothing in a file is
code.
"""

from __future__ import annotations

import json
import os
import re
import weakref
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from relive.errors import CorruptError, InputError
from relive.frames import most_frames
from relive.ops import words as w
from relive.storage.files import bytes_of, read_manifest, write_bytes, write_manifest
from relive.storage.notes import flatten
from relive.storage.snapshot import Snapshot
from relive.storage.writer_lock import turn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

    from relive.ops.state import State
    from relive.storage.snapshot import Pieces

FORMAT = 1
MANIFEST = "manifest.json"
OURS = re.compile(r"(?:rows|frames|state)-(\d+)\.bin")  # nothing else in a folder is ever touched


_folders: dict[tuple[int, Path], Lock] = {}  # by process and folder


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One save at a time writes into a folder, of all buffers and processes.

    A fork does not wait for what may take minutes: the child has locks of its own.
    """
    # threads of one process wait for each other also where the file system has no locks
    with _folders.setdefault((os.getpid(), folder.resolve()), Lock()), turn(folder):
        yield


class Saver:
    """The saves of one buffer: what its folders hold, and the one that is under way.

    Args:
        state: Of the buffer.
        lock: Of the buffer.
    """

    def __init__(self, state: State, lock: Any) -> None:
        self._state, self._lock = state, lock
        self._manifests: dict[Path, dict[str, Any]] = {}
        self._running: tuple[Snapshot, Future[None]] | None = None
        _savers.add(self)

    def forget(self) -> None:
        """The buffer has taken over another state: what folders hold is not part of it."""
        self._manifests.clear()

    def move(self, state: State, lock: Any) -> None:
        """The buffer is elsewhere now; a save under way goes on with what it has."""
        self._state, self._lock = state, lock

    @property
    def active(self) -> bool:
        """Whether a save is under way; `make_way` must be called before rows are written."""
        return self._running is not None

    def make_way(self, next_id: int | None, steps: int) -> None:
        """So many steps are about to be written, and those that wait; the lock is held.

        Args:
            next_id: at most the id of the next row; None if nobody knows.
        """
        if self._running is not None:
            num_envs, n_step = self._state.pending.shape[:2]
            rows = steps + num_envs * n_step
            next_id = None if next_id is None else next_id + rows
            self._running[0].make_way(next_id, self._next_frame(steps))

    def _next_frame(self, steps: int) -> int | None:
        """At most the id of the next frame after so many steps; None if the host would wait."""
        state = self._state
        if not state.keeps_frames or not state.words.is_cpu:
            return None
        new = most_frames(state.frame_word(w.STACK), steps)
        return state.frame_word(w.NEXT_FRAME) + new

    @contextmanager
    def idle(self) -> Iterator[None]:
        """The lock, once no save is under way."""
        while True:
            self._settle()
            with self._lock:
                if self._running is None:
                    yield
                    return

    def _settle(self) -> None:
        """Wait for the save that is under way, whatever becomes of it."""
        running = self._running
        if running is not None:
            running[1].exception()

    def leave(self) -> None:
        """In a forked child: the thread that writes is in the parent."""
        self._running = None

    def save(
        self,
        folder: Path,
        settings: dict[str, Any],
        note: Any,
        *,
        background: bool,
        counts_rows: bool,
    ) -> Future[None] | None:
        """Write the buffer into a folder; returns the save under way if it is in the background.

        Args:
            settings: Of the buffer, JSON.
            note: Is kept beside it.
            background: Come back once the moment is captured.
            counts_rows: Whether `make_way` is called before every row that is written.

        Raises:
            InputError: The note cannot be kept, or the folder is something else; nothing has been
                written.
            OSError: As the file system says, unless in the background: then the future has it.
        """
        plain, kept = flatten(note)
        with self.idle():
            require_free(folder)
            folder.mkdir(parents=True, exist_ok=True)
            before = self._before(folder)
            snapshot = Snapshot(self._state, self._lock, before, moving=background)
            if background and not counts_rows:
                snapshot.make_way(None, None)
            snapshot.arrays |= {f"note.{k}": [array] for k, array in enumerate(kept)}
            content = {
                "format": FORMAT,
                "settings": settings,
                "note": plain,
                "row_bytes": self._state.rows.shape[1],
                "ring_start": self._state.word(w.RING_START),
            }
            if not background:
                self._write(folder, snapshot, content, before)
                return None
            done: Future[None] = Future()
            done.set_running_or_notify_cancel()  # it cannot be called off
            self._running = snapshot, done
        Thread(target=self._write_later, args=(done, folder, snapshot, content, before)).start()
        return done

    def _write_later(self, done: Future[None], *what: Any) -> None:
        failure: BaseException | None = None
        try:
            self._write(*what)
        except BaseException as error:  # for whoever asks the future
            failure = error
        try:
            with self._lock:
                self._running = None
        except BaseException as error:  # a device that is lost gives no turn: nobody may wait on
            self._running = None
            failure = failure or error
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    def _write(
        self,
        folder: Path,
        snapshot: Snapshot,
        content: dict[str, Any],
        before: dict[str, Any] | None,
    ) -> None:
        with _turn(folder):
            if before is not None and self._before(folder) != before:
                raise InputError(
                    f"another buffer has been saved into {folder} meanwhile; save again, which "
                    "writes all of this one, or into another folder"
                )
            with _new_files(folder) as number:
                manifest = content | write(folder, number, snapshot)
                write_manifest(folder, MANIFEST, manifest)
            self.note(folder, manifest)
            _remove_others(folder, manifest)

    def _before(self, folder: Path) -> dict[str, Any] | None:
        """The manifest there, if that folder holds just what this buffer put or found there.

        Only then can a save leave out what is there already. Rows that have been removed or cut are
        seen here and written anew; their content is not read.
        """
        known = self._manifests.get(folder.resolve())
        if known is None or known["row_bytes"] != self._state.rows.shape[1]:
            return None
        try:
            whole = all(
                (folder / segment["file"]).stat().st_size == segment["nbytes"]
                for segment in _segments(known)
            )
            return known if whole and read_manifest(folder, MANIFEST) == known else None
        except (InputError, CorruptError, OSError):
            return None

    def note(self, folder: Path, manifest: dict[str, Any]) -> None:
        """This is what the folder holds now."""
        self._manifests[folder.resolve()] = manifest


_savers: weakref.WeakSet[Saver] = weakref.WeakSet()


def _leave_all() -> None:
    for saver in list(_savers):
        saver.leave()


if hasattr(os, "register_at_fork"):  # systems that fork
    os.register_at_fork(after_in_child=_leave_all)


def require_free(folder: Path) -> None:
    """Refuse to save into what is no folder for a saved buffer; one with other files may be one.

    Raises:
        InputError: It is a file, a trajectory store, or has a manifest of something else.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; a buffer is saved into a folder")
    if (folder / "store.json").exists():
        raise InputError(f"{folder} holds a trajectory store; save into another folder")
    try:
        there = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):  # none, or a damaged one: it is written anew
        return
    if not isinstance(there, dict) or "segments" not in there:
        raise InputError(f"{folder / MANIFEST} is that of something else; save into another folder")


def save_note(folder: Path, note: Any) -> None:
    """Write a note without a buffer into a folder, in one step.

    Raises:
        InputError: The note cannot be kept; nothing has been written.
    """
    plain, kept = flatten(note)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"note.{k}": [array] for k, array in enumerate(kept)}
    with _turn(folder):
        with _new_files(folder) as number:
            state = _write_arrays(folder, number, arrays, alone=False)
            manifest = {"format": FORMAT, "settings": None, "note": plain, "segments": [], **state}
            write_manifest(folder, MANIFEST, manifest)
        _remove_others(folder, manifest)


def write(folder: Path, number: int, snapshot: Snapshot) -> dict[str, Any]:
    """Write new files for a snapshot; returns what the manifest says of them.

    Args:
        number: Of the save.
    """
    alone = snapshot.moving
    content = {
        "stop": snapshot.rows.stop,
        "last": snapshot.last,
        "changed": snapshot.changed,
        "segments": _write_pieces(folder, _file("rows", number), snapshot.rows, alone=alone),
        **_write_arrays(folder, number, snapshot.arrays, alone=alone),
    }
    if snapshot.keeps_frames:
        frames = snapshot.frames
        room, frame_bytes = frames.ring.memory.shape
        content["frames"] = {
            "room": room,
            "frame_bytes": frame_bytes,
            "start": frames.ring.start,
            "stop": frames.stop,
            "segments": _write_pieces(folder, _file("frames", number), frames, alone=alone),
        }
    return content


def _write_pieces(folder: Path, file: str, pieces: Pieces, *, alone: bool) -> list[dict[str, Any]]:
    """Write what is new in a ring into a file; returns all that the manifest says of the ring's."""
    if pieces.start == pieces.stop:
        return pieces.segments
    stored = write_bytes(folder, file, pieces.parts(), alone=alone)
    new = {**stored._asdict(), "start": pieces.start, "stop": pieces.stop}
    return [*pieces.segments, new]


def _write_arrays(
    folder: Path, number: int, arrays: dict[str, list[Tensor]], *, alone: bool
) -> dict[str, Any]:
    """Write all that is not rows into one file; returns what the manifest says of it."""
    parts = (bytes_of(part) for array in arrays.values() for part in array)
    stored = write_bytes(folder, _file("state", number), parts, alone=alone)
    shapes = {  # of one part as it is, of several along the first axis
        name: [sum(map(len, parts)), *parts[0].shape[1:]] if parts[0].ndim else []
        for name, parts in arrays.items()
    }
    dtypes = {name: str(parts[0].dtype).removeprefix("torch.") for name, parts in arrays.items()}
    return {
        "state": stored._asdict(),
        "arrays": {name: [dtypes[name], shapes[name]] for name in arrays},
    }


def _file(kind: str, number: int) -> str:
    return f"{kind}-{number}.bin"


def _segments(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """All segments that a manifest names."""
    return [*manifest["segments"], *manifest.get("frames", {}).get("segments", [])]


@contextmanager
def _new_files(folder: Path) -> Iterator[int]:
    """The number of a save; if that fails, its files are removed: others need the room.

    It may also fail once its manifest is in place (a folder that cannot be synced, Ctrl-C): then
    the files are those of the save that counts.
    """
    number = _next_number(folder)
    try:
        yield number
    except BaseException:
        with suppress(OSError):
            if not _is_named(folder, _file("state", number)):
                for kind in ("rows", "frames", "state"):
                    (folder / _file(kind, number)).unlink(missing_ok=True)
        raise


def _is_named(folder: Path, file: str) -> bool:
    """Whether the manifest there has the name of a file anywhere, even if it is damaged."""
    try:
        return file.encode() in (folder / MANIFEST).read_bytes()
    except FileNotFoundError:
        return False


def _next_number(folder: Path) -> int:
    """A number that no file there has."""
    found = (OURS.fullmatch(path.name) for path in folder.iterdir())
    return max((int(match[1]) for match in found if match), default=0) + 1


def _remove_others(folder: Path, manifest: dict[str, Any]) -> None:
    """Remove files of saves that do not count any more."""
    named = {stored["file"] for stored in (*_segments(manifest), manifest["state"])}
    for path in folder.iterdir():
        if OURS.fullmatch(path.name) and path.name not in named:
            path.unlink(missing_ok=True)
