"""What is written to a trajectory store: by itself, and by buffers that tee into it."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from typing import TYPE_CHECKING

from relive.errors import CorruptError, InputError, UnsupportedError
from relive.storage.episode_writer import Writer
from relive.writing.episodes import EpisodeLane
from relive.writing.tee import Tee

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from relive.fields import RowLayout
    from relive.storage.episode_index import Index
    from relive.storage.episode_runs import RunLayout
    from relive.storage.writer_lock import Lock


class Recorder:
    """The writing side of a store: its lock, its writer, and the tees that feed it.

    Attributes:
        guard: a reentrant lock around everything; whoever holds a buffer's lock may take it, never
            the other way round.
        layout: of a run.
        rest: bytes that an earlier writer left unfinished, and that were left out.
        dropped_reset_rows: fake steps of tees that have stopped.
        ready_made_rows: rows that are no steps, and did not come here.

    Args:
        folder: of the store.
        held: its lock.
        layout: of a run.
        index: what is there.
        rest: bytes behind the index that are no entry.
    """

    def __init__(
        self, folder: Path, held: Lock, layout: RunLayout, index: Index, rest: int
    ) -> None:
        self.guard = threading.RLock()
        self.layout = layout
        self._folder, self._held = folder, held
        self._refusal: InputError | UnsupportedError | None = None
        self._tees: list[Tee] = []
        self._writer = Writer(folder, held, index, rest)
        self.rest = self._writer.rest
        self.dropped_reset_rows = self.ready_made_rows = 0
        _recorders.add(self)
        _files[id(self)] = self._writer, held

    def __del__(self) -> None:
        if hasattr(self, "rest"):
            self.end()

    @property
    def is_open(self) -> bool:
        """Whether this process may write."""
        return self._refusal is None

    def lane(self, env: int, *, resets: bool, writes: bool) -> EpisodeLane:
        """One that writes here, see `EpisodeLane`."""
        return EpisodeLane(self._writer, self.layout, env, resets=resets, writes=writes)

    def tee(self, layout: RowLayout, steps: Tensor, resets_due: list[bool], *, resets: bool) -> Tee:
        """One that writes here, see `Tee`."""
        with self.guard:
            self.require_open()
            tee = Tee(self, layout, steps, resets_due, resets=resets)
            self._tees.append(tee)
            return tee

    def has(self, tee: Tee | None) -> bool:
        """Whether a tee writes here."""
        return tee is not None and tee in self._tees

    def forget(self, tee: Tee) -> None:
        """A tee has stopped."""
        self._tees.remove(tee)
        self.dropped_reset_rows += tee.dropped

    def require_open(self) -> None:
        """Refuse to write where that is over.

        Raises:
            InputError: the store is closed.
            UnsupportedError: this is a fork of the process that writes.
        """
        if self._refusal is not None:
            raise self._refusal

    def make_room(self) -> None:
        """Write out if much is waiting; raises as `require_open` does, or OSError."""
        self.require_open()
        if self._writer.has_much:
            self._writer.write_out()

    def write_out(self, *, sync: bool = False) -> None:
        """Bring everything there is into the files, also steps of unfinished episodes."""
        with self.guard:
            self.require_open()
            for tee in self._tees:
                tee.drain()
            self._writer.write_out(sync=sync)

    def take_back(self) -> None:
        """Drop what has been put since `write_out`."""
        self._writer.take_back()

    def dropped(self) -> int:
        """Fake steps of all tees."""
        return self.dropped_reset_rows + sum(tee.dropped for tee in self._tees)

    def close(self) -> None:
        """End what is open, write everything down to the disk, and let others write.

        Raises:
            OSError: as the file system says; it is still open then, and nothing is lost.
            CorruptError: the files have been removed; it is closed then.
        """
        with self.guard:
            if not self.is_open:
                return
            try:
                for tee in self._tees:
                    tee.interrupt()
                self.write_out(sync=True)
            except CorruptError:
                self._let_go()
                raise
            self._let_go()

    def end(self) -> None:
        """Close for the last time, where nobody can be told by an exception: by a warning then."""
        try:
            self.close()
        except (OSError, CorruptError) as error:
            if self.is_open:
                self._let_go()
            warnings.warn(
                f"what waited for the store in {self._folder} is lost: {error}",
                RuntimeWarning,
                stacklevel=2,
            )

    def _let_go(self) -> None:
        self._refuse(
            InputError(
                f"the store in {self._folder} is closed; open it again to write, or stop the "
                "buffer that still does: buffer.tee(None)"
            )
        )
        self._writer.close()
        self._held.release()
        del _files[id(self)]

    def leave(self) -> None:
        """In a forked child: writing is the parent's."""
        self.guard = threading.RLock()
        if self.is_open:
            self._refuse(
                UnsupportedError(
                    f"the store in {self._folder} is written by the process that this one was "
                    "forked from; here it can be read, or another one opened"
                )
            )
            self._writer.close()
            self._held.leave()
            del _files[id(self)]

    def _refuse(self, refusal: InputError | UnsupportedError) -> None:
        self._refusal = refusal
        for tee in self._tees:
            tee.stop(self.guard)


_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()
_files: dict[int, tuple[Writer, Lock]] = {}
"""Of recorders that are open. One that feeds from a tee is part of a cycle: without a reference
from here, the garbage collector may close the files before the recorder can write."""


@atexit.register
def _close_all() -> None:
    """What was not flushed when the program ends is."""
    for recorder in list(_recorders):
        recorder.end()


def _leave_all() -> None:
    for recorder in list(_recorders):
        recorder.leave()


if hasattr(os, "register_at_fork"):  # systems that fork
    os.register_at_fork(after_in_child=_leave_all)
