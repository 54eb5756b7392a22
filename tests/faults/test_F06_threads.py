"""One thread writes while others sample and update."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import Field, Proportional, ReplayBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

FIELDS = {"obs": Field((1024,)), "action": Field((), torch.int64)}
PARTS = {"cpu": (100_000, 64, 256), "reference": (300, 2, 16)}


def numbered(start: int, count: int) -> dict[str, Any]:
    """Rows whose every field is their number."""
    t = np.arange(start, start + count)
    obs = np.repeat(t[:, None], 1024, axis=1).astype(np.float32)
    flags = np.zeros(count, bool)
    return {"obs": obs, "action": t, "reward": t, "next_obs": obs + 0.5, "terminated": flags}


class Others:
    """Threads that repeat an action each until told to stop; what they raise is kept."""

    def __init__(self, *actions: Callable[[int], None]) -> None:
        self.stop, self.faults = threading.Event(), []
        self.threads = [threading.Thread(target=self.repeat, args=(action,)) for action in actions]

    def repeat(self, action: Callable[[int], None]) -> None:
        number = 1
        try:
            while not self.stop.is_set():
                action(number)
                number += 1
        except BaseException as fault:
            self.faults.append(fault)
            self.stop.set()

    def __enter__(self) -> Others:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(timeout=60)


def test_F06_no_row_is_torn_when_one_thread_writes_and_others_sample_and_update(
    kernels: str,
) -> None:
    wanted, written, batch_size = PARTS[kernels]
    buffer = ReplayBuffer(500, FIELDS, sampler=Proportional(), kernels=kernels)
    buffer.extend(**numbered(0, written))

    def write(number: int) -> None:
        buffer.extend(**numbered(number * written, written))

    def update(number: int) -> None:
        buffer.update_priorities(buffer.sample(8).ids, torch.full((8,), float(number % 7)))

    with Others(write, update) as others:
        seen = 0
        while seen < wanted and not others.stop.is_set():
            batch = buffer.sample(batch_size)
            number = batch.action.float()
            assert torch.equal(batch.obs, number[:, None].expand(-1, 1024))
            assert torch.equal(batch.next_obs, batch.obs + 0.5)
            assert torch.equal(batch.reward, number)
            assert torch.equal(batch.ids, batch.action)
            assert len(buffer) <= 500
            seen += batch_size
    assert not others.faults
    buffer.check()


class Recorder:
    """A lock that counts how often it was taken."""

    def __init__(self) -> None:
        self.lock, self.taken = threading.RLock(), 0

    def __enter__(self) -> None:
        self.lock.acquire()
        self.taken += 1

    def __exit__(self, *exception: object) -> None:
        self.lock.release()


CALLS: dict[str, Callable[[ReplayBuffer], Any]] = {
    "add": lambda b: b.add(**{k: v[0] for k, v in numbered(0, 1).items()}, truncated=False),
    "extend": lambda b: b.extend(**numbered(0, 2)),
    "end_episode": lambda b: b.end_episode(),
    "sample": lambda b: b.sample(2),
    "rows": lambda b: b.rows([0]),
    "live_ids": lambda b: b.live_ids(),
    "update_priorities": lambda b: b.update_priorities([0], [1.0]),
    "priorities": lambda b: b.priorities([0]),
    "ready": lambda b: b.ready(1),
    "clear": lambda b: b.clear(),
    "reseed": lambda b: b.reseed(1),
    "set_progress": lambda b: b.set_progress(1),
    "stats": lambda b: b.stats(),
    "check": lambda b: b.check(),
    "len": len,
}


@pytest.mark.parametrize("name", CALLS)
def test_F06_every_call_that_reads_or_writes_the_state_holds_the_lock(name: str) -> None:
    buffer = ReplayBuffer(10, FIELDS, sampler=Proportional())
    buffer.extend(**numbered(0, 4))
    buffer._lock = Recorder()
    CALLS[name](buffer)
    assert buffer._lock.taken >= 1
