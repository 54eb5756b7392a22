"""A run leaves its directory behind, whatever happens."""

import json
import math
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec

from relive.cli.main import main
from relive.errors import ConfigError, InputError
from relive.storage.writer_lock import Lock
from relive.training import (
    JsonLines,
    TrainConfig,
    build,
    evaluate,
    evaluation_seeds,
    load_policy,
    loop,
    resume,
    run,
    train,
)
from relive.training.records import EpisodeEnded, Evaluated, TrainingProgress, as_json
from relive.training.run import with_run_directory
from tests.unit.training.tiny import tiny


class Listener:
    """Keeps what it is told; may do something at a record of some kind."""

    def __init__(self, kind=None, then=None):
        self.records, self.closed = [], 0
        self._kind, self._then = kind, then

    def record(self, record):
        self.records.append(record)
        if self._kind and isinstance(record, self._kind):
            self._then()

    def close(self):
        self.closed += 1


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_a_run_directory_holds_settings_records_and_policy(tmp_path):
    listener = Listener()
    result = run(tiny(out=tmp_path / "run"), [listener])
    assert {path.name for path in result.out.iterdir()} == {
        "checkpoint",
        "lock",
        "config.json",
        "metrics.jsonl",
        "policy.safetensors",
    }
    settings = json.loads((result.out / "config.json").read_text())
    assert TrainConfig.from_json(settings) == tiny(out=tmp_path / "run", threads=1)
    assert lines(result.out) == [as_json(record) for record in listener.records]
    assert listener.records[-1] is result.ended
    assert result.evaluated in listener.records
    assert listener.closed == 1


def test_a_run_without_news_for_a_minute_says_how_far_it_is_but_keeps_no_record_of_it(
    tmp_path, monkeypatch
):
    class Follower(Listener):
        def steps_made(self, step):
            steps.append(step)

    steps, listener = [], Follower()
    monkeypatch.setattr(loop, "QUIET_SECONDS", 0.0)  # every step takes as long
    result = run(tiny(out=tmp_path / "run"), [listener, Listener()])
    assert steps == [step for step in range(1, 301) if step % 100]  # there is news at the others
    assert lines(result.out) == [as_json(record) for record in listener.records]
    assert len(list(train(tiny()))) == len(listener.records)


def test_the_policy_left_behind_is_the_one_that_was_judged(tmp_path):
    from relive.training import evaluate, evaluation_seeds

    result = run(tiny(out=tmp_path / "run"))
    again = evaluate(load_policy(result.out), "CartPole-v1", evaluation_seeds(2))
    assert again == result.evaluated.returns


def test_runs_are_numbered_if_no_directory_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = tiny(total_steps=20, eval_episodes=0, seed=3)
    outs = [run(config).out for _ in range(3)]
    name = "dqn-CartPole-v1-proportional-s3"
    assert outs == [Path("runs", name), Path("runs", f"{name}-2"), Path("runs", f"{name}-3")]


def test_two_runs_that_choose_a_name_at_one_moment_have_one_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Path, "exists", lambda _: False)  # both ask before one of them makes it
    first, other = (with_run_directory(tiny()).out for _ in range(2))
    assert first != other
    assert sorted(tmp_path.glob("runs/*")) == sorted(map(Path.absolute, (first, other)))


def test_a_directory_with_a_run_in_it_is_left_alone(tmp_path):
    config = tiny(total_steps=20, eval_episodes=0, out=tmp_path)
    run(config)
    before = lines(tmp_path)
    with pytest.raises(ConfigError, match="has a run in it"):
        run(config)
    assert lines(tmp_path) == before


@pytest.mark.parametrize(
    ("left", "instead"),
    [
        ((), "go on with that run: relive train --resume"),
        (("checkpoint",), "delete this one: nothing was saved"),
    ],
)
def test_what_can_be_done_where_a_run_is_is_said(tmp_path, left, instead):
    config = tiny(total_steps=20, eval_episodes=0, out=tmp_path)
    run(config)
    for name in left:
        shutil.rmtree(tmp_path / name)
    with pytest.raises(ConfigError, match=f"name another directory, or {instead}"):
        run(config)
    lock = Lock(tmp_path, "")
    with pytest.raises(ConfigError, match="name another directory, or wait for its end"):
        run(config)
    lock.release()


