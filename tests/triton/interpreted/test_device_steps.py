"""Whole steps on a pretended GPU, where whatever is too early or out of order is wrong."""

import dataclasses

import pytest
import torch

from relive.agents.kinds import CONFIGS
from relive.nn.adam import Adam
from relive.nn.flat import FlatParameters
from relive.training.config import ReplayConfig, TrainConfig
from relive.training.loop import Trainer
from relive.training.parts import build
from relive.training.records import EpisodesEnded, ReplayMeasured, TrainingProgress
from tests.triton.pretended import pretended

ENVS = 3
CLOCK = {"seconds", "steps_per_second"}
RUNS = {
    "dqn": {"sampler": "proportional", "n_step": 2},
    "td3": {"sampler": "uniform"},
    "sac": {"sampler": "rank", "resort_every": 3},
}


def take_something(self, loss, *, add=False):  # as the one it stands for
    """In place of a derivative, which the pretended device has not: all else is as it is."""
    with torch.no_grad():
        self.grad.copy_(self.vector).mul_(0.1).add_(loss)


def step_plainly(self, lr):
    """In place of the fused step, whose shapes torch cannot foretell."""
    self.steps += 1
    self._vector.sub_(self._grad * lr)


@pytest.fixture(autouse=True)
def no_derivatives(monkeypatch):
    monkeypatch.setattr(Adam, "step", step_plainly)
    monkeypatch.setattr(FlatParameters, "take_grad", take_something)


def run_of(algorithm, device, *, capture="auto", lag=False):
    """A trainer that has made its steps, its records and its graphs."""
    env = "torch/CartPole-v1" if algorithm == "dqn" else "torch/Pendulum-v1"
    config = TrainConfig(
        env=env,
        num_envs=ENVS,
        total_steps=14 * ENVS,
        learning_starts=4 * ENVS,
        train_every=ENVS,
        log_every=7 * ENVS,
        device="cuda",
        capture=capture,
        eval_episodes=0,
        threads=1,
        replay=ReplayConfig(capacity=40, batch_size=4, **RUNS[algorithm]),
        agent=CONFIGS[algorithm](hidden=(4,), lr_end=0.0),
    )
    device.lag = lag
    trainer = Trainer(config, build(config))
    records = list(trainer.records())
    return trainer, numbers(records)


def numbers(records):
    wanted = (EpisodesEnded, TrainingProgress, ReplayMeasured)
    plain = (dataclasses.asdict(record) for record in records if isinstance(record, wanted))
    return [{name: value for name, value in one.items() if name not in CLOCK} for one in plain]


@pytest.mark.parametrize("algorithm", RUNS)
def test_captured_steps_are_the_called_ones_bit_for_bit(algorithm):
    with pretended() as device:
        called, expected = run_of(algorithm, device, capture="off")
        played, found = run_of(algorithm, device, capture="on", lag=True)
        assert played._updates.not_captured is None
        assert len(played._updates._graphs) >= 1
        assert found == expected
        ours, theirs = (list(t._agent.policy.parameters()) for t in (played, called))
        device.catch_up()
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(device.inner(one), device.inner(other))


def test_between_two_looks_the_host_waits_for_nothing():
    with pretended() as device:
        trainer, _ = run_of("dqn", device)
        with device.forbid_waits():
            for share in (0.5, 0.4, 0.3):
                trainer._rollout.explore(share)
                trainer._updates.make(1, trainer._rollout.step)
