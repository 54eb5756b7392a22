"""Demonstrations in a run: pinned before the first step, and counted nowhere else."""

from __future__ import annotations

import dataclasses
import json

import gymnasium as gym
import numpy as np
import pytest
from rich.text import Text

from relive import ReplayBuffer
from relive.demos import read, write_minari
from relive.envs.experts import EXPERTS
from relive.errors import ConfigError, CorruptError, InputError, ReliveError
from relive.report.page import write_report
from relive.training import DemosConfig, TrainConfig, build, resume, run, train
from relive.training.console import demonstrations
from relive.training.recording import record_episodes, recording_seeds
from relive.training.records import DemonstrationsLoaded, EpisodeEnded, RunStarted
from tests.unit.envs.test_replayable import SameArray
from tests.unit.training.test_agents_and_buffers import env_of, every, tiny
from tests.unit.training.test_resume import Interrupt, assert_same_run

EPISODES = 3


def recorded(folder, env_id, episodes=EPISODES):
    """Episodes of random actions."""
    with gym.make(env_id) as env:
        env.action_space.seed(0)
        seeds = recording_seeds(episodes, 0)
        write_minari(folder, record_episodes(env, lambda e, _: e.action_space.sample(), seeds), env)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A small dataset for each environment."""
    folder = tmp_path_factory.mktemp("demos")
    return {env: recorded(folder / env, env) for env in ("CartPole-v1", "Pendulum-v1")}


def rows_of(path):
    return sum(len(episode) for episode in read(path))


def told(out):
    """Kinds of the records of a run."""
    return [json.loads(line)["record"] for line in (out / "metrics.jsonl").read_text().splitlines()]


def with_demos(algorithm, files, demos=None, **settings):
    path = files[env_of(algorithm)]
    settings.setdefault("replay", {"capacity": 1_000})
    return tiny(algorithm, demos=DemosConfig(path=path, **(demos or {})), **settings)


@every
def test_every_agent_trains_half_and_half_and_counts_its_own_steps_only(algorithm, files):
    config = with_demos(algorithm, files)
    rows = rows_of(config.demos.path)
    parts = build(config)
    assert len(parts.buffer) == rows
    assert parts.demos.rows == rows
    started, loaded, *others = train(config)
    assert isinstance(started, RunStarted)
    assert isinstance(loaded, DemonstrationsLoaded)
    assert (loaded.step, loaded.episodes, loaded.rows, loaded.format) == (0, 3, rows, "minari")
    without = [type(r) for r in train(tiny(algorithm, replay={"capacity": 1_000}))]
    assert [type(record) for record in others if not isinstance(record, EpisodeEnded)] == (
        [kind for kind in without[1:] if kind is not EpisodeEnded]
    )
    ended = others[-1]
    assert (ended.step, ended.updates) == (40, 15)  # learning starts after 10 steps of its own
    stats = next(record.stats for record in others if type(record).__name__ == "ReplayMeasured")
    assert stats["size"] == rows + 40
    assert stats["progress"] == 15


@every
def test_learning_starts_no_sooner_with_demonstrations(algorithm, files):
    config = with_demos(algorithm, files, total_steps=12, learning_starts=12)
    assert list(train(config))[-1].updates == 0


def test_episodes_and_epsilon_are_those_of_a_run_without(files):
    """Until the first update the same seed acts the same, whatever is in the buffer."""
    settings = {"total_steps": 40, "learning_starts": 40}
    runs = [with_demos("dqn", files, **settings), tiny("dqn", **settings)]
    told = [
        [record for record in train(config) if isinstance(record, EpisodeEnded)] for config in runs
    ]
    assert told[0] == told[1] != []


@pytest.mark.parametrize(("fraction", "expected"), [(0.5, 4), (0.25, 2), (1.0, 8)])
def test_the_share_of_a_batch_is_the_one_asked_for(fraction, expected, files):
    parts = build(with_demos("sac", files, {"fraction": fraction}))
    rows, step = parts.demos.rows, parts.buffer.rows([0])
    for _ in range(30):
        parts.buffer.add(obs=step.obs, action=step.action, reward=step.reward,
                         next_obs=step.next_obs, terminated=[False], truncated=[False])  # fmt: skip
    assert int((parts.buffer.sample(8).ids < rows).sum()) == expected


@pytest.mark.parametrize(
    "settings",
    [
        {"replay": {"sampler": "proportional", "n_step": 3, "capacity": 1_000}},
        {"num_envs": 2, "replay": {"sampler": "uniform", "n_step": 2, "capacity": 1_000}},
        {"replay": {"sampler": "rank", "window": "ere", "window_rows": 10, "capacity": 1_000}},
    ],
)
@every
def test_a_run_goes_on_with_the_demonstrations_of_its_save(algorithm, settings, files, tmp_path):
    gone = recorded(tmp_path / "demos", env_of(algorithm))
    demos = DemosConfig(path=gone, min_return=-1e9, episodes=2)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(tiny(algorithm, **settings, demos=demos, out=whole))
    result = run(tiny(algorithm, **settings, demos=demos, out=broken), [Interrupt(20)])
    assert result.ended.interrupted
    gone.rename(tmp_path / "elsewhere")  # nothing is loaded a second time
    resume(broken)
    assert_same_run(whole, broken)
    known = np.concatenate([e.obs for e in list(read(tmp_path / "elsewhere"))[:2]])
    buffer = ReplayBuffer.load(broken / "checkpoint")
    assert len(known) < len(buffer) <= len(known) + 40  # some steps may wait for their windows
    assert np.array_equal(buffer.rows(range(len(known))).obs, known)
    assert told(broken).count("demonstrations_loaded") == 1


def test_a_run_that_does_not_save_rows_pins_them_anew(files, tmp_path):
    config = with_demos("dqn", files, save_buffer=False, out=tmp_path / "run")
    run(config, [Interrupt(20)])
    resume(tmp_path / "run")
    names = told(tmp_path / "run")
    assert names.count("demonstrations_loaded") == 2
    assert names[-1] == "run_ended"


def test_settings_are_kept_as_given_and_reported(files, tmp_path, monkeypatch):
    monkeypatch.chdir(files["CartPole-v1"].parent)
    config = tiny("dqn", {"capacity": 500}, demos=DemosConfig(path="CartPole-v1", fraction=0.25),
                  out=tmp_path / "run")  # fmt: skip
    result = run(config)
    plain = json.loads((result.out / "config.json").read_text())["demos"]
    assert plain == {
        "path": "CartPole-v1", "format": None, "fraction": 0.25, "successful_only": False,
        "min_return": None, "episodes": None, "last_step": None, "done_means": None,
    }  # fmt: skip
    again = TrainConfig.from_json(json.loads((result.out / "config.json").read_text()))
    assert again == dataclasses.replace(config, threads=1)  # auto became 1
    assert "CartPole-v1" in write_report(result.out).read_text(encoding="utf-8")


def test_settings_of_runs_before_there_were_demonstrations_are_read():
    plain = tiny("dqn").to_json()
    del plain["demos"]
    assert TrainConfig.from_json(plain) == tiny("dqn")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fraction": 0.25}, "demos.fraction 0.25 does nothing without demos.path"),
        ({"min_return": 0.0}, "demos.min_return 0.0 does nothing without"),
        ({"path": "x", "fraction": 1.5}, r"demos.fraction lies in \(0, 1\]; given 1.5"),
        ({"path": "x", "fraction": 0.0}, r"demos.fraction lies in \(0, 1\]; given 0.0"),
        ({"path": "x", "episodes": 0}, "demos.episodes is at least 1; given 0"),
        ({"path": "x", "min_return": float("nan")}, "min_return is a number"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        DemosConfig(**settings)


@pytest.mark.parametrize(
    ("demos", "replay", "kind", "said"),
    [
        ({"path": "nowhere"}, {}, InputError, "there is no file or folder nowhere to"),
        ({}, {"capacity": 20}, InputError, "leave 0 of 20 rows for others, fewer than 8"),
        ({"min_return": 1e9}, {}, InputError, "none of its 3 episodes passes"),
        ({"last_step": "drop"}, {}, ConfigError, "does nothing with"),
    ],
)
def test_what_cannot_be_loaded_leaves_no_run(demos, replay, kind, said, files, tmp_path):
    path = demos.pop("path", files["CartPole-v1"])
    config = tiny("dqn", {"capacity": 500, **replay}, out=tmp_path / "run",
                  demos=DemosConfig(path=path, **demos))  # fmt: skip
    with pytest.raises(kind, match=said):
        run(config)
    assert not config.out.exists()


def test_demonstrations_of_another_environment_are_refused(files):
    config = tiny("sac", demos=DemosConfig(path=files["CartPole-v1"]))
    with pytest.raises(ReliveError, match=r"episode_0, recorded in CartPole-v1: obs: given shape"):
        build(config)


def test_demonstrations_tell_where_they_were_recorded(files):
    assert build(with_demos("sac", files)).demos.env == "Pendulum-v1"


def test_a_damaged_file_is_refused_by_name(files, tmp_path):
    path = recorded(tmp_path / "demos", "CartPole-v1", 1)
    with (path / "data/main_data.hdf5").open("r+b") as file:
        file.truncate(2_000)
    with pytest.raises(CorruptError, match="demos is damaged, or not whole"):
        build(tiny("dqn", demos=DemosConfig(path=path)))


def test_the_line_in_the_terminal_tells_what_was_left_out():
    record = DemonstrationsLoaded(step=0, path="a/b", format="minari", episodes=3, rows=1200,
                                  mean_return=4.5, skipped=0, dropped_steps=0,
                                  env="[A]-v1")  # fmt: skip
    assert demonstrations(record, "[A]-v1") == (
        "demonstrations  1,200 rows of 3 episodes, mean return 4.5, from a/b"
    )
    import dataclasses

    record = dataclasses.replace(record, skipped=2, dropped_steps=5)
    line = demonstrations(record, "[A]-v1")
    assert line.endswith("a/b · 2 episodes not taken · 5 last steps left out")
    elsewhere = Text.from_markup(demonstrations(record, "B-v1")).plain
    assert elsewhere.endswith("5 last steps left out · recorded in [A]-v1")
    record = dataclasses.replace(record, env=None)
    assert demonstrations(record, "B-v1") == line


@pytest.mark.filterwarnings("ignore:builtin type")  # an error while Box2D is imported is fatal
@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("mountain-car-continuous", 90),
        ("mountain-car", -140),
        ("lunar-lander", 200),
        ("lunar-lander-continuous", 200),
    ],
)
def test_experts_know_what_to_do(name, least):
    expert = EXPERTS[name]
    try:
        env = gym.make(expert.env)
    except gym.error.DependencyNotInstalled:
        pytest.skip("Box2D is not installed")
    with env:
        found = list(record_episodes(env, expert.act, recording_seeds(2, 0)))
        assert all(env.action_space.contains(action) for action in found[0].action)
        again = next(record_episodes(env, expert.act, recording_seeds(1, 0)))
    assert min(episode.episode_return for episode in found) >= least
    assert np.array_equal(again.obs, found[0].obs)
    assert not np.array_equal(found[1].obs[0], found[0].obs[0])


def test_success_in_infos_is_recorded():
    class Tells(gym.Wrapper):
        def step(self, action):
            obs, reward, _, _, info = self.env.step(action)
            self.count += 1
            return obs, reward, False, self.count == 3, {**info, "is_success": self.count == 2}

        def reset(self, **options):
            self.count = 0
            return self.env.reset(**options)

    with Tells(gym.make("Pendulum-v1")) as env:
        (episode,) = record_episodes(env, lambda *_: np.zeros(1, np.float32), [0])
    assert (episode.success, len(episode), episode.ended) == (True, 3, "truncated")


def test_dict_observations_are_recorded_as_they_are():
    class Split(gym.ObservationWrapper):
        def observation(self, obs):
            return {"at": obs[:2], "speed": obs[2:]}

    with Split(gym.make("Pendulum-v1")) as env:
        (episode,) = record_episodes(env, lambda *_: np.zeros(1, np.float32), [0])
    assert {key: part.shape for key, part in episode.obs.items()} == {
        "at": (200, 2),
        "speed": (200, 1),
    }


def test_what_is_recorded_is_not_changed_by_what_is_played_later():
    (episode,) = record_episodes(SameArray(), lambda *_: 0, [0])
    assert episode.obs.ravel().tolist() == [0, 1, 2, 3]
    assert episode.next_obs.ravel().tolist() == [1, 2, 3, 4]
