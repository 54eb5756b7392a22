"""Locks that a forked child finds free.

A child has only the thread that forked: a lock that another thread held would stay locked for ever,
and what it protects would be half-written. So a fork waits until all are free.
"""

from __future__ import annotations

import itertools
import os
import threading
import weakref
from typing import Any

_numbers = itertools.count()
_locks: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
_held = threading.local()


def fork_safe_lock() -> Any:
    """A reentrant lock (`threading.RLock`) that is free in every child.

    Whoever holds several has taken the newest first.
    """
    lock = threading.RLock()
    _locks[lock] = next(_numbers)
    return lock


def _take_all() -> None:
    _held.locks = sorted(_locks.keys(), key=_locks.__getitem__, reverse=True)
    for lock in _held.locks:
        lock.acquire()


def _release_all() -> None:
    for lock in _held.locks:
        lock.release()
    _held.locks = []


if hasattr(os, "register_at_fork"):  # systems that fork
    os.register_at_fork(before=_take_all, after_in_parent=_release_all, after_in_child=_release_all)
