"""An environment is brought back to where it was by its seed and its actions."""

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from relive.envs import make_env
from relive.envs.make import episodes_of, make_vector_env, resume_episodes
from relive.envs.replayable import Replayable


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1"])
@pytest.mark.parametrize("steps", [0, 1, 63, 64, 65, 300])
def test_it_goes_on_as_the_one_it_was_told_of(env_id, steps):
    env = Replayable(make_env(env_id))
    env.action_space.seed(3)
    obs, _ = env.reset(seed=5)
    for _ in range(steps):
        obs, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            obs, _ = env.reset()
    other = Replayable(make_env(env_id))
    other.reset(seed=9)
    other.resume(env.episode())
    found, _ = other.reset()
    np.testing.assert_array_equal(found, obs, strict=True)
    for _ in range(250):
        action = env.action_space.sample()
        ours, theirs = env.step(action), other.step(action)
        np.testing.assert_array_equal(ours[0], theirs[0])
        assert ours[1:4] == theirs[1:4]
        if ours[2] or ours[3]:
            np.testing.assert_array_equal(env.reset()[0], other.reset()[0])


def test_every_episode_has_a_seed_of_its_own_and_one_seed_gives_the_same_ones():
    def starts(seed):
        env = Replayable(make_env("CartPole-v1"))
        first = env.reset(seed=seed)[0]
        return np.stack([first, *(env.reset()[0] for _ in range(4))])

    assert len(np.unique(starts(1), axis=0)) == 5
    np.testing.assert_array_equal(starts(1), starts(1))
    assert not np.array_equal(starts(1), starts(2))


class Echo(gymnasium.Env):
    """Observes the last action, which callers may change afterwards."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return action.copy(), 0.0, False, False, {}


def test_actions_are_copied():
    env = Replayable(Echo())
    env.reset(seed=0)
    action = np.ones(2, np.float32)
    env.step(action)
    action += 1
    other = Replayable(Echo())
    other.resume(env.episode())
    np.testing.assert_array_equal(other.reset()[0], [1, 1])


def test_copies_of_a_vector_environment_come_back_together():
    env = make_vector_env("CartPole-v1", 3)
    env.action_space.seed(1)
    obs, _ = env.reset(seed=[4, 5, 6])
    for _ in range(60):  # some have ended and begun anew
        obs, *_ = env.step(env.action_space.sample())
    other = make_vector_env("CartPole-v1", 3)
    found, _ = resume_episodes(other, episodes_of(env))
    np.testing.assert_array_equal(found, obs)
    for _ in range(60):
        action = env.action_space.sample()
        ours, theirs = env.step(action), other.step(action)
        for one, another in zip(ours[:4], theirs[:4], strict=True):
            np.testing.assert_array_equal(one, another)
    env.close(), other.close()


class SameArray(gymnasium.Env):
    """Counts the steps of an episode of four, in one array that it changes in place."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.count = np.zeros(1, np.float32)

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        super().reset(seed=seed)
        self.count[:] = 0
        return self.count, {}

    def step(self, action):  # noqa: ARG002
        self.count += 1
        return self.count, 1.0, False, bool(self.count[0] == 4), {}


@pytest.mark.filterwarnings("ignore:.*share an object")
def test_the_last_observation_of_an_episode_is_not_that_of_the_next_reset(monkeypatch):
    spec = EnvSpec("SameArray-v0", SameArray)
    monkeypatch.setitem(gymnasium.registry, "SameArray-v0", spec)
    env = make_vector_env("SameArray-v0", 2)
    obs, _ = env.reset(seed=[1, 2])
    seen = []
    for _ in range(8):
        obs, _, _, truncated, info = env.step(np.zeros(2, np.int64))
        seen.append(info["final_obs"][0].item() if truncated[0] else obs[0].item())
    assert seen == [1, 2, 3, 4] * 2


def test_without_a_seed_copies_are_not_alike():
    obs, _ = make_vector_env("CartPole-v1", 3).reset()
    assert len(np.unique(obs[:, 0])) == 3
