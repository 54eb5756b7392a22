"""The ring: large writes, exact fits, eviction, what capacity counts, what clear forgets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relive import ConfigError, InputError, ReplayBuffer
from relive.ops import words as w
from relive.storage import memory
from tests.faults.tagged import (
    FIELDS,
    by_slot,
    drawn,
    held,
    leaves,
    prioritized,
    root,
    row,
    rows,
    share,
    uniform,
    write,
)


@pytest.mark.parametrize("staging_bytes", [2**18, 1])  # all at once; a row at a time
def test_F09_one_write_larger_than_the_capacity(
    kernels: str, staging_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "STAGING_BYTES", staging_bytes)
    buffer = prioritized(4, kernels)
    buffer.extend(**rows(range(10)))
    assert len(buffer) == 4
    assert by_slot(buffer) == [8, 9, 6, 7]
    assert leaves(buffer) == [1, 1, 1, 1]
    assert root(buffer) == 4
    write(buffer, [10])
    assert by_slot(buffer) == [8, 9, 10, 7]
    buffer.check()


@pytest.mark.parametrize("n_step", [1, 3])
def test_F09_many_laps_in_one_write_give_what_single_writes_give(kernels: str, n_step: int) -> None:
    at_once, singly = (prioritized(7, kernels, n_step=n_step) for _ in range(2))
    at_once.extend(**rows(range(25)))
    write(singly, range(25))
    singly.end_episode()
    assert held(at_once) == held(singly)
    assert by_slot(at_once) == by_slot(singly)
    assert torch.equal(at_once._state.rows, singly._state.rows)


def append(target: ReplayBuffer, source: ReplayBuffer) -> None:
    """The rows of one buffer, ready-made, into another."""
    batch = source.rows(source.live_ids())
    names = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "discount")
    target.extend(**{name: batch[name] for name in names})


def test_F16_rows_are_copied_into_another_buffer_in_order(kernels: str) -> None:
    source = write(uniform(4, kernels), range(5), terminated={2})
    target = uniform(4, kernels)
    append(target, source)
    assert by_slot(target) == [1, 2, 3, 4]
    assert held(target) == held(source)
    assert set(drawn(target, 1000)) == {1, 2, 3, 4}


def test_F16_returns_and_discounts_of_n_step_rows_are_not_folded_again(kernels: str) -> None:
    source = write(uniform(8, kernels, n_step=3), range(6), terminated={2})
    target = uniform(8, kernels, n_step=3)
    append(target, source)
    assert held(target) == held(source)
    assert len(target) == 4


def test_F16_there_is_nothing_to_read_from_an_empty_buffer(kernels: str) -> None:
    target = write(prioritized(4, kernels), range(2))
    with pytest.raises(InputError):
        append(target, uniform(4, kernels))
    assert len(target) == 2


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("ready_made", [False, True])
def test_F16_writing_no_rows_changes_nothing(kernels: str, n_step: int, ready_made: bool) -> None:
    buffer = write(prioritized(4, kernels, n_step=n_step), range(6))
    before = {name: tensor.clone() for name, tensor in buffer._state.tensors().items()}
    buffer.extend(**rows([]), **({"discount": np.zeros(0)} if ready_made else {}))
    for name, tensor in buffer._state.tensors().items():
        assert torch.equal(tensor, before[name]), name


def test_F34_rows_can_be_drawn_long_before_the_buffer_is_full(kernels: str) -> None:
    buffer = write(prioritized(10, kernels, stratified=False), range(5))
    assert buffer._state.leaves[:10].tolist() == [1] * 5 + [0] * 5
    counts = drawn(buffer, 1000)
    assert all(count == pytest.approx(200, abs=51) for count in counts.values())
    assert set(counts) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize(("kernels", "writes"), [("cpu", 10_000), ("reference", 200)])
def test_F43_eviction_goes_on_for_ever(kernels: str, writes: int) -> None:
    buffer = prioritized(100, kernels, n_step=3, alpha=0.6, eps=1e-6)
    rng = np.random.default_rng(0)
    for t in range(writes):
        buffer.add(**{**row(t % 30), "terminated": t % 9 == 8})
        if buffer.ready(16):
            batch = buffer.sample(16)
            buffer.update_priorities(batch.ids, rng.normal(size=16))
        assert len(buffer) <= 100
        if t % 97 == 0:
            buffer.check()  # the sum of the leaves is the root; slots without a row have leaf 0
    buffer.check()
    assert buffer.stats()["added"] == writes - min(writes % 9, 2)


def test_F43_an_episode_that_brings_the_count_exactly_to_the_capacity(kernels: str) -> None:
    buffer = prioritized(18, kernels, n_step=3)
    for episode in range(4):
        write(buffer, range(9 * episode % 18, 9 * episode % 18 + 9), terminated={8, 17})
        assert len(buffer) == min(9 * (episode + 1), 18)
        assert sum(leaf > 0 for leaf in buffer._state.leaves.tolist()) == len(buffer)
        buffer.sample(16)
        buffer.check()


def test_F44_writing_exactly_the_capacity(kernels: str) -> None:
    buffer = prioritized(8, kernels)
    for count, slots, size in [
        (8, [0, 1, 2, 3, 4, 5, 6, 7], 8),
        (1, [8, 1, 2, 3, 4, 5, 6, 7], 8),
        (8, [16, 9, 10, 11, 12, 13, 14, 15], 8),
        (1, [16, 17, 10, 11, 12, 13, 14, 15], 8),
    ]:
        start = buffer.stats()["added"]
        buffer.extend(**rows(range(start, start + count)))
        assert by_slot(buffer) == slots
        assert len(buffer) == size
        assert sum(leaf > 0 for leaf in buffer._state.leaves.tolist()) == size
        buffer.check()


def test_F45_capacity_counts_the_rows_of_all_environments_together(kernels: str) -> None:
    buffer = uniform(10, kernels, num_envs=4, autoreset="disabled")
    zeros = np.zeros(4, bool)
    for t in range(5):
        obs = 100.0 * np.arange(4) + t
        buffer.add(
            obs=obs, action=[0] * 4, reward=obs, next_obs=obs, terminated=zeros, truncated=zeros
        )
    assert (buffer.capacity, len(buffer)) == (10, 10)
    assert list(held(buffer)) == [202, 302, 3, 103, 203, 303, 4, 104, 204, 304]


@pytest.mark.parametrize("capacity", [0, -1, 2.5, True, "10", None, 10.0])
def test_F45_a_capacity_that_is_no_count_is_refused(capacity: Any) -> None:
    with pytest.raises(ConfigError, match="capacity is a whole number >= 1"):
        ReplayBuffer(capacity, FIELDS)


def test_F45_a_capacity_below_the_number_of_environments_is_refused() -> None:
    with pytest.raises(ConfigError, match="num_envs=4"):
        ReplayBuffer(3, FIELDS, num_envs=4, autoreset="disabled")


def test_F50_nothing_old_is_left_after_a_clear(kernels: str) -> None:
    buffer = write(prioritized(4, kernels, n_step=3), range(8))
    buffer.update_priorities(buffer.live_ids(), [100.0] * 4)
    write(buffer, [8])
    buffer.clear()
    assert len(buffer) == 0
    assert not buffer.ready()
    assert root(buffer) == 0
    buffer.end_episode()  # nothing waits
    assert len(buffer) == 0
    write(buffer, [9], terminated={9})
    assert held(buffer) == {9: (512, 0, 9.5, True)}
    assert leaves(buffer) == [1]
    assert share(buffer, int(buffer.live_ids()[0])) == 1
    assert by_slot(buffer) == [9]
    state = buffer._state
    assert (int(buffer.live_ids()[0]) - state.word(w.BASE_ID)) % 4 == 0  # the first slot
    buffer.check()


def test_F50_no_demonstration_is_left_after_a_clear(kernels: str) -> None:
    buffer = write(prioritized(4, kernels), [0])
    buffer.pin_demonstrations(1, reserve=1)
    buffer.pin([0])
    write(buffer, [1, 2])
    buffer.update_priorities(buffer.live_ids(), [100.0] * 4)
    buffer.clear()
    write(buffer, [3])
    assert (len(buffer), buffer.stats()["demonstrations"]) == (1, 0)
    assert leaves(buffer) == [1]
    assert share(buffer, 3) == 1
    write(buffer, range(4, 8))
    assert by_slot(buffer) == [7, 4, 5, 6]
    buffer.check()


def test_F50_ids_draws_and_progress_go_on_after_a_clear(kernels: str) -> None:
    buffer, other = (write(prioritized(4, kernels, stratified=False), range(6)) for _ in range(2))
    first = buffer.sample(16).ids.tolist()
    assert first == other.sample(16).ids.tolist()
    for cleared in (buffer, other):
        cleared.clear()
    write(buffer, range(6))
    assert buffer.live_ids().tolist() == [8, 9, 10, 11]
    assert buffer.stats()["progress"] == 1
    again = (buffer.sample(16).ids - 6).tolist()
    assert again != first
