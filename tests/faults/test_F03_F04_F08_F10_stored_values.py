"""What is stored is what was given: true last observations, flags, copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relive import ReplayBuffer
from tests.faults.tagged import FIELDS, drawn, held, row, rows, uniform, write


@pytest.mark.parametrize("capacity", [6, 3])  # 3: the truncated row is in the last slot
@pytest.mark.parametrize("autoreset", ["disabled", "next_step", "same_step"])
def test_F03_a_truncated_row_carries_its_final_observation(
    kernels: str, capacity: int, autoreset: str
) -> None:
    buffer = uniform(capacity, kernels, autoreset=autoreset)
    write(buffer, [0, 1])
    last = row(2, truncated=True)
    if autoreset == "same_step":
        buffer.add(**{**last, "next_obs": 10.0}, final_obs=[900.0])
    else:
        buffer.add(**{**last, "next_obs": 900.0})
    if autoreset == "next_step":
        buffer.add(**{**row(2), "obs": 900.0, "next_obs": 10.0})  # the fake step
    assert held(buffer)[2] == (4, 0.5, 900, False)
    buffer.add(**row(10))
    found = held(buffer)
    assert found[2] == (4, 0.5, 900, False)
    assert found[10] == (1024, 0.5, 10.5, False)
    assert len(buffer) == min(capacity, 4)
    assert buffer.stats()["dropped_reset_rows"] == (autoreset == "next_step")


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_F03_the_first_frame_of_the_next_episode_is_in_no_window_of_the_last(
    kernels: str, autoreset: str
) -> None:
    buffer = uniform(20, kernels, n_step=3, num_envs=2, autoreset=autoreset)
    for t in range(3):
        ends = np.array([t == 2, False])
        same_step = autoreset == "same_step" and t == 2
        buffer.add(
            obs=[t, 100 + t],
            action=[0, 0],
            reward=[1.0, 1.0],
            next_obs=[10 if same_step else t + 0.5, 100.5 + t],
            terminated=[False, False],
            truncated=ends,
            final_obs=np.array([2.5, np.nan]) if same_step else None,
        )
    found = held(buffer)
    assert [found[t] for t in (0, 1, 2)] == [
        (1.75, 0.125, 2.5, False),
        (1.5, 0.25, 2.5, False),
        (1, 0.5, 2.5, False),
    ]
    assert found[100] == (1.75, 0.125, 102.5, False)


def test_F03_a_fake_step_that_is_due_is_dropped_after_a_clear_too(kernels: str) -> None:
    # clear() empties the buffer; it does not reset the environments
    buffer = uniform(8, kernels, autoreset="next_step")
    buffer.add(**row(0, terminated=True))
    buffer.clear()
    buffer.add(**{**row(1), "obs": 0.5, "next_obs": 10.0})  # resets, ignores its action
    assert len(buffer) == 0
    buffer.add(**row(10))
    assert held(buffer) == {10: (1024, 0.5, 10.5, False)}


FLAGS = [((True, False), 1.0), ((False, True), 10.0), ((True, True), 1.0), ((False, False), 10.0)]


@pytest.mark.parametrize(("flags", "target"), FLAGS)
def test_F04_truncation_bootstraps_and_termination_does_not(
    kernels: str, flags: tuple[bool, bool], target: float
) -> None:
    buffer = ReplayBuffer(2, FIELDS, gamma=0.9, kernels=kernels)
    terminated, truncated = flags
    buffer.add(**row(0, terminated=terminated, truncated=truncated))
    batch = buffer.sample(4)
    assert (batch.reward + batch.discount * 10).tolist() == pytest.approx([target] * 4)
    assert batch.terminated.tolist() == [terminated] * 4
    assert batch.truncated.tolist() == [truncated] * 4


def test_F08_the_newest_row_has_its_next_observation(kernels: str) -> None:
    buffer = uniform(10, kernels)
    for t in (10, 11, 12):
        buffer.add(**{**row(t), "next_obs": t + 1.0})
    batch = buffer.sample(1000)
    assert {*zip(batch.obs.tolist(), batch.next_obs.tolist(), strict=True)} == {
        (10, 11),
        (11, 12),
        (12, 13),
    }
    for t in range(13, 20):
        buffer.add(**{**row(t), "next_obs": t + 1.0})
    assert [next_obs for _, _, next_obs, _ in held(buffer).values()] == list(range(11, 21))


KINDS = {
    "array": lambda value: np.array(value, np.float32),
    "float64 array": lambda value: np.array(value, np.float64),
    "tensor": lambda value: torch.tensor(value, dtype=torch.float32),
}


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_F10_the_callers_arrays_are_copied(kernels: str, kind: str, n_step: int) -> None:
    buffer = uniform(8, kernels, n_step=n_step)
    x, y = KINDS[kind]([0.0]), KINDS[kind]([0.0])
    flags = np.zeros(1, bool)
    for value in (1, 2, 3):
        x[0], y[0], flags[0] = value, value + 0.5, value == 3
        buffer.add(
            obs=x, action=[0], reward=x, next_obs=y, terminated=flags, truncated=np.zeros(1, bool)
        )
    x[0], y[0], flags[0] = 99, 99, False
    found = held(buffer)
    assert list(found) == [1, 2, 3]
    assert [terminated for *_, terminated in found.values()] == [n_step == 3, n_step == 3, True]
    assert found[3] == (3, 0, 3.5, True)


def test_F10_the_arrays_given_to_extend_are_copied(kernels: str) -> None:
    buffer = uniform(8, kernels, n_step=3)
    given = rows(range(4))
    buffer.extend(**given)
    before = held(buffer)
    for array in given.values():
        array[...] = 1
    assert held(buffer) == before


def test_F10_what_is_handed_out_is_a_copy(kernels: str) -> None:
    buffer = write(uniform(4, kernels), range(4))
    before = held(buffer)
    handed_out: list[Any] = [buffer.sample(4), buffer.rows([0, 1])]
    for batch in handed_out:
        batch.obs.fill_(99)
        batch.reward.fill_(99)
    buffer.live_ids().fill_(99)
    assert held(buffer) == before
    assert set(drawn(buffer, 1000)) == {0, 1, 2, 3}
