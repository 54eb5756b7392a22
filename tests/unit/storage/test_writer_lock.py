"""A lock that one process holds, and that others ask about."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from relive.errors import UnsupportedError
from relive.storage import writer_lock
from relive.storage.writer_lock import Lock, is_held

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
