"""Whole training steps on a CUDA device that is there; a pretended one has no derivatives."""

import dataclasses

import pytest
import torch

from relive.agents.kinds import CONFIGS
from relive.training import ReplayConfig, TrainConfig, Trainer, build
from relive.training.records import EpisodesEnded, TrainingProgress
from tests.gpu.conftest import INTERPRETED

pytestmark = pytest.mark.skipif(
    INTERPRETED or not torch.cuda.is_available(), reason="there is no CUDA device"
)
ENVS = 64
CLOCK = {"seconds", "steps_per_second"}
EVERY = pytest.mark.parametrize("algorithm", CONFIGS)


def trainer_of(algorithm, capture, **settings):
    name = "CartPole-v1" if algorithm in ("dqn", "c51") else "Pendulum-v1"
    config = TrainConfig(
        env=f"torch/{name}",
        num_envs=ENVS,
        total_steps=100 * ENVS,
        learning_starts=10 * ENVS,
        train_every=ENVS // 2,
        log_every=25 * ENVS,
        device="cuda",
        capture=capture,
        threads=1,
        eval_episodes=0,
        replay=ReplayConfig(capacity=4000, batch_size=64),
        agent=CONFIGS[algorithm](hidden=(64, 64), lr_end=0.0),
        **settings,
    )
    return Trainer(config, build(config))


def numbers(records):
    wanted = (EpisodesEnded, TrainingProgress)
    plain = (dataclasses.asdict(record) for record in records if isinstance(record, wanted))
    return [{name: value for name, value in one.items() if name not in CLOCK} for one in plain]


@EVERY
def test_captured_steps_are_the_called_ones_bit_for_bit(algorithm):
    called, played = (trainer_of(algorithm, capture) for capture in ("off", "on"))
    assert numbers(played.records()) == numbers(called.records())
    for one, other in zip(
        played._agent.policy.parameters(), called._agent.policy.parameters(), strict=True
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("capture", ["on", "off"])
@EVERY
def test_a_step_waits_for_nothing(algorithm, capture):
    trainer = trainer_of(algorithm, capture)
    list(trainer.records())
    assert (trainer._updates.not_captured is None) == (capture == "on")
    before = trainer._agent.updates
    try:
        torch.cuda.set_sync_debug_mode("error")
        for step in range(20):
            trainer._rollout.explore(0.5 - step / 100)
            trainer._updates.make(2, trainer._rollout.step)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert trainer._agent.updates == before + 40


@pytest.mark.parametrize("algorithm", ["ddpg", "td3", "sac"])
def test_gradients_by_hand_are_those_of_autograd(algorithm):
    trainer, other = (trainer_of(algorithm, "off") for _ in range(2))
    by_hand, by_autograd = trainer._agent, other._agent
    for backprop in (by_autograd.actor_backprop, by_autograd.critic_backprop):
        assert backprop.by_hand
        backprop.by_hand = False
    trainer._rollout.begin()
    while not trainer._buffer.ready(64):
        trainer._rollout.step()
    batch = trainer._buffer.sample(64)
    for agent in (by_hand, by_autograd):
        agent.learn([batch], True)
    assert torch.equal(by_hand.critic_parameters.grad, by_autograd.critic_parameters.grad)
    # by hand only the part of the first layer that is of actions: another product, other last bits
    torch.testing.assert_close(by_hand.actor_parameters.grad, by_autograd.actor_parameters.grad)


@pytest.mark.parametrize("algorithm", ["td3", "sac"])
def test_a_way_back_by_autograd_is_captured_too(algorithm):
    called, played = (trainer_of(algorithm, capture) for capture in ("off", "on"))
    for agent in (called._agent, played._agent):
        agent.actor_backprop.by_hand = agent.critic_backprop.by_hand = False
    assert numbers(played.records()) == numbers(called.records())


@pytest.mark.parametrize("algorithm", ["dqn", "sac"])
def test_what_inductor_compiles_is_captured_too(algorithm):
    called, played = (trainer_of(algorithm, how, compile="inductor") for how in ("off", "on"))
    assert numbers(played.records()) == numbers(called.records())
    assert played._updates.not_captured is None
