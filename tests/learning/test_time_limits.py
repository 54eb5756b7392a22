"""A time limit is not an end: the anchor of one state that pays 1 for ever.

One state, reward 1 a step, cut every 50 steps. Its value is 1 / (1 - gamma) = 100 whatever the cut;
who takes the cut for an end finds 1 / (1 - gamma (1 - 1/50)) = 33.56 instead.
"""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from relive import Proportional, ReplayBuffer, Uniform
from relive.losses import td_target

GAMMA, LIMIT, CAPACITY, STEPS = 0.99, 50, 600, 1_500


class OneState(gymnasium.Env):
    """Pays 1 and goes nowhere."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):  # noqa: ARG002  # Gymnasium's signature
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):  # noqa: ARG002
        return np.zeros(1, np.float32), 1.0, False, False, {}


def filled(num_envs, n_step, mode, sampler):
    """A buffer that many steps of OneState went through, more than it holds."""

    def make():
        return gymnasium.wrappers.TimeLimit(OneState(), LIMIT)

    env = SyncVectorEnv([make] * num_envs, autoreset_mode=mode)
    buffer = ReplayBuffer.for_env(env, CAPACITY, n_step=n_step, gamma=GAMMA, sampler=sampler)
    obs, _ = env.reset(seed=0)
    action = np.zeros(num_envs, np.int64)
    for _ in range(STEPS // num_envs):
        next_obs, reward, terminated, truncated, info = env.step(action)
        buffer.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            final_obs=info.get("final_obs"),
        )
        obs = next_obs
    env.close()
    assert len(buffer) == CAPACITY < buffer.stats()["added"]
    return buffer


def fitted_value(buffer, sweeps=1_500):
    """The value that its own batches agree on: V <- mean of r + discount V."""
    value = torch.zeros(1)
    for _ in range(sweeps):
        batch = buffer.sample(32)
        target = td_target(batch.reward, batch.discount, value.expand(32))
        if buffer.prioritized:
            buffer.update_priorities(batch.ids, target - value)
        value = target.mean(0, keepdim=True)
    return value.item()


@pytest.mark.parametrize("sampler", [Uniform(), Proportional()], ids=["uniform", "proportional"])
@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("n_step", [1, 3, 10])
def test_the_value_of_a_state_does_not_know_the_time_limit(n_step, num_envs, mode, sampler):
    buffer = filled(num_envs, n_step, mode, sampler)
    assert fitted_value(buffer) == pytest.approx(100.0, abs=0.5)


def test_the_anchor_tells_a_cut_from_an_end():
    buffer = filled(1, 1, AutoresetMode.SAME_STEP, Uniform())
    rows = buffer.rows(buffer.live_ids())
    taken_for_ends = rows.discount * ~rows.truncated
    value = rows.reward.mean() / (1 - taken_for_ends.mean())
    assert value.item() == pytest.approx(33.56, abs=0.01)
