"""Where episodes start: uniformly in Gymnasium's box, and independently.

Each statistic is compared with a bound that a correct generator exceeds once in ALARM tests; with
its fixed seeds a test gives the same answer each time, so this is the chance that a change of seed
or of generator fails for nothing.
"""

import math

import gymnasium
import numpy as np
import pytest
import torch

from relive.envs import TORCH_ENVS, make_torch_env

ALARM = 1e-6


def unit(env_id, states):
    """States [n, S] in the unit of their box; without what always starts at 0."""
    low, high = np.array(TORCH_ENVS[env_id].start_low), np.array(TORCH_ENVS[env_id].start_high)
    assert (states[:, low == high] == 0).all()
    return (states - low)[:, low < high] / (high - low)[low < high]


def ours(env_id):
    env = make_torch_env(env_id, 1000, seed=11, dtype=torch.float64)
    starts = []
    for _ in range(5):
        env.reset()
        starts.append(env.state_dict()["state"].T)
    return torch.cat(starts).numpy()


def gymnasiums(env_id):
    env = gymnasium.make(env_id).unwrapped
    env.reset(seed=11)
    starts = [env.state for _ in range(2000) if env.reset()]
    env.close()
    return np.array(starts, dtype=np.float64)


@pytest.mark.parametrize("env_id", TORCH_ENVS)
@pytest.mark.parametrize("source", [ours, gymnasiums])
def test_starts_are_uniform_in_the_box(source, env_id):
    # Massart: P(sup |F_n - F| > d) <= 2 exp(-2 n d²).
    sample = np.sort(unit(env_id, source(env_id)), axis=0)
    n = len(sample)
    steps = np.arange(n + 1)[:, None] / n
    distance = np.maximum(abs(steps[1:] - sample), abs(sample - steps[:-1])).max(0)
    assert (distance < math.sqrt(math.log(2 / ALARM) / (2 * n))).all()


@pytest.mark.parametrize("env_id", TORCH_ENVS)
def test_numbers_of_a_start_and_starts_in_a_row_are_uncorrelated(env_id):
    # The mean of n products of independent uniform numbers in [-1, 1].
    # Hoeffding: P(|mean| > d) <= 2 exp(-n d² / 2).
    sample = 2 * unit(env_id, ours(env_id)) - 1
    episodes = sample.reshape(5, 1000, -1)
    columns = sample.shape[1]
    pairs = [sample[:, i] * sample[:, j] for i in range(columns) for j in range(i)]
    pairs += [(episodes[1:] * episodes[:-1]).reshape(-1)]  # one copy, one episode after another
    pairs += [(episodes[:, 1:] * episodes[:, :-1]).reshape(-1)]  # neighbouring copies
    for products in pairs:
        assert abs(products.mean()) < math.sqrt(2 * math.log(2 / ALARM) / len(products))


def test_no_start_is_seen_twice():
    starts = ours("CartPole-v1")
    assert len(np.unique(starts, axis=0)) == len(starts)
