"""Sampling: weights, schedules, strata, nothing to draw, any order of calls."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch

from relive import ConfigError, InputError, Linear, NotReadyError, Proportional
from tests.faults.tagged import drawn, prioritized, root, rows, uniform, write


@pytest.mark.parametrize("beta", [0.4, 1.0])
def test_F25_each_weight_belongs_to_its_row(kernels: str, beta: float) -> None:
    buffer = prioritized(777, kernels, beta=beta, normalize="batch", weight_clip=1e9)
    buffer.extend(**rows(range(500)))
    given = np.random.default_rng(0).uniform(0.01, 10, 500).astype(np.float32)
    buffer.update_priorities(range(500), given)
    probabilities = given.astype(float) / given.astype(float).sum()
    for _ in range(100 if kernels == "cpu" else 5):
        batch = buffer.sample(256)
        raw = (500 * probabilities[batch.ids.numpy()]) ** -beta
        assert np.abs(batch.weights.numpy() - raw / raw.max()).max() <= 1e-5
    read = buffer.priorities(range(500)).double() / root(buffer)
    assert float(read.sum()) == pytest.approx(1, abs=1e-5)


STEPS = {0: 0.4, 50: 0.7, 100: 1.0, 250: 1.0}


def test_F30_beta_rises_to_its_end_and_stays_there(kernels: str) -> None:
    buffer = write(prioritized(4, kernels, beta=Linear(0.4, 1.0, 100)), range(4))
    found = {}
    for step in range(251):
        if step in STEPS:
            found[step] = buffer.stats()["beta"]
        buffer.sample(1)
    assert found == pytest.approx(STEPS)
    buffer.set_progress(50)
    assert buffer.stats()["beta"] == pytest.approx(0.7)


@pytest.mark.parametrize(
    "beta", [-0.1, 1.1, math.nan, math.inf, Linear(0.4, 1.2, 10), Linear(-0.1, 1.0, 10)]
)
def test_F30_a_beta_outside_0_and_1_is_refused(beta: float | Linear) -> None:
    with pytest.raises(ConfigError):
        Proportional(beta=beta)


@pytest.mark.parametrize("steps", [0, -1, 1.5, True])
def test_F30_a_schedule_without_an_end_is_refused(steps: float) -> None:
    with pytest.raises(ConfigError, match="steps >= 1"):
        Linear(0.4, 1.0, steps)


@pytest.mark.parametrize("progress", [-1, 1.5, True, 2**63])
def test_F30_a_progress_that_is_no_count_is_refused(kernels: str, progress: float) -> None:
    buffer = prioritized(4, kernels)
    with pytest.raises(InputError, match="progress"):
        buffer.set_progress(progress)
    assert buffer.stats()["progress"] == 0


def test_F31_stratified_draws_of_equal_rows_hold_each_row_once(kernels: str) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    for _ in range(100):
        assert sorted(buffer.sample(4).ids.tolist()) == [0, 1, 2, 3]


def test_F31_independent_draws_hold_all_rows_now_and_then() -> None:
    buffer = write(prioritized(4, stratified=False), range(4))
    complete = sum(len(set(buffer.sample(4).ids.tolist())) == 4 for _ in range(10_000))
    assert complete / 10_000 == pytest.approx(24 / 4**4, abs=4 * math.sqrt(0.094 * 0.906 / 10_000))


@pytest.mark.parametrize("stratified", [True, False])
def test_F31_both_ways_give_the_same_shares(kernels: str, stratified: bool) -> None:
    buffer = write(prioritized(2, kernels, stratified=stratified), range(2))
    buffer.update_priorities([0, 1], [3.0, 1.0])
    if stratified:
        for _ in range(50):
            assert sorted(buffer.sample(4).ids.tolist()) == [0, 0, 0, 1]
    assert drawn(buffer, 10_000) == pytest.approx({0: 7500, 1: 2500}, abs=174)


def test_F39_mass_on_steps_that_wait_does_not_hold_sampling_up() -> None:
    buffer = write(prioritized(64, n_step=20), range(25))
    assert buffer.live_ids().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(InputError):
        buffer.update_priorities(range(25), [1.0] * 6 + [1e6] * 19)  # 6 ... 24 are no rows yet
    start = time.perf_counter()
    batch = buffer.sample(32)
    assert time.perf_counter() - start < 1
    assert set(batch.ids.tolist()) <= {0, 1, 2, 3, 4, 5}
    assert batch.weights.tolist() == [1] * 32


@pytest.mark.parametrize("make", [uniform, prioritized])
def test_F40_sampling_without_any_row_is_refused(kernels: str, make: object) -> None:
    buffer = make(10, kernels, n_step=3)
    assert not buffer.ready()
    with pytest.raises(NotReadyError, match="no row has been written yet"):
        buffer.sample(32)
    write(buffer, [0, 1])
    assert not buffer.ready()
    with pytest.raises(NotReadyError, match="2 steps wait"):
        buffer.sample(32)
    assert buffer.stats()["samples"] == buffer.stats()["progress"] == 0
    buffer.end_episode()
    assert buffer.ready(2)
    assert set(buffer.sample(32).ids.tolist()) == {0, 1}


def test_F40_sampling_when_all_priorities_are_zero_is_refused(kernels: str) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    buffer.update_priorities(range(4), [0.0] * 4)
    assert not buffer.ready()
    with pytest.raises(NotReadyError, match="all priorities are 0"):
        buffer.sample(2)
    buffer.update_priorities([2], [1e-6])
    assert buffer.ready()
    assert buffer.sample(4).ids.tolist() == [2] * 4


@pytest.mark.parametrize("make", [uniform, prioritized])
def test_F40_ready_counts_rows(kernels: str, make: object) -> None:
    buffer = make(4, kernels)
    sizes = []
    for t in range(6):
        write(buffer, [t])
        sizes.append([size for size in range(1, 7) if buffer.ready(size)])
    assert sizes == [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]


def test_F41_calls_may_come_in_any_order(kernels: str) -> None:
    buffer = write(prioritized(8, kernels), range(8))
    first, second = buffer.sample(4), buffer.sample(4)
    buffer.update_priorities(first.ids, torch.ones(4))
    buffer.update_priorities(second.ids, torch.ones(4))
    buffer.update_priorities([], [])
    buffer.update_priorities(torch.tensor([], dtype=torch.int64), torch.tensor([]))
    buffer.sample(4, train=False)
    buffer.update_priorities(first.ids, torch.ones(4))
    assert buffer.stats()["priority_updates"] == 12
    buffer.check()