@pytest.mark.filterwarnings("ignore:.*not within the observation space")
def test_where_a_run_failed_before_its_first_step_another_can_begin(tmp_path, counts):
    counts.bad_at = 0
    config = tiny(env="Counts-v0", out=tmp_path, total_steps=20, eval_episodes=0)
    with pytest.raises(InputError, match="not finite"):
        run(config)
    with pytest.raises(InputError, match=r"nothing of it was saved"):
        resume(tmp_path)
    counts.bad_at = math.inf
    run(config)
    assert [line["record"] for line in lines(tmp_path)].count("run_started") == 1
    assert lines(tmp_path)[-1]["step"] == 20


def test_records_that_cannot_be_read_are_a_run(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("[]\n")
    with pytest.raises(ConfigError, match="has a run in it"):
        with_run_directory(tiny(out=tmp_path))


def test_a_name_is_not_looked_for_where_no_folder_can_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("runs").symlink_to("of/a/disk/that/is/not/there")
    with pytest.raises(FileExistsError, match="runs"):
        with_run_directory(tiny())


def test_nothing_is_written_if_the_settings_cannot_work(tmp_path):
    bad = TrainConfig(env="Pendulum-v1", out=tmp_path / "run")
    with pytest.raises(ConfigError, match="expected Discrete"):
        run(bad)
    assert not bad.out.exists()


def test_capture_where_there_is_no_gpu_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ConfigError, match="capture on: the networks are on the CPU"):
        run(tiny(out=tmp_path / "run", capture="on"))
    assert not (tmp_path / "run").exists()


def test_a_directory_with_the_save_of_a_run_in_it_is_left_alone(tmp_path):
    run(tiny(out=tmp_path))
    (tmp_path / "metrics.jsonl").unlink()  # a new run would be resumed from the old one's save
    with pytest.raises(ConfigError, match="has a run in it"):
        run(tiny(out=tmp_path, seed=5))


def test_a_file_is_no_run_directory(tmp_path):
    (tmp_path / "run").touch()
    with pytest.raises(ConfigError, match="run is a file; name a directory"):
        run(tiny(out=tmp_path / "run"))


def test_names_of_directories_hold_letters_digits_dots_and_dashes_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = with_run_directory(tiny(env="my.module:Own/Env-v0"))
    assert config.out.name == "dqn-my.module-Own-Env-v0-proportional-s0"


def test_a_name_is_what_a_directory_begins_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = with_run_directory(tiny(name="first / try"))
    assert config.out.name == "first-try-CartPole-v1-proportional-s0"


def test_a_run_without_updates_says_so_when_it_begins(tmp_path):
    listener = Listener()
    run(tiny(out=tmp_path / "run", total_steps=90, eval_episodes=0), [listener])
    assert (
        listener.records[0]
        .chosen["updates"]
        .startswith("none: they are made every 4 steps after step 100, and the run has 90")
    )


def test_what_there_is_to_remark_stands_in_the_first_record(tmp_path):
    listener = Listener()
    config = tiny(out=tmp_path / "run", total_steps=200, eval_episodes=0)
    run(config, [listener], remarks={"atoms": "from -10 to 10"})
    assert listener.records[0].chosen["atoms"] == "from -10 to 10"


def test_the_last_steps_are_told_too(tmp_path):
    listener = Listener()
    run(tiny(out=tmp_path / "run", total_steps=250, eval_episodes=0), [listener])
    told = [record for record in listener.records if isinstance(record, TrainingProgress)]
    assert [record.step for record in told] == [100, 200, 250]
    assert told[-1].updates == listener.records[-1].updates


