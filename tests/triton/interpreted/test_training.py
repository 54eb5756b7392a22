"""A run with its buffer on a pretended GPU is the run with its buffer in RAM, number for number."""

import dataclasses

import pytest

from relive.training.config import ReplayConfig, TrainConfig
from relive.training.loop import Trainer
from relive.training.parts import build
from relive.training.records import ReplayMeasured, TrainingProgress
from tests.triton.pretended import pretended

CLOCK = {"seconds", "steps_per_second"}
ROUNDED = {"effective_sample_size", "priority_entropy"}  # sums in another order


def numbers_of(run):
    config = TrainConfig(
        env="CartPole-v1",
        num_envs=2,
        total_steps=60,
        learning_starts=30,
        device="cpu",
        eval_episodes=0,
        log_every=10,
        replay=ReplayConfig(capacity=50, batch_size=8, n_step=2, **run),
    )
    wanted = (TrainingProgress, ReplayMeasured)
    records = (dataclasses.asdict(r) for r in _records(config) if isinstance(r, wanted))
    return [{k: v for k, v in record.items() if k not in CLOCK} for record in records]


def _records(config):
    return Trainer(config, build(config)).records()


@pytest.mark.parametrize(
    "where",
    [{"device": "cuda"}, {"device": "cuda", "rows_on": "host"}, {"device": "cuda", "prefetch": 2}],
)
def test_a_run_gives_the_same_numbers_wherever_its_buffer_is(where):
    with pretended():
        ahead = {"prefetch": where.get("prefetch", 0)}
        ours, expected = numbers_of(where), numbers_of({"device": "cpu", **ahead})
    assert len(expected) == 7
    measured, in_ram = ours[-1].pop("stats"), expected[-1].pop("stats")
    assert ours == expected
    for name in ROUNDED:
        assert measured.pop(name) == pytest.approx(in_ram.pop(name), rel=1e-12)
    assert measured == in_ram
