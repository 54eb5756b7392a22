"""Whole steps on a pretended GPU, where whatever is too early or out of order is wrong."""

import dataclasses

import pytest
import torch

from relive import ReplayBuffer, UnsupportedError
from relive.agents import DQN
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


def run_of(algorithm, device, *, capture="auto", lag=False, on_host=False, buffer="same", steps=14):
    """A trainer that has made its steps, its records and its graphs."""
    env = "CartPole-v1" if algorithm == "dqn" else "Pendulum-v1"
    env = env if on_host else f"torch/{env}"
    config = TrainConfig(
        env=env,
        num_envs=ENVS,
        total_steps=steps * ENVS,
        learning_starts=4 * ENVS,
        train_every=ENVS,
        log_every=7 * ENVS,
        device="cuda",
        capture=capture,
        eval_episodes=0,
        threads=1,
        replay=ReplayConfig(capacity=40, batch_size=4, device=buffer, **RUNS[algorithm]),
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


def test_a_buffer_in_host_memory_takes_the_steps_of_environments_on_the_device():
    with pretended() as device:
        _, expected = run_of("dqn", device, capture="off", steps=30)
        trainer, found = run_of("dqn", device, buffer="cpu", steps=30)
        assert trainer._buffer.device.type == "cpu"
        assert any("least_return" in record for record in found)  # episodes have ended
        assert found == expected


@pytest.mark.parametrize("capture", ["auto", "on"])
def test_what_cannot_be_captured_is_named_and_leaves_its_stream(capture, monkeypatch):
    learn = DQN.learn

    def learn_and_look(self, batches, due):
        batches[0].reward.max().item()
        return learn(self, batches, due)

    monkeypatch.setattr(DQN, "learn", learn_and_look)
    with pretended() as device:
        before = torch.cuda.current_stream()
        if capture == "on":  # which is no failure of the device
            with pytest.raises(UnsupportedError, match="not permitted when stream is capturing"):
                run_of("dqn", device, capture="on")
        else:
            with pytest.warns(RuntimeWarning, match="not permitted when stream is capturing"):
                trainer, _ = run_of("dqn", device)
            assert "not permitted" in trainer._updates.not_captured
        assert torch.cuda.current_stream() is before


def test_while_a_save_is_under_way_nothing_is_captured(monkeypatch):
    monkeypatch.setattr(ReplayBuffer, "is_saving", True)
    with pretended() as device:
        trainer, found = run_of("dqn", device, capture="on")
        assert not len(trainer._updates._graphs)
        monkeypatch.undo()
        stand_in_for_derivatives(monkeypatch)
        trainer, again = run_of("dqn", device, capture="on")
        assert len(trainer._updates._graphs)
        assert again == found
