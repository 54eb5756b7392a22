"""A lock that one process holds, and that others ask about."""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING

import pytest

from relive.errors import UnsupportedError
from relive.storage import writer_lock
from relive.storage.writer_lock import Lock, is_held
from tests.unit.forks import answer_of, forked

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lock_tells_whether_it_is_held(tmp_path: Path) -> None:
    assert is_held(tmp_path) is None
    lock = Lock(tmp_path, "")
    assert is_held(tmp_path) is True
    with pytest.raises(UnsupportedError, match="is being written by process"):
        Lock(tmp_path, "")
    lock.release()
    assert is_held(tmp_path) is False


def test_asking_takes_the_lock_from_nobody(tmp_path: Path) -> None:
    Lock(tmp_path, "").release()
    stop = threading.Event()

    def ask() -> None:
        while not stop.wait(0.001):
            is_held(tmp_path)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(300):
            Lock(tmp_path, "").release()
    finally:
        stop.set()
        asking.join()


def test_where_there_are_no_locks_nobody_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def share(_: object) -> bool:
        raise OSError("no locks")

    Lock(tmp_path, "").release()
    monkeypatch.setattr(writer_lock, "_share", share)
    assert is_held(tmp_path) is None


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_there_are_no_locks_one_writes_and_is_warned(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.warns(RuntimeWarning, match="nothing keeps other processes from writing to"):
        lock = Lock(tmp_path, "")
    assert lock.is_there
    assert is_held(tmp_path) is None
    lock.release()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("call", ["held_beyond_its_process", "held_once_a_child_has_released"])
def test_a_forked_child_neither_keeps_the_lock_nor_gives_it_away(tmp_path: Path, call: str) -> None:
    assert bool(answer_of("storage.test_writer_lock", f"{call}(folder)", tmp_path, 60)) == (
        call == "held_once_a_child_has_released"
    )


def held_beyond_its_process(folder: Path) -> int:
    """Whether the lock is held when its process has ended, and a child of that has not."""
    begun, over = os.pipe(), os.pipe()

    def live_on() -> None:
        os.close(over[1])
        os.write(begun[1], b".")
        os.read(over[0], 1)  # also where nobody is left to write

    def hold() -> None:
        lock = Lock(folder, "")
        forked(live_on)
        assert lock.is_there

    _, status = os.waitpid(forked(hold), 0)
    assert status == 0
    os.read(begun[0], 1)
    held = is_held(folder)
    os.write(over[1], b".")
    return int(bool(held))


def held_once_a_child_has_released(folder: Path) -> int:
    """Whether the lock is held when a child has done what a block that holds it ends with."""
    lock = Lock(folder, "")
    _, status = os.waitpid(forked(lock.release), 0)
    assert status == 0
    held = is_held(folder)
    lock.release()
    lock.release()  # which changes nothing
    assert is_held(folder) is False
    return int(bool(held))
