"""Rows that can be told right or wrong."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from relive.bench.rows import EPISODE, PERIOD, Task


def task(capacity: int = 100, dtype: str = "float32") -> Task:
    return Task(capacity, [2, 3], dtype, [1])


def test_next_obs_is_the_obs_of_the_row_after_it() -> None:
    rows = task().rows(5, 20)
    np.testing.assert_array_equal(rows["next_obs"][:-1], rows["obs"][1:])
    assert rows["reward"].tolist() == list(range(5, 25))


def test_rows_beside_each_other_differ_and_bytes_hold_them() -> None:
    rows = task(dtype="uint8").rows(0, PERIOD)
    assert rows["obs"].dtype == np.uint8
    assert len(np.unique(rows["obs"].reshape(PERIOD, -1), axis=0)) == PERIOD


def test_the_last_row_of_an_episode_is_terminated() -> None:
    assert np.flatnonzero(task().rows(0, 2 * EPISODE)["terminated"]).tolist() == [999, 1999]


def test_chunks_fill_the_ring_in_order() -> None:
    rewards = np.concatenate([rows["reward"] for rows in task(capacity=10).chunks(4)])
    assert rewards.tolist() == list(range(10))


def test_rows_as_written_pass() -> None:
    made = task()
    batch = made.of_tags(np.array([3, 99, 3]))
    made.check({**batch, "weights": np.array([0.5, 1.0, 1e-3])}, 3)


@pytest.mark.parametrize(
    "name", ["obs", "action", "next_obs", "terminated", "truncated", "reward", "weights"]
)
def test_a_row_of_which_one_value_is_wrong_does_not_pass(name: str) -> None:
    made = task()
    batch = {**made.of_tags(np.array([3, 998, 7])), "weights": np.ones(3)}
    values = batch[name].copy()
    values[1] = ~values[1] if values.dtype == bool else values[1] + 1
    said = "weights lie in" if name == "weights" else "is not what was written"
    with pytest.raises(ValueError, match=said):
        made.check({**batch, name: values}, 3)


@pytest.mark.parametrize("weight", [0.0, np.nan, np.inf])
def test_a_weight_that_is_none_does_not_pass(weight: float) -> None:
    made = task()
    with pytest.raises(ValueError, match="weights lie in"):
        made.check({**made.rows(0, 2), "weights": np.array([1.0, weight])}, 2)


def test_fewer_rows_than_asked_for_do_not_pass() -> None:
    made = task()
    with pytest.raises(ValueError, match=r"has shape .* for 3 rows"):
        made.check(made.rows(0, 2), 3)


def test_one_step_comes_as_from_one_environment() -> None:
    first, second = islice(task().steps(1, dict), 2)
    assert first["obs"].shape == (2, 3)
    assert type(first["reward"]) is float
    assert type(first["terminated"]) is bool
    assert second["reward"] == first["reward"] + 1 == 101


def test_several_steps_have_a_leading_axis() -> None:
    rows = next(task().steps(4, dict))
    assert rows["obs"].shape == (4, 2, 3)
    assert rows["reward"].tolist() == [100, 101, 102, 103]


def test_updates_go_over_many_draws_with_errors_of_both_signs() -> None:
    draws = iter(range(10**6))
    updates = task(capacity=1000).updates(10, lambda drawn, errors: (drawn, errors), draws.__next__)
    seen = list(islice(updates, 300))
    assert len({drawn for drawn, _ in seen}) == 200  # twice the capacity
    errors = np.concatenate([errors for _, errors in seen])
    assert errors.dtype == np.float32
    assert errors.min() < 0 < errors.max()
