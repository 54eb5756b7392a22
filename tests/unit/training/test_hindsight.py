"""Hindsight in a run: the loop writes it, a run is resumed with it, needs goals."""

import gymnasium as gym
import pytest

from relive import Hindsight, ReplayBuffer
from relive.agents import DQNConfig
from relive.errors import ConfigError
from relive.training import HindsightConfig, ReplayConfig, TrainConfig, build
from relive.training.run import resume, run
from tests.unit.storage.test_saving import assert_same_where_held
from tests.unit.test_hindsight import Line
from tests.unit.training.test_resume import Interrupt, assert_same_run

LINE = "relive-tests/Line-v0"


@pytest.fixture(autouse=True)
def registered():
    gym.register(LINE, Line, max_episode_steps=7)
    yield
    del gym.registry[LINE]


def config_of(tmp_path, replay=None, env=LINE, **settings):
    return TrainConfig(
        env=env,
        agent=DQNConfig(hidden=(8,)),
        replay=ReplayConfig(**{"capacity": 300, "batch_size": 8, "n_step": 2, **(replay or {})}),
        **{
            "device": "cpu",
            "total_steps": 200,
            "learning_starts": 10,
            "eval_episodes": 1,
            "log_every": 50,
            "out": tmp_path / "run",
            "hindsight": HindsightConfig(goals=2),
            **settings,
        },
    )


class Recorded(Hindsight):
    """Remembers what it was given."""

    calls: list

    def add(self, **step):
        self.calls.append(step)
        super().add(**step)


@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("strategy", ["future", "final"])
def test_a_run_writes_what_hindsight_writes_of_its_steps(num_envs, strategy, tmp_path, monkeypatch):
    monkeypatch.setattr("relive.training.hindsight.Hindsight", Recorded)
    monkeypatch.setattr(Recorded, "calls", [], raising=False)
    goals = HindsightConfig(goals=1 if strategy == "final" else 2, strategy=strategy)
    config = config_of(tmp_path, num_envs=num_envs, hindsight=goals)
    run(config)
    parts = build(config)
    hindsight = parts.hindsight
    for step in list(Recorded.calls):
        Hindsight.add(hindsight, **step)
    assert hindsight.episodes > 5
    kept = ReplayBuffer.load(config.out / "checkpoint")
    assert kept.stats()["added"] == hindsight.buffer.stats()["added"] > 300
    assert kept.live_ids().tolist() == hindsight.buffer.live_ids().tolist()
    for name in ("action", "reward", "discount"):
        assert kept.all()[name].tolist() == hindsight.buffer.all()[name].tolist()


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_run_with_hindsight_is_resumed_as_if_nothing_had_been(num_envs, tmp_path):
    whole, parted = (
        config_of(tmp_path / name, save_every=60, num_envs=num_envs, total_steps=240)
        for name in ("whole", "parted")
    )
    run(whole)
    run(parted, [Interrupt(130)])
    resume(parted.out)
    assert_same_run(whole.out, parted.out)


def test_without_goals_a_run_is_what_it_was(tmp_path):
    plain, none = (
        config_of(tmp_path / name, hindsight=HindsightConfig()) for name in ("plain", "none")
    )
    for config in (plain, none):
        run(config)
        assert build(config).hindsight is None
    assert_same_where_held(*(ReplayBuffer.load(c.out / "checkpoint") for c in (plain, none)))


REFUSED = {
    "no goals": ({"env": "CartPole-v1"}, r"CartPoleEnv has no compute_reward"),
    "tensor code": ({"env": "torch/CartPole-v1"}, r"torch/ has none; leave hindsight.goals out"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_environment_without_goals_is_refused(case, tmp_path):
    settings, words = REFUSED[case]
    with pytest.raises(ConfigError, match=words):
        run(config_of(tmp_path, **settings))
    assert not (tmp_path / "run").exists()


WRONG = {
    "fewer than none": ({"goals": -1}, "hindsight.goals is at least 0; given -1"),
    "a fraction": ({"goals": 1.5}, "hindsight.goals"),
    "another word": ({"goals": 1, "strategy": "past"}, "hindsight.strategy"),
    "a strategy of nothing": ({"strategy": "final"}, "does nothing without hindsight.goals"),
    "two last steps": ({"goals": 2, "strategy": "final"}, "hindsight.goals is 1 with"),
}


@pytest.mark.parametrize("case", WRONG)
def test_settings_that_cannot_work_are_refused(case):
    settings, words = WRONG[case]
    with pytest.raises(ConfigError, match=words):
        HindsightConfig(**settings)


def test_settings_of_a_run_before_hindsight_are_read():
    config = TrainConfig(env=LINE, hindsight=HindsightConfig(goals=3))
    plain = config.to_json()
    assert TrainConfig.from_json(plain) == config
    del plain["hindsight"]
    assert TrainConfig.from_json(plain).hindsight == HindsightConfig()
