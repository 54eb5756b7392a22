"""The Blind Cliffwalk of the PER paper, with the code of `benchmarks/cliffwalk.py`.

The bounds lie around medians of an independent implementation in C (10 seeds): uniform 6574 and
27305 updates with 8 and 10 states, proportional 1174 and 3581, rank-based 1449 and 4518.
"""

from __future__ import annotations

from collections import Counter
from statistics import median

import numpy as np
import pytest

from benchmarks.cliffwalk import SAMPLERS, memory, true_values, updates_needed


def medians(n: int, seeds: int) -> dict[str, float]:
    return {
        name: median(updates_needed(n, sampler, seed) for seed in range(seeds))
        for name, sampler in SAMPLERS.items()
    }


def test_the_memory_of_three_states_is_the_one_of_the_paper() -> None:
    rows = zip(*(column.tolist() for column in memory(3).values()), strict=True)
    assert Counter(rows) == {  # state, action, reward, next state, whether it ends: how often
        (0, 0, 0.0, 1, False): 4,
        (0, 1, 0.0, 1, True): 4,
        (1, 0, 0.0, 2, True): 2,
        (1, 1, 0.0, 2, False): 2,
        (2, 0, 1.0, 3, True): 1,
        (2, 1, 0.0, 3, True): 1,
    }
    np.testing.assert_allclose(true_values(3), [[4 / 9, 0], [0, 2 / 3], [1, 0]])


@pytest.mark.parametrize("n", [2, 5, 10])
def test_the_memory_holds_every_sequence_of_actions_and_one_reward(n: int) -> None:
    rows = memory(n)
    assert len(rows["obs"]) == 2 ** (n + 1) - 2
    assert rows["reward"].sum() == 1
    assert np.bincount(rows["obs"]).tolist() == [2 ** (n - i) for i in range(n)]


def test_priorities_find_the_one_reward_among_510_transitions_several_times_sooner() -> None:
    found = medians(8, seeds=5)
    assert 900 <= found["proportional"] <= 1500
    assert 1100 <= found["rank"] <= 2000
    assert found["uniform"] >= 4 * found["proportional"]


@pytest.mark.long
def test_the_medians_of_ten_states_are_those_of_the_reference() -> None:
    found = medians(10, seeds=30)
    assert 3000 <= found["proportional"] <= 4000
    assert 4000 <= found["rank"] <= 5200
    assert found["uniform"] >= 5 * found["proportional"]
