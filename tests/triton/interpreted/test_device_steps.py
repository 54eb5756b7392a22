"""Whole steps on a pretended GPU, where whatever is too early or out of order is wrong."""

import dataclasses

import pytest
import torch

from relive.agents.kinds import CONFIGS
from relive.training.config import ReplayConfig, TrainConfig
from relive.training.loop import Trainer
from relive.training.parts import build
from relive.training.records import EpisodesEnded, ReplayMeasured, TrainingProgress
from tests.triton.pretended import pretended
from tests.triton.pretended.derivatives import stand_in_for_derivatives

ENVS = 3
CLOCK = {"seconds", "steps_per_second"}
RUNS = {
    "dqn": {"sampler": "proportional", "n_step": 2},
    "td3": {"sampler": "uniform"},
    "sac": {"sampler": "rank", "resort_every": 3},
}


@pytest.fixture(autouse=True)
def no_derivatives(monkeypatch):
    stand_in_for_derivatives(monkeypatch)


def run_of(algorithm, device, *, capture="auto", lag=False, on_host=False):
    """A trainer that has made its steps, its records and its graphs."""
    env = "CartPole-v1" if algorithm == "dqn" else "Pendulum-v1"
    env = env if on_host else f"torch/{env}"
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


@pytest.mark.parametrize("on_host", [False, True], ids=["tensor code", "Gymnasium"])
@pytest.mark.parametrize("algorithm", RUNS)
def test_captured_steps_are_the_called_ones_bit_for_bit(algorithm, on_host):
    with pretended() as device:
        called, expected = run_of(algorithm, device, capture="off", on_host=on_host)
        played, found = run_of(algorithm, device, capture="on", lag=True, on_host=on_host)
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
