"""Greedy episodes."""

import gymnasium
import numpy as np
import pytest
import torch

from relive import Field
from relive.agents import DQN, DQNConfig
from relive.errors import InputError
from relive.training import evaluate, evaluation_seeds
from relive.training.evaluate import with_axis


class Leans:
    """Pushes CartPole's cart under its pole; sees one observation at a time."""

    def act_greedy(self, obs):
        assert obs.shape == (1, 4)
        return (obs[:, 2] + 0.5 * obs[:, 3] > 0).astype(np.int64)


def test_a_good_policy_gets_a_good_return_and_one_seed_one_episode():
    returns = evaluate(Leans(), "CartPole-v1", evaluation_seeds(5))
    assert returns == evaluate(Leans(), "CartPole-v1", evaluation_seeds(5))
    assert min(returns) > 100


def test_more_episodes_begin_with_the_same_ones():
    assert evaluation_seeds(20)[:5] == evaluation_seeds(5)
    assert len(set(evaluation_seeds(100) + evaluation_seeds(100, stream=1))) == 200


@pytest.mark.parametrize(("seeds", "say"), [(2, 2), (None, 5), ("12", 5), (2.0, 5)])
def test_seeds_that_are_no_sequence_are_refused(seeds, say):
    told = rf"from each of its seeds, evaluation_seeds\({say}\) say; given {seeds!r}"
    with pytest.raises(InputError, match=told):
        evaluate(Leans(), "CartPole-v1", seeds)


class Sees:
    """Checks that every entry of a dict has the axis of environments."""

    def act_greedy(self, obs):
        assert obs["pos"].shape == (1, 2)
        assert obs["inner"]["flag"].shape == (1, 1)
        return np.zeros(1, np.int64)


class DictEnv(gymnasium.Env):
    """Ends after three steps with 1.5 a step; observations are nested dicts."""

    observation_space = gymnasium.spaces.Dict(
        {
            "pos": gymnasium.spaces.Box(-1, 1, (2,)),
            "inner": gymnasium.spaces.Dict({"flag": gymnasium.spaces.MultiBinary(1)}),
        }
    )
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):  # noqa: ARG002  # Gymnasium's signature
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action):  # noqa: ARG002
        self.t += 1
        return self._obs(), 1.5, False, self.t == 3, {}

    def _obs(self):
        return {"pos": np.zeros(2, np.float32), "inner": {"flag": np.ones(1, np.int8)}}


@pytest.fixture
def dict_env():
    gymnasium.register("DictEnv-v0", entry_point=DictEnv)
    yield "DictEnv-v0"
    del gymnasium.registry["DictEnv-v0"]


def test_dict_observations_are_played_too(dict_env):
    assert evaluate(Sees(), dict_env, [1, 2]) == (4.5, 4.5)


def test_a_flipped_image_is_played_as_it_is_seen_in_training():
    fields = {"obs": Field((3, 4), torch.uint8), "action": Field((), torch.int64)}
    agent = DQN(fields["obs"], 2, DQNConfig(hidden=(4,)))
    image = np.arange(12, dtype=np.uint8).reshape(3, 4)[::-1]
    assert with_axis(image).flags.c_contiguous
    assert agent.act_greedy(with_axis(image)) == agent.act_greedy(image[None])
    assert with_axis(np.float32(2)).shape == (1,)
