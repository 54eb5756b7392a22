"""Rows in front of the ring: what is pinned, what is refused, ids, links, shares of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relive import (
    InputError,
    Linear,
    NotReadyError,
    Proportional,
    RankBased,
    Recent,
    ReplayBuffer,
    Uniform,
)
from relive.storage import ring
from tests.equivalence.states import comparable
from tests.faults.tagged import FIELDS, by_slot, leaves, row, rows, write

ADDED = 2**62  # id of the first row that `pin` copies
SAMPLERS = [Uniform(), Proportional(alpha=1.0, eps=0.0), RankBased(resort_every=1)]


@pytest.fixture(params=["reference", "cpu"])
def kernels(request: pytest.FixtureRequest) -> str:
    return request.param


def buffer_of(
    kernels: str, demonstrations: int, online: int, *, capacity: int = 10, **settings: Any
) -> ReplayBuffer:
    """Rows 0, 1, ... of which the first are pinned."""
    reserve = settings.pop("reserve", 0)
    buffer = ReplayBuffer(capacity, FIELDS, kernels=kernels, gamma=0.5, **settings)
    write(buffer, range(demonstrations))
    buffer.pin_demonstrations(demonstrations, reserve=reserve)
    return write(buffer, range(demonstrations, demonstrations + online))


def snapshot(buffer: ReplayBuffer) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in comparable(buffer._state).items()}


def assert_unchanged(buffer: ReplayBuffer, before: dict[str, torch.Tensor]) -> None:
    for name, tensor in comparable(buffer._state).items():
        assert torch.equal(tensor, before[name]), name


def links(buffer: ReplayBuffer, ids: Any) -> list[list[int]]:
    """Lane, distance to the row before and to the row after."""
    slots = ring.slots_of(buffer._state, torch.as_tensor(ids))
    return buffer._state.rows[slots, :12].contiguous().view(torch.int32).tolist()


# What is pinned


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_pinned_rows_keep_slot_id_and_value_whatever_is_written(
    kernels: str, sampler: Any
) -> None:
    buffer = buffer_of(kernels, 3, 20, sampler=sampler)
    assert len(buffer) == 10
    assert by_slot(buffer) == [0, 1, 2, 17, 18, 19, 20, 21, 22, 16]
    assert buffer.live_ids().tolist() == [0, 1, 2, *range(16, 23)]
    assert buffer.rows([2, 0, 16]).obs.tolist() == [2, 0, 16]
    assert buffer.all().obs.tolist() == [0, 1, 2, *range(16, 23)]
    buffer.check()


def test_pinned_rows_keep_their_priorities(kernels: str) -> None:
    buffer = ReplayBuffer(10, FIELDS, kernels=kernels, sampler=SAMPLERS[1])
    write(buffer, range(3))
    buffer.update_priorities([0, 1, 2], [5.0, 6.0, 7.0])
    buffer.pin_demonstrations(3)
    write(buffer, range(3, 20))
    assert leaves(buffer) == [5, 6, 7] + [7] * 7


def test_rows_written_after_a_clear_can_be_pinned(kernels: str) -> None:
    buffer = buffer_of(kernels, 3, 4)
    buffer.clear()
    write(buffer, [7, 8])
    buffer.pin_demonstrations(2)
    write(buffer, range(9, 20))
    assert buffer.live_ids().tolist() == [7, 8, *range(12, 20)]
    assert by_slot(buffer)[:2] == [7, 8]
    buffer.check()


def test_rows_of_several_environments_and_steps_are_pinned(kernels: str) -> None:
    buffer = ReplayBuffer(
        20, FIELDS, kernels=kernels, gamma=0.5, num_envs=2, n_step=3, autoreset="disabled"
    )
    for env in (0, 1):
        buffer.extend(**rows(range(4 * env, 4 * env + 4)), env=env)
    buffer.pin_demonstrations(8)
    for env in (0, 1):
        buffer.extend(**rows(range(10 + 9 * env, 19 + 9 * env)), env=env)
    assert len(buffer) == 20
    assert buffer.rows(range(8)).reward.tolist() == [3, 6, 8, 8, 48, 96, 128, 128]
    assert buffer.rows([17, 18, 25]).reward.tolist() == [3 * 2.0**19, 3 * 2.0**20, 2.0**27]
    buffer.check()


# Ids of copies are never given out twice


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_ids_of_copies_go_on_after_a_clear(kernels: str, sampler: Any) -> None:
    buffer = buffer_of(kernels, 2, 2, reserve=2, sampler=sampler)
    assert buffer.pin([0, 2]).tolist() == [ADDED, ADDED + 1]
    buffer.clear()
    write(buffer, [7, 8])
    buffer.pin_demonstrations(2, reserve=2)
    assert buffer.pin([4]).tolist() == [ADDED + 2]
    assert buffer.live_ids().tolist() == [4, 5, ADDED + 2]
    assert buffer.rows([ADDED + 2]).obs.tolist() == [7]
    with pytest.raises(InputError, match="the ids held are"):
        buffer.rows([ADDED])
    assert set(buffer.sample(50).ids.tolist()) == {4, 5, ADDED + 2}
    assert set(buffer.sample_range(50, ADDED, 2**63 - 1).ids.tolist()) == {ADDED + 2}
    buffer.check()


@pytest.mark.parametrize("sampler", SAMPLERS[1:])
def test_a_late_priority_of_a_copy_that_was_cleared_is_skipped_and_counted(
    kernels: str, sampler: Any
) -> None:
    buffer = buffer_of(kernels, 2, 2, reserve=2, sampler=sampler)
    late = buffer.pin([0, 2])
    buffer.clear()
    buffer.update_priorities(late, [5.0, 5.0])
    assert buffer.stats()["stale_updates"] == 2
    write(buffer, [7])
    buffer.pin_demonstrations(1, reserve=2)
    new = buffer.pin([4])
    before = buffer.priorities(new)
    buffer.update_priorities(late, [5.0, 5.0])
    assert torch.equal(buffer.priorities(new), before)
    assert buffer.stats()["stale_updates"] == 4
    with pytest.raises(InputError, match="ids given out so far"):
        buffer.update_priorities([ADDED + 3], [5.0])
    buffer.check()


# Shares of a batch


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_carry_next_to_one_does_not_make_a_batch_of_more_than_itself(
    kernels: str, sampler: Any
) -> None:
    # 100 * 0.29 is 29 less 4e-15, and 1000 + (1 - 4e-15) rounds to 1001
    buffer = buffer_of(kernels, 4, 6, sampler=sampler, demo_fraction=Linear(0.29, 1.0, 1))
    assert (buffer.sample(100).ids < 4).sum() == 28
    assert (buffer.sample(1000).ids < 4).all()
    assert (buffer.sample(8).ids < 4).all()
    buffer.check()