class Broken(gymnasium.Env):
    """Pays 1 a step, and NaN at the 150th."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002 - the signature is Gymnasium's
        return np.zeros(2, np.float32), {}

    def step(self, action):  # noqa: ARG002
        self.steps += 1
        reward = math.nan if self.steps == 150 else 1.0
        return np.zeros(2, np.float32), reward, self.steps % 10 == 0, False, {}


def test_a_reward_that_is_no_number_ends_the_run_and_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "Broken-v0", EnvSpec("Broken-v0", Broken))
    with pytest.raises(
        InputError, match=r"Broken-v0 gave a reward that is not finite, .*: \[nan\]"
    ):
        run(tiny(env="Broken-v0", out=tmp_path / "run"))
    steps = [line["step"] for line in lines(tmp_path / "run") if "step" in line]
    assert max(steps) <= 149
    assert load_policy(tmp_path / "run").num_actions == 2


class Counts(Broken):
    """Fails, or gives what is not finite, at a step of its life that it is told."""

    fails_at = math.inf
    bad_at = math.inf
    bad = math.nan
    lives = 0

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        obs, info = super().reset(seed=seed, options=options)
        bad = self.bad if self.bad_at == 0 else 0.0
        return obs.astype(self.observation_space.dtype) + bad, info

    def step(self, action):
        type(self).lives += 1
        if self.lives == self.fails_at:
            raise ConnectionError("the robot has gone")
        self.steps += 1
        bad = self.lives == self.bad_at
        value = self.bad if bad else self.steps / 1000 + int(action) / 10
        obs = np.full(2, value, self.observation_space.dtype)
        return obs, 1.0, self.steps % 10 == 0, False, {}


@pytest.fixture
def counts(monkeypatch):
    kind = type("Counts", (Counts,), {})
    monkeypatch.setitem(gymnasium.registry, "Counts-v0", EnvSpec("Counts-v0", kind))
    return kind


@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("how", ["fails_at", "bad_at"])
def test_a_run_that_an_error_ends_is_saved_as_it_was_before_and_goes_on(
    tmp_path, counts, how, num_envs
):
    setattr(counts, how, 205)
    settings = {"env": "Counts-v0", "out": tmp_path / "run", "num_envs": num_envs}
    expected = ConnectionError if how == "fails_at" else InputError
    with pytest.raises(expected, match=r"the robot has gone|observation that is not finite"):
        run(tiny(**settings, save_every=0))
    ended = lines(tmp_path / "run")[-1]
    assert (ended["record"], ended["step"], ended["interrupted"]) == ("run_ended", 204, True)
    assert ended["error"].startswith(expected.__name__)
    setattr(counts, how, math.inf)
    listener = Listener()
    result = resume(tmp_path / "run", [listener])
    assert listener.records[0].step == 204
    assert (result.ended.step, result.ended.interrupted, result.ended.error) == (300, False, None)


def test_a_last_observation_that_is_not_finite_is_named_too(tmp_path, counts):
    counts.bad_at = 210  # the end of an episode: what follows is the first of the next one
    with pytest.raises(InputError, match="gave an observation that is not finite"):
        run(tiny(env="Counts-v0", out=tmp_path / "run"))


@pytest.mark.filterwarnings("ignore:.*not within the observation space")
@pytest.mark.parametrize("bad", [math.nan, -math.inf, 1e39], ids=str)
@pytest.mark.parametrize("bad_at", [0, 205])
def test_what_no_float32_can_hold_is_named_from_the_first_observation_on(
    tmp_path, counts, bad, bad_at
):
    counts.bad, counts.bad_at = bad, bad_at
    counts.observation_space = gymnasium.spaces.Box(-math.inf, math.inf, (2,), np.float64)
    with pytest.raises(InputError, match="an observation that is not finite, or infinite as float"):
        run(tiny(env="Counts-v0", out=tmp_path / "run"))


@pytest.mark.parametrize("reward", [1e39, -1e39])
def test_a_reward_that_no_float32_can_hold_is_named(tmp_path, monkeypatch, reward):
    pays = type("Pays", (Broken,), {})
    pays.step = lambda self, action: (*Broken.step(self, action)[:1], reward, True, False, {})
    monkeypatch.setitem(gymnasium.registry, "Pays-v0", EnvSpec("Pays-v0", pays))
    with pytest.raises(InputError, match="Pays-v0 gave a reward that is not finite, or infinite"):
        run(tiny(env="Pays-v0", out=tmp_path / "run"))


def test_an_error_of_the_file_system_in_an_environment_is_told_as_one_of_it(
    tmp_path, counts, capsys
):
    counts.fails_at = 205
    words = ["train", "dqn", "--env", "Counts-v0", "--total-steps", "300", "--device", "cpu"]
    with pytest.raises(ConnectionError, match="the robot has gone") as caught:
        main([*words, "--learning-starts", "100", "--out", str(tmp_path / "run")])
    assert "came out of step()" in caught.value.__notes__[0]
    assert "failed (ConnectionError: the robot has gone)" in capsys.readouterr().out
    assert main(["watch", str(tmp_path / "run"), "--once"]) == 0
    assert "failed: ConnectionError: the robot" in capsys.readouterr().out.replace("\n", "")
    assert main(["report", str(tmp_path / "run")]) == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "failed (ConnectionError: the robot has gone) at step 204" in page


def test_evaluations_on_the_way_change_no_number_and_keep_the_best_policy(tmp_path):
    run(tiny(out=tmp_path / "plain"))
    listener = Listener()
    run(tiny(out=tmp_path / "judged", eval_every=100), [listener])
    judged = [record for record in listener.records if isinstance(record, Evaluated)]
    assert [record.step for record in judged] == [100, 200, 300]
    assert judged[-1].returns == tuple(evaluated(tmp_path / "plain")[-1]["returns"])
    ours, theirs = (load_policy(tmp_path / name) for name in ("judged", "plain"))
    for one, other in zip(ours.policy.parameters(), theirs.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    best = max(judged, key=lambda record: record.mean)
    seeds = evaluation_seeds(2)
    kept = load_policy(tmp_path / "judged" / "best.safetensors")
    assert evaluate(kept, "CartPole-v1", seeds) == best.returns
    assert not (tmp_path / "plain" / "best.safetensors").exists()


def evaluated(out):
    return [record for record in lines(out) if record["record"] == "evaluated"]


@pytest.mark.filterwarnings("ignore:no episode has ended")
def test_an_environment_without_an_end_is_told_of_before_it_is_judged(tmp_path, monkeypatch):
    class Endless(Broken):
        def step(self, action):
            obs, _, _, _, info = super().step(action)
            return obs, 1.0, False, self.steps > 400, info

    monkeypatch.setitem(gymnasium.registry, "Endless-v0", EnvSpec("Endless-v0", Endless))
    with pytest.warns(RuntimeWarning, match="no episode has ended in 300 steps"):
        run(tiny(env="Endless-v0", out=tmp_path / "run"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"eval_every": 10, "eval_episodes": 0}, "eval_every needs eval_episodes"),
        ({"replay": {"n_step": 0}}, "replay.n_step is at least 1; given 0"),
        ({"replay": {"gamma": 1.5}}, r"replay.gamma lies in \[0, 1\]; given 1.5"),
        ({"replay": {"window_rows": 0, "window": "recent"}}, "replay.window_rows is at least 1"),
        ({"replay": {"alpha": -1.0}}, r"^replay.alpha lies in \[0, 2\]; given -1.0"),
        ({"replay": {"sampler": "rank", "resort_every": 0}}, r"^replay.resort_every is a whole"),
        (
            {"replay": {"window": "ere", "window_rows": 9, "sweep": 0}},
            r"^replay.sweep is a whole number >= 1",
        ),
        ({"replay": {"window": "ere", "window_rows": 9, "eta": 3.0}}, r"^replay.eta lies in "),
    ],
)
def test_settings_that_cannot_work_are_refused_by_their_names(settings, said):
    with pytest.raises(ConfigError, match=said):
        tiny(**settings)


def test_an_environment_is_named_and_not_given():
    with gymnasium.make("CartPole-v1") as env, pytest.raises(ConfigError, match="module:Id-v0"):
        run(tiny(env=env))


def test_the_working_directory_is_no_run_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="out is the working directory"):
        run(tiny(out=Path("")))  # noqa: PTH201 - as an empty word of a shell becomes
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("call", ["reset", "step"])
def test_an_error_of_an_environment_says_that_it_is_one(tmp_path, monkeypatch, call):
    class Failing(Broken):
        pass

    def fails(*_, seed=None, options=None):
        raise ValueError("the simulator has gone")

    setattr(Failing, call, fails)
    monkeypatch.setitem(gymnasium.registry, "Failing-v0", EnvSpec("Failing-v0", Failing))
    with pytest.raises(ValueError, match="the simulator has gone") as caught:
        run(tiny(env="Failing-v0", out=tmp_path / "run"))
    note, *more = caught.value.__notes__
    assert note.startswith(f"This came out of {call}() of the environment Failing-v0")
    saved = [f"The run goes on from its last save with: relive train --resume {tmp_path / 'run'}"]
    assert more == (saved if call == "step" else [])  # before the first step there is nothing


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_ctrl_c_and_a_closed_terminal_keep_what_there_is(tmp_path, name, request):
    number = getattr(signal, name, None)
    if number is None:
        pytest.skip("not on this system")
    before = signal.default_int_handler
    request.addfinalizer(partial(signal.signal, number, signal.signal(number, before)))
    listener = Listener(TrainingProgress, lambda: signal.raise_signal(number))
    result = run(tiny(out=tmp_path / "run"), [listener])
    assert result.ended.interrupted
    assert result.ended.step == 100
    assert result.evaluated is None
    assert [line["record"] for line in lines(result.out)[-2:]] == ["replay_measured", "run_ended"]
    assert load_policy(result.out).num_actions == 2
    assert signal.getsignal(number) is before


def test_signals_that_were_ignored_before_are_ignored(tmp_path, request):
    number = signal.SIGTERM  # as SIGHUP is under nohup
    request.addfinalizer(partial(signal.signal, number, signal.signal(number, signal.SIG_IGN)))
    listener = Listener(TrainingProgress, lambda: signal.raise_signal(number))
    assert not run(tiny(out=tmp_path / "run"), [listener]).ended.interrupted


def test_signals_that_a_program_around_python_handles_stay_with_it(tmp_path, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(signal, "getsignal", lambda _: None)
    assert not run(tiny(out=tmp_path / "run")).ended.interrupted
    monkeypatch.undo()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_second_ctrl_c_stops_at_once_and_still_keeps_the_weights(tmp_path):
    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    listener = Listener(EpisodeEnded, twice)
    with pytest.raises(KeyboardInterrupt):
        run(tiny(out=tmp_path / "run"), [listener])
    assert lines(tmp_path / "run")[-1]["record"] == "episode_ended"
    assert load_policy(tmp_path / "run").num_actions == 2
    assert listener.closed == 1


def test_weights_survive_a_listener_that_breaks(tmp_path):
    def breaks():
        raise OSError("no space left")

    listener = Listener(TrainingProgress, breaks)
    with pytest.raises(OSError, match="no space"):
        run(tiny(out=tmp_path / "run"), [listener])
    assert load_policy(tmp_path / "run").num_actions == 2
    assert listener.closed == 1


def test_a_run_outside_the_main_thread_leaves_signals_alone(tmp_path):
    with ThreadPoolExecutor() as pool:
        result = pool.submit(run, tiny(out=tmp_path / "run")).result()
    assert not result.ended.interrupted


def test_settings_change_the_run(tmp_path):
    """The CLI passes settings on; one of each part of a run, seen in what the run leaves."""
    config = tiny({"sampler": "uniform", "capacity": 50}, num_envs=2, out=tmp_path / "run")
    stats = next(
        line["stats"] for line in lines(run(config).out) if line["record"] == "replay_measured"
    )
    assert stats["capacity"] == stats["size"] == 50
    assert stats["priority_updates"] == 0


def test_paths_may_be_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(tiny(out="runs/a", total_steps=20, eval_episodes=0), [JsonLines("lines.jsonl")])
    longer = tiny(out="runs/a", total_steps=40, eval_episodes=0)
    assert resume("runs/a", config=longer).ended.step == 40


def test_what_is_no_settings_is_refused(tmp_path):
    run(tiny(out=tmp_path, total_steps=20, eval_episodes=0))
    for begin in (run, train, partial(resume, tmp_path, config="CartPole-v1")):
        with pytest.raises(InputError, match=r"TrainConfig\(env=\.\.\.\) .*; given 'CartPole-v1'"):
            begin(*[] if isinstance(begin, partial) else ["CartPole-v1"])


def test_a_run_to_go_on_with_is_a_folder():
    with pytest.raises(InputError, match="path is the name of a folder; given 3"):
        resume(3)


def test_an_environment_is_named_by_its_id(tmp_path):
    env = gymnasium.make("CartPole-v1")
    message = "env is the id of an environment; given <TimeLimit"
    with pytest.raises(ConfigError, match=message):
        run(tiny(env=env, out=tmp_path / "run"))
    agent = build(tiny()).agent
    with pytest.raises(ConfigError, match=message):
        evaluate(agent, env, [0])
    assert not list(tmp_path.iterdir())
