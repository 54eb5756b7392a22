"""One writer at a time: a lock that ends with the process that holds it."""

from __future__ import annotations

import os
import sys
import time
import warnings
import weakref
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from relive.errors import UnsupportedError

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator
    from pathlib import Path

LOCK, TURN = "lock", "save.lock"
TRIES = 5
SECONDS_OF_ASKING = 0.05  # far longer than it takes, also where many ask
BY_FOLDER = os.stat in os.supports_dir_fd  # elsewhere a file that is open cannot be removed


class Lock:
    """Held by at most one process, and let go when that ends, however it ends.

    A forked child does not have it, so that one which outlives its parent keeps nobody waiting.
    Where the file system has no locks a warning says that nothing keeps others out.

    Args:
        folder: Has a file for it.
        instead: What to do while another process writes.

    Raises:
        UnsupportedError: another holds it.
    """

    def __init__(self, folder: Path, instead: str) -> None:
        self._folder = os.open(folder, os.O_RDONLY) if BY_FOLDER else None
        try:
            self._file = self._taken(folder, instead)
        except BaseException:
            self._close_folder()
            raise
        _locks.add(self)

    def _taken(self, folder: Path, instead: str) -> io.FileIO:
        while True:
            file = (folder / LOCK).open("a+b", buffering=0)
            try:
                if not _lock_if_there_are_any(file, folder):
                    file.seek(0)
                    holder = file.read(20).decode(errors="replace") or "unknown"
                    raise UnsupportedError(
                        f"{folder} is being written by process {holder}, and has one writer at a "
                        f"time; {instead}"
                    )
                if self._has_name(file):
                    file.truncate(0)
                    file.write(str(os.getpid()).encode())
                    return file
            except BaseException:
                file.close()
                raise
            file.close()  # it was removed before it was ours: whoever comes next takes another file

    @property
    def is_there(self) -> bool:
        """Whether others see it: where its file was removed, another process may write too."""
        return self._has_name(self._file)

    def _has_name(self, file: io.FileIO) -> bool:
        return self._folder is None or _is_called(file, LOCK, self._folder)

    def release(self) -> None:
        """Let go, for every process that has inherited it; nothing where it is held no more."""
        with suppress(OSError):  # there are no locks
            if not self._file.closed:
                _unlock(self._file)
        self.leave()

    def leave(self) -> None:
        """Close it in a forked child; the parent goes on holding it."""
        self._file.close()
        self._close_folder()

    def _close_folder(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            os.close(folder)


def is_held(folder: Path) -> bool | None:
    """Whether a process holds the lock of a folder; None where there is none, or nobody can tell.

    It is shared for the moment of asking, which whoever takes it waits for.
    """
    try:
        with (folder / LOCK).open("rb", buffering=0) as file:
            return not _share(file)
    except OSError:
        return None


def _lock_if_there_are_any(file: io.FileIO, folder: Path) -> bool:
    try:
        return _lock_soon(file)
    except OSError as error:
        words = f"nothing keeps other processes from writing to {folder}: it has no locks ({error})"
        warnings.warn(words, RuntimeWarning, stacklevel=5)
        return True


def _lock_soon(file: io.FileIO) -> bool:
    """As `_lock`, but for those who only ask and are gone in a moment."""
    for _ in range(TRIES - 1):
        if _lock(file):
            return True
        time.sleep(SECONDS_OF_ASKING / TRIES)
    return _lock(file)


@contextmanager
def turn(folder: Path) -> Iterator[None]:
    """Waits while another process is in here for the same folder; leaves no file behind.

    Where the file system has no locks, nobody waits.

    Raises:
        OSError: as the file system says.
    """
    while True:
        file = (folder / TURN).open("a+b", buffering=0)
        _turns.add(file)
        try:
            with suppress(OSError):  # there are no locks
                _wait(file)
            if _is_called(file, folder / TURN):
                break
        except BaseException:
            _end(file)
            raise
        _end(file)  # whoever had it has removed it
    try:
        yield
    finally:
        _remove(file, folder / TURN)
        _end(file)


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()
_turns: set[io.FileIO] = set()


def _end(file: io.FileIO) -> None:
    _turns.discard(file)
    file.close()


def _leave_all() -> None:
    """In a forked child: locks are the parent's, and so are the threads that have a turn."""
    for lock in list(_locks):
        lock.leave()
    while _turns:
        _turns.pop().close()


if hasattr(os, "register_at_fork"):  # systems that fork
    os.register_at_fork(after_in_child=_leave_all)


def _is_called(file: io.FileIO, name: str | Path, folder: int | None = None) -> bool:
    """Whether an open file still has its name; in an open folder, wherever that has been moved."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(name, dir_fd=folder))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import errno
    import msvcrt

    HELD_BY_OTHERS = (errno.EACCES, errno.EDEADLK)

    def _lock(file: io.FileIO) -> bool:
        """OSError where there are no locks."""
        file.seek(64)  # behind the number that others read
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError as error:
            if error.errno not in HELD_BY_OTHERS:
                raise
            return False
        return True

    def _share(file: io.FileIO) -> bool:
        if shared := _lock(file):
            _unlock(file)
        return shared

    def _wait(file: io.FileIO) -> None:
        file.seek(64)
        while True:
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            except OSError as error:
                if error.errno not in HELD_BY_OTHERS:
                    raise  # there are no locks
                time.sleep(0.05)
            else:
                return

    def _unlock(file: io.FileIO) -> None:
        file.seek(64)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)

    def _remove(file: io.FileIO, path: Path) -> None:
        with suppress(OSError):  # there is no lock, or others wait for this very file
            _unlock(file)
            file.close()  # a file that is open cannot be removed
            path.unlink()

else:
    import fcntl

    def _lock(file: io.FileIO) -> bool:
        """OSError where there are no locks."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _share(file: io.FileIO) -> bool:
        """Until the file is closed; OSError where there are no locks."""
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _wait(file: io.FileIO) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _unlock(file: io.FileIO) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)

    def _remove(file: io.FileIO, path: Path) -> None:
        with suppress(OSError):
            path.unlink()  # while it is ours: whoever waits for it sees that and makes another
        with suppress(OSError, ValueError):
            _unlock(file)
