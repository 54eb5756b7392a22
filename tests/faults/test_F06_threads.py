"""One thread writes while others sample and update."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import Field, Proportional, Recent, ReplayBuffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive import Batch

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


TAGGED = {
    "obs": Field((33,)),
    "action": Field((), torch.int64),
    "word": Field((3,), torch.int32),
    "bytes": Field((5,), torch.uint8),
}
TAGS = 1 << 40  # how far apart the tags of two writers are


def tagged(tags: np.ndarray) -> dict[str, Any]:
    """Steps of which every field follows from the tag, which is the action."""
    small = (tags % (1 << 20)).astype(np.float32)[:, None]
    return {
        "obs": small + np.arange(33, dtype=np.float32),
        "action": tags,
        "word": (tags[:, None] * [1, 3, 5]).astype(np.int32),
        "bytes": (tags[:, None] * [1, 3, 7, 11, 251]).astype(np.uint8),
        "reward": small[:, 0] / 4,
        "next_obs": small - np.arange(33, dtype=np.float32),
        "terminated": tags % 5 == 0,
        "truncated": tags % 7 == 0,
    }


def assert_whole(batch: Batch) -> None:
    """Every row is one that was written, and a writer's rows have ids in the order of its tags."""
    tags = batch.action.numpy()
    expected = tagged(tags)
    del expected["truncated"]  # the end of a stream is truncated too
    expected["discount"] = np.where(expected["terminated"], np.float32(0), np.float32(0.5))
    for name, value in expected.items():
        assert (batch[name].numpy() == value).all(), name
    in_order = tags[np.argsort(batch.ids.numpy(), kind="stable")]
    for writer in (0, 1):
        assert (np.diff(in_order[in_order // TAGS == writer]) >= 0).all()


class Writer:
    """Writes its own tags, one by one and in streams, until told to stop."""

    def __init__(self, buffer: ReplayBuffer, number: int) -> None:
        self.buffer, self.first, self.count = buffer, number * TAGS, 0

    def __call__(self, turn: int) -> None:
        count = turn % 61 if turn % 4 == 0 else 1
        steps = tagged(self.first + self.count + np.arange(count))
        if count == 1:
            self.buffer.add(**{name: value[0] for name, value in steps.items()})
        else:
            self.buffer.extend(**steps)
        self.count += count


class Reader:
    """Samples, looks at every row and gives priorities, zeros among them, until told to stop."""

    def __init__(self, buffer: ReplayBuffer, number: int) -> None:
        self.buffer, self.rng = buffer, np.random.default_rng(number)
        self.rows = self.updates = 0

    def __call__(self, turn: int) -> None:
        batch_size = (256, 31, 1024)[turn % 3]
        batch = self.buffer.sample(batch_size, train=turn % 5 > 0)
        assert_whole(batch)
        self.rows += batch_size
        errors = 10 ** self.rng.uniform(-6, 6, batch_size) * (self.rng.random(batch_size) < 0.9)
        self.buffer.update_priorities(batch.ids, errors.astype(np.float32))
        self.updates += batch_size
        if turn % 200 == 0:
            self.buffer.check()


@pytest.mark.parametrize(
    ("seconds", "rows"),
    [(1.0, 100_000), pytest.param(60.0, 1_000_000, marks=pytest.mark.long)],
)
def test_F06_two_writers_and_two_readers_tear_no_row_and_lose_no_count(
    seconds: float, rows: int
) -> None:
    capacity = 700
    sampler = Proportional(alpha=1.0, eps=1e-6, new_priority="max_current")
    buffer = ReplayBuffer(capacity, TAGGED, sampler=sampler, gamma=0.5)
    writers = [Writer(buffer, number) for number in (0, 1)]
    readers = [Reader(buffer, number) for number in (0, 1)]
    writers[0](1)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads meet in the middle of calls too, not only in kernels
    end = time.monotonic() + seconds
    try:
        with Others(*writers, *readers) as others:
            # The readers' counts say when it is enough; the time limit of tests ends a standstill.
            while sum(reader.rows for reader in readers) < rows or time.monotonic() < end:
                if others.stop.wait(0.05):
                    break
    finally:
        sys.setswitchinterval(interval)
    assert not others.faults
    assert not any(thread.is_alive() for thread in others.threads)
    buffer.check()
    stats = buffer.stats()
    assert stats["added"] == sum(writer.count for writer in writers) >= 10 * capacity
    assert stats["draws"] == sum(reader.rows for reader in readers) >= rows
    assert stats["priority_updates"] == sum(reader.updates for reader in readers)
    assert all(part.count for part in writers)
    assert all(part.rows for part in readers)


def test_F06_rows_are_whole_while_others_pin_them_draw_ranges_and_copy_the_buffer() -> None:
    buffer = ReplayBuffer(200, FIELDS, sampler=Proportional(), window=Recent(50))
    buffer.extend(**numbered(0, 20))
    buffer.pin_demonstrations(20, reserve=100)
    buffer.extend(**numbered(20, 30))

    def write(k: int) -> None:
        buffer.extend(**numbered(50 + 7 * k, 7))

    actions: list[tuple[int, Callable[[int], Any]]] = [
        (300, write),
        (100, lambda _: buffer.rows(buffer.pin([0]))),
        (300, lambda _: buffer.sample_range(32, 10, 2**63 - 1)),
        (300, lambda _: buffer.sample(16)),
        (20, lambda _: buffer.grown(300).all()),
    ]
    wrong = []

    def repeat(times: int, action: Callable[[int], Any]) -> None:
        for k in range(times):
            batch = action(k)
            if batch is not None and not is_whole(batch):
                wrong.append(batch)

    threads = [threading.Thread(target=repeat, args=action) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert buffer.stats()["demonstrations"] == 120
    assert buffer.stats()["added"] == 50 + 7 * 300
    buffer.check()


def is_whole(batch: Batch) -> bool:
    number = batch.reward
    return bool((batch.obs == number[:, None]).all()) and torch.equal(batch.action.float(), number)


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
    "sample_range": lambda b: b.sample_range(2, 0, 3),
    "rows": lambda b: b.rows([0]),
    "all": lambda b: b.all(),
    "split": lambda b: b.split(0.5),
    "pin_demonstrations": lambda b: b.pin_demonstrations(4, reserve=1),
    "pin": lambda b: (b.pin_demonstrations(4, reserve=1), b.pin([0])),
    "grown": lambda b: b.grown(20),
    "start_sweep": lambda b: b.start_sweep(3),
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
    window = Recent(eta=0.996)
    buffer = ReplayBuffer(10, FIELDS, sampler=Proportional(), window=window)
    buffer.extend(**numbered(0, 4))
    buffer._lock = buffer._saver._lock = Recorder()
    CALLS[name](buffer)
    assert buffer._lock.taken >= 1
