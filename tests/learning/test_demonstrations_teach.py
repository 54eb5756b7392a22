"""Half of each batch from ten scripted episodes: what SAC does not find by itself, it learns."""

import gymnasium as gym
import pytest

from relive.agents import SACConfig
from relive.demos import write_minari
from relive.envs.experts import EXPERTS
from relive.training import DemosConfig, ReplayConfig, TrainConfig, train
from relive.training.recording import record_episodes, recording_seeds
from relive.training.records import Evaluated


@pytest.mark.long
@pytest.mark.parametrize(("demonstrated", "low", "high"), [(True, 85, 100), (False, -5, 5)])
def test_sac_climbs_the_mountain_with_demonstrations_only(demonstrated, low, high, tmp_path):
    expert = EXPERTS["mountain-car-continuous"]
    with gym.make(expert.env) as env:
        episodes = record_episodes(env, expert.act, recording_seeds(10, 0))
        write_minari(tmp_path / "car", episodes, env)
    config = TrainConfig(
        env=expert.env,
        total_steps=10_000,
        learning_starts=1_000,
        train_every=1,
        eval_episodes=10,
        device="cpu",
        replay=ReplayConfig(sampler="uniform", capacity=50_000, batch_size=256),
        demos=DemosConfig(path=tmp_path / "car") if demonstrated else DemosConfig(),
        agent=SACConfig(lr=1e-3, tau=0.01, hidden=(64, 64)),
    )
    (mean,) = (record.mean for record in train(config) if isinstance(record, Evaluated))
    assert low <= mean <= high
