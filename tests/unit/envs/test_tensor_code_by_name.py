"""Environments of tensor code by their names, with Gymnasium and without."""

import sys

import gymnasium
import numpy as np
import pytest

from relive.agents import DQN, ActionScale, DQNConfig
from relive.agents.policy import POLICY, save_policy
from relive.cli.eval import policy_of
from relive.envs import TORCH_ENVS, TorchEnv, make_env, make_torch_env
from relive.envs.make import fields_in, make_training_env
from relive.envs.torch_native.single import SingleTorchEnv
from relive.errors import ConfigError, UnsupportedError
from relive.training import evaluate, evaluation_seeds
from relive.training.algorithms import actions_of

CARTPOLE, PENDULUM, *_ = TORCH_ENVS


class Leans:
    """Pushes CartPole's cart under its pole."""

    def act_greedy(self, obs):
        return (obs[:, 2] + 0.5 * obs[:, 3] > 0).astype(np.int64)


class Idles:
    """Does nothing to a pendulum."""

    def act_greedy(self, obs):
        return np.zeros((len(obs), 1), np.float32)


def test_the_prefix_asks_for_tensor_code_to_learn_in():
    assert isinstance(make_training_env(f"torch/{CARTPOLE}", 3, "cpu"), TorchEnv)
    assert isinstance(make_training_env(CARTPOLE, 3, "cpu"), gymnasium.vector.SyncVectorEnv)


@pytest.mark.parametrize("make", [make_env, lambda name: make_training_env(name, 1, "cpu")])
def test_what_is_no_tensor_code_is_refused_with_the_names_that_are(make):
    with pytest.raises(ConfigError, match=r"'LunarLander-v3' does not exist as tensor code; .*Acr"):
        make("torch/LunarLander-v3")


def test_greedy_episodes_are_those_of_gymnasium():
    seeds = evaluation_seeds(3)
    assert evaluate(Leans(), f"torch/{CARTPOLE}", seeds) == evaluate(Leans(), CARTPOLE, seeds)


def test_without_gymnasium_greedy_episodes_are_those_of_the_tensor_code(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert isinstance(make_env(f"torch/{CARTPOLE}"), SingleTorchEnv)
    seeds = evaluation_seeds(3)
    returns = evaluate(Leans(), f"torch/{CARTPOLE}", seeds)
    assert returns == evaluate(Leans(), f"torch/{CARTPOLE}", seeds)
    assert min(returns) > 100
    assert all(-2000 < r < 0 for r in evaluate(Idles(), f"torch/{PENDULUM}", seeds))


def test_without_gymnasium_pictures_are_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises((ImportError, UnsupportedError), match="gymnasium"):
        make_env(f"torch/{CARTPOLE}", pictures=True)


@pytest.mark.parametrize("algorithm", ["dqn", "td3"])
def test_what_an_agent_can_do_there_is_known_without_gymnasium(algorithm, monkeypatch):
    here, there = (CARTPOLE, PENDULUM)[:: 1 if algorithm == "dqn" else -1]
    with_gymnasium = make_env(here)
    expected = fields_in(with_gymnasium), actions_of(with_gymnasium, algorithm)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    for env in (make_torch_env(here, 2), make_env(f"torch/{here}")):
        assert (fields_in(env), actions_of(env, algorithm)) == expected
    assert isinstance(expected[1], int if algorithm == "dqn" else ActionScale)
    with pytest.raises(ConfigError, match=f"{algorithm} cannot act there: the actions of {there}"):
        actions_of(make_torch_env(there), algorithm)


def test_a_policy_that_has_learned_there_is_judged_without_gymnasium(tmp_path, monkeypatch):
    env = make_torch_env(CARTPOLE, 1)
    save_policy(DQN(env.fields["obs"], 2, DQNConfig(hidden=(4,))), tmp_path / POLICY)
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert policy_of(tmp_path, f"torch/{CARTPOLE}").num_actions == 2
