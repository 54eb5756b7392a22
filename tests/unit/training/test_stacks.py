"""Frames kept once are a matter of the buffer: a run is the same with them, number for number."""

import warnings
from dataclasses import replace

import gymnasium as gym
import pytest
from gymnasium.wrappers import FrameStackObservation
from safetensors.torch import load_file

from relive import Field, ReplayBuffer
from relive.agents import DQNConfig, SACConfig
from relive.errors import ConfigError
from relive.training import ReplayConfig, TrainConfig, Trainer, build
from relive.training.run import resume, run
from tests.equivalence.states import assert_same_batch
from tests.unit.training.test_resume import Interrupt, assert_same_run, assert_same_values, told

STACKED = "relive-tests/StackedCartPole-v0"


def stacked_cart_pole():
    return FrameStackObservation(gym.make("CartPole-v1").unwrapped, 4)


@pytest.fixture(autouse=True)
def registered():
    gym.register(STACKED, stacked_cart_pole, max_episode_steps=30)
    yield
    del gym.registry[STACKED]


def config_of(env, stack, tmp_path, **settings):
    agent = SACConfig(hidden=(8,)) if env == "Pendulum-v1" else DQNConfig(hidden=(8,))
    replay = {"capacity": 60, "batch_size": 8, "n_step": 3, "stack": stack}
    return TrainConfig(
        env=env,
        agent=agent,
        replay=ReplayConfig(**replay),
        **{
            "device": "cpu",
            "total_steps": 200,
            "learning_starts": 10,
            "eval_episodes": 1,
            "log_every": 50,
            "out": tmp_path / f"stack-{stack}",
            **settings,
        },
    )


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize(
    ("env", "stack"), [(STACKED, 4), ("Pendulum-v1", 1)], ids=["four frames", "no stack"]
)
def test_a_run_with_frames_kept_once_is_that_with_whole_stacks(env, stack, num_envs, tmp_path):
    whole, once = (config_of(env, frames, tmp_path, num_envs=num_envs) for frames in (0, stack))
    for config in (whole, once):
        run(config)
    assert told(whole.out) == told(once.out)
    assert_same_values(*(load_file(c.out / "policy.safetensors") for c in (whole, once)))
    buffers = [ReplayBuffer.load(c.out / "checkpoint") for c in (whole, once)]
    assert [buffer._state.keeps_frames for buffer in buffers] == [False, True]
    assert_same_batch(*(buffer.all() for buffer in buffers))


def test_a_run_with_frames_kept_once_is_resumed_as_if_nothing_had_been(tmp_path):
    whole = config_of(STACKED, 4, tmp_path / "whole", save_every=60)
    parted = config_of(STACKED, 4, tmp_path / "parted", save_every=60)
    run(whole)
    run(parted, [Interrupt(130)])
    resume(parted.out)
    assert_same_run(whole.out, parted.out)


def test_the_agent_does_not_know_of_frames(tmp_path):
    parts = build(config_of(STACKED, 4, tmp_path))
    assert parts.buffer._state.keeps_frames
    assert list(Trainer(config_of(STACKED, 4, tmp_path), parts).records())


@pytest.mark.parametrize(("env", "stack"), [("CartPole-v1", 3), ("Acrobot-v1", 4)])
def test_observations_that_are_no_such_stacks_are_refused_by_name(env, stack, tmp_path):
    with pytest.raises(ConfigError, match=rf"^replay.stack: .* a divisor .*given stack={stack}"):
        build(config_of(env, stack, tmp_path))


def test_a_dict_observation_is_told_what_a_run_can_do_about_it():
    fields = {"obs": {"image": Field((4, 8, 8))}, "action": Field()}
    with pytest.raises(ConfigError, match=r"^replay.stack .* a dict: leave it out, .*wrapper"):
        ReplayConfig(stack=4).build_fields(fields)
    assert ReplayConfig().build_fields(fields) is fields


@pytest.mark.parametrize(("stack", "warned"), [(4, 1), (1, 0)])
def test_a_run_warns_once_of_stacks_that_are_none(stack, warned, tmp_path):
    config = config_of("CartPole-v1", stack, tmp_path, total_steps=3000, learning_starts=2999)
    config = replace(config, replay=replace(config.replay, capacity=1200), eval_episodes=0)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run(config)
    found = [w for w in told if "leave --replay.stack out" in str(w.message)]
    assert len(found) == warned
