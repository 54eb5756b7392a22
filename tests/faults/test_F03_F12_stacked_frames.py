"""Stacked frames that are kept once never mix episodes, nor rows before and after the seam."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relive import Field, ReplayBuffer

PAD = 0


def buffer_of(kernels: str, capacity: int, **settings: object) -> ReplayBuffer:
    """Stacks of two frames, a frame is one number."""
    fields = {"obs": Field((2,), torch.uint8, stack=2), "action": Field()}
    return ReplayBuffer(capacity, fields, kernels=kernels, **settings)


def add(buffer: ReplayBuffer, obs: list[int], after: list[int], **ends: bool) -> None:
    ends = {"terminated": False, "truncated": False} | ends
    stacks = (np.array(stack, np.uint8) for stack in (obs, after))
    obs_stack, after_stack = stacks
    buffer.add(obs=obs_stack, action=0.0, reward=float(obs[1]), next_obs=after_stack, **ends)


def stacks_of(buffer: ReplayBuffer) -> list[tuple[list[int], list[int]]]:
    batch = buffer.all()
    return list(zip(batch.obs.tolist(), batch.next_obs.tolist(), strict=True))


@pytest.mark.parametrize("capacity", [6, 3])
def test_F03_a_truncated_row_carries_its_final_stack(kernels: str, capacity: int) -> None:
    buffer = buffer_of(kernels, capacity)
    add(buffer, [PAD, 7], [7, 8])
    add(buffer, [7, 8], [8, 9])
    add(buffer, [8, 9], [9, 90], truncated=True)
    add(buffer, [PAD, 10], [10, 11])
    rows = dict(zip(buffer.live_ids().tolist(), stacks_of(buffer), strict=True))
    assert rows[2] == ([8, 9], [9, 90])
    assert rows[3] == ([PAD, 10], [10, 11])
    assert not buffer.all().terminated.any()


def test_F12_a_stack_begins_with_its_padding_behind_a_truncated_episode(kernels: str) -> None:
    buffer = buffer_of(kernels, 8)
    add(buffer, [PAD, 1], [1, 4], truncated=True)
    add(buffer, [PAD, 2], [2, 3])
    add(buffer, [2, 3], [3, 5])
    assert stacks_of(buffer) == [
        ([PAD, 1], [1, 4]),
        ([PAD, 2], [2, 3]),
        ([2, 3], [3, 5]),
    ]


@pytest.mark.parametrize("n_step", [1, 3])
def test_F12_the_history_of_the_oldest_row_is_never_new_data(kernels: str, n_step: int) -> None:
    buffer = buffer_of(kernels, 4, n_step=n_step)
    frames = list(range(200))
    room = len(buffer._state.frames)
    for step in range(2 * room):  # frames are overwritten too
        first, second, third = (frames[(step + k) % len(frames)] for k in range(3))
        add(buffer, [first, second], [second, third])
        for (older, newer), (_, last) in stacks_of(buffer) if len(buffer) else []:
            assert newer == (older + 1) % len(frames)
            assert last == (newer + n_step) % len(frames)
    assert len(buffer) == 4
    assert buffer.stats()["evicted_rows"] == 0
