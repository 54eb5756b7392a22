"""A run that was stopped or killed goes on as if nothing had happened."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from safetensors.torch import load_file

from relive import ReplayBuffer
from relive.agents import DQN, C51Config, SACConfig
from relive.errors import ConfigError, CorruptError, InputError, UnsupportedError
from relive.storage import files
from relive.training import loop, resume, run
from relive.training.checkpoint import load_checkpoint
from relive.training.loop import Trainer
from relive.training.parts import build
from relive.training.records import (
    EpisodeEnded,
    ReplayMeasured,
    RunEnded,
    RunResumed,
    TrainingProgress,
)
from relive.training.run import run_settings
from tests.unit.storage.test_saving import assert_same_where_held
from tests.unit.training.test_run import Listener
from tests.unit.training.tiny import tiny

CLOCK = ("seconds", "steps_per_second")


class Interrupt:
    """Presses Ctrl-C at the first record of a step."""

    def __init__(self, step):
        self._step = step

    def record(self, record):
        if self._step is not None and record.step >= self._step:
            self._step = None
            signal.raise_signal(signal.SIGINT)

    def close(self):
        pass


def told(out: Path) -> list[dict]:
    """What a run told of itself, but for the clock and its breaks."""
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    return [
        {name: value for name, value in record.items() if name not in (*CLOCK, "config")}
        for record in records
        if record["record"] != "run_resumed"
    ]


def assert_same_run(a: Path, b: Path) -> None:
    """Number for number: records, weights, and everything that a later step would depend on."""
    assert told(a) == told(b)
    assert_same_values(*(load_file(out / "policy.safetensors") for out in (a, b)))
    notes = [ReplayBuffer.saved_note(out / "checkpoint")["trainer"] for out in (a, b)]
    for note in notes:
        del note["seconds"]
    assert_same_values(*notes)
    assert_same_where_held(*(ReplayBuffer.load(out / "checkpoint") for out in (a, b)))


def assert_same_values(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for name in a:
            assert_same_values(a[name], b[name])
    elif isinstance(a, list | tuple):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            assert_same_values(one, other)
    elif isinstance(a, torch.Tensor | np.ndarray):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), strict=True)
    else:
        assert a == b


RUNS = {
    "uniform, n = 3": {"replay": {"sampler": "uniform", "n_step": 3}},
    "proportional, three environments, n = 2": {"replay": {"n_step": 2}, "num_envs": 3},
    "rank, ERE": {
        "replay": {"sampler": "rank", "window": "ere", "window_rows": 20, "resort_every": 3}
    },
    "environments as tensors, n = 2": {
        "env": "torch/CartPole-v1",
        "num_envs": 3,
        "replay": {"n_step": 2},
    },
    "batches drawn ahead": {"replay": {"prefetch": 3, "capacity": 150}},
    "a ring that wraps, Polyak": {
        "replay": {"capacity": 60, "beta": 0.7},
        "agent": {"tau": 0.1, "target_period": 1, "lr_end": 0.0},
    },
}


@pytest.mark.parametrize("settings", RUNS.values(), ids=RUNS)
def test_interrupted_and_resumed_equals_uninterrupted(settings, tmp_path):
    config = {"total_steps": 400, "save_every": 70, **settings}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(tiny(out=whole, **config))
    result = run(tiny(out=broken, **config), [Interrupt(130)])
    assert result.ended.interrupted
    resume(broken, [Interrupt(result.ended.step + 1)])
    result = resume(broken)
    assert not result.ended.interrupted
    assert_same_run(whole, broken)


@pytest.mark.parametrize("step", [1, 99, 100, 101, 139, 399])
def test_it_may_be_stopped_at_any_step(step, tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(tiny(out=whole, total_steps=400))

    records = Trainer.records
    monkeypatch.setattr(
        Trainer, "records", lambda self, _: records(self, lambda: self._step >= step)
    )
    run(tiny(out=broken, total_steps=400))
    monkeypatch.undo()
    assert resume(broken).ended.step == 400
    assert_same_run(whole, broken)


def killed_runs(folder: Path, kills: int, seed: int) -> tuple[int, int]:
    """Kills runs at random moments and resumes them until they end; kills, and runs that ended."""
    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    rng = random.Random(seed)
    config = {"total_steps": 800, "save_every": 40, "log_every": 50}
    config |= {"replay": {"capacity": 700, "n_step": 2}, "num_envs": 2}
    whole = folder / "whole"
    run(tiny(out=folder / "kernels are loaded", **config))
    began = time.monotonic()
    run(tiny(out=whole, **config))
    length = time.monotonic() - began
    killed = ended = 0
    while killed < kills:
        out = folder / str(ended)
        saved = False
        while True:
            child = os.fork()
            if child == 0:
                os._exit(child_of_a_run(out, config, resumes=saved))
            time.sleep(rng.uniform(0.02, 0.8 * length))
            if os.waitpid(child, os.WNOHANG)[0]:
                break
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            killed += 1
            if has_ended(out):  # between its last record and its last breath
                break
            saved = (out / "checkpoint" / "manifest.json").exists()
            if saved:
                ReplayBuffer.load(out / "checkpoint").check()
            elif out.exists():
                out = folder / f"{ended}-{killed}"  # was never saved: begins anew
        ended += 1
        assert_same_run(whole, out)
    return killed, ended


def has_ended(out: Path) -> bool:
    return (out / "metrics.jsonl").exists() and any(r["record"] == "run_ended" for r in told(out))


def child_of_a_run(out: Path, config: dict, *, resumes: bool) -> int:
    try:
        if resumes:
            resume(out)
        else:
            run(tiny(out=out, **config))
    except BaseException as error:
        sys.stderr.write(f"{error!r}\n")
        sys.stderr.flush()
        return 1
    return 0


@pytest.mark.parametrize("kills", [25, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_killed_at_any_moment_and_resumed_equals_uninterrupted(tmp_path, kills):
    code = (
        "import sys; from pathlib import Path; from tests.unit.training import test_resume as t;"
        "print(*t.killed_runs(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))"
    )
    seed = int.from_bytes(os.urandom(4))  # moments differ from run to run anyhow
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path), str(kills), str(seed)],
        capture_output=True,
        text=True,
        timeout=20 * kills,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert (done.returncode, done.stderr) == (0, "")
    killed, ended = map(int, done.stdout.split())
    assert killed >= kills
    assert ended >= 1


@pytest.fixture
def stopped(tmp_path):
    run(tiny(out=tmp_path / "run"), [Interrupt(150)])
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"replay": {"capacity": 90}}, r"replay\.capacity was 200, given 90"),
        ({"agent": {"lr": 0.5}}, r"agent\.lr was 0\.001, given 0\.5"),
        ({"seed": 3, "log_every": 7}, "seed was 0, given 3; log_every was 100, given 7"),
        ({"replay": {"sampler": "rank"}}, r"replay\.sampler was proportional, given rank"),
    ],
)
def test_another_setting_is_refused_and_named(stopped, change, named):
    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=named):
        resume(stopped, config=tiny(out=stopped, **change))
    assert {path: path.read_bytes() for path in before} == before


def test_a_run_directory_may_be_moved(stopped):
    moved = stopped.rename(stopped.parent / "moved")
    assert resume(moved).ended.step == 300


def test_a_run_that_has_ended_is_left_alone(tmp_path):
    run(tiny(out=tmp_path))
    before = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(InputError, match="has come to its end"):
        resume(tmp_path)
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_run_that_has_ended_can_be_made_longer(tmp_path):
    # no schedule depends on the length of a run of SAC, so the longer one is as if from the start
    config = dataclasses.replace(
        tiny(env="Pendulum-v1", replay={"sampler": "uniform"}, eval_every=150),
        agent=SACConfig(hidden=(16,)),
    )
    whole, short = tmp_path / "whole", tmp_path / "short"
    run(dataclasses.replace(config, out=whole, total_steps=500))
    run(dataclasses.replace(config, out=short))
    listener = Listener()
    longer = dataclasses.replace(run_settings(short), total_steps=500)
    assert resume(short, [listener], config=longer).ended.step == 500
    assert listener.records[0].changed == {"total_steps": "300 before, 500 now"}
    assert_same_run(whole, short)
    assert [r["step"] for r in told(short) if r["record"] == "evaluated"] == [150, 300, 450, 500]
    assert_same_values(*(load_file(out / "best.safetensors") for out in (whole, short)))
    with pytest.raises(InputError, match="unless it is given more total_steps than 500"):
        resume(short)
    with pytest.raises(
        ConfigError, match=r"total_steps was 500, given 300 \(with more than 500 it becomes"
    ):
        resume(short, config=dataclasses.replace(longer, total_steps=300))


def test_a_run_that_is_made_longer_on_its_way_makes_no_evaluation_twice(tmp_path):
    run(tiny(out=tmp_path, eval_every=150), [Interrupt(150)])
    evaluated = [r["step"] for r in told(tmp_path) if r["record"] == "evaluated"]
    longer = dataclasses.replace(run_settings(tmp_path), total_steps=450)
    resume(tmp_path, config=longer)
    found = [r["step"] for r in told(tmp_path) if r["record"] == "evaluated"]
    assert (evaluated, found) == ([150], [150, 300, 450])


def test_a_run_that_was_never_saved_says_so(stopped):
    (stopped / "checkpoint" / "manifest.json").unlink()
    with pytest.raises(InputError, match=r"cannot go on: nothing .* Delete the directory"):
        resume(stopped)


def test_a_folder_without_a_run_says_so(tmp_path):
    with pytest.raises(InputError, match=r"not a run directory: it has no config\.json"):
        resume(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="is no JSON"):
        resume(tmp_path)
    (tmp_path / "config.json").write_text('{"env": 3}')
    with pytest.raises(InputError, match="not the settings of a run"):
        resume(tmp_path)


def test_a_damaged_save_is_refused(stopped):
    file = next((stopped / "checkpoint").glob("state-*.bin"))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptError, match="has changed since it was saved"):
        resume(stopped)


def test_records_that_were_lost_since_are_noticed(stopped):
    (stopped / "metrics.jsonl").write_text("")
    with pytest.raises(InputError, match="has lost records"):
        resume(stopped)


def test_a_run_resumed_says_where_it_goes_on(stopped):
    listener = Listener()
    resume(stopped, [listener])
    first = listener.records[0]
    assert isinstance(first, RunResumed)
    ended = [r for r in told(stopped) if r["record"] == "episode_ended"]
    before = [r["episode_return"] for r in ended if r["step"] <= first.step]
    assert first.episodes == len(before) > 1
    assert first.last_returns == tuple(before[-20:])
    assert first.changed == {}


def test_another_version_is_told(stopped, monkeypatch):
    from relive.training import loop

    versions = loop.versions()
    monkeypatch.setattr(loop, "versions", lambda: {**versions, "torch": "9.9"})
    listener = Listener()
    resume(stopped, [listener])
    assert listener.records[0].changed == {"torch": f"{versions['torch']} before, 9.9 now"}


def test_a_save_that_fails_is_told_and_training_goes_on(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("disk full")

    monkeypatch.setattr(files, "write_all", full)
    with pytest.warns(RuntimeWarning, match="could not be saved: disk full"):
        result = run(tiny(out=tmp_path, save_every=50))
    assert result.ended.step == 300


def test_saves_change_no_number(tmp_path):
    run(tiny(out=tmp_path / "a", save_every=7))
    run(tiny(out=tmp_path / "b", save_every=0))
    assert told(tmp_path / "a") == told(tmp_path / "b")


class Drifting(gymnasium.Env):
    """Remembers earlier episodes, which no seed can bring back."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    born = 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        super().reset(seed=seed)
        Drifting.born += 1
        return np.array([Drifting.born, 0], np.float32), {}

    def step(self, action):  # noqa: ARG002
        return self.np_random.normal(size=2).astype(np.float32), 1.0, False, False, {}


@pytest.fixture
def drifting():
    gymnasium.register("Drifting-v0", entry_point=lambda: Drifting(), max_episode_steps=500)
    yield "Drifting-v0"
    del gymnasium.registry["Drifting-v0"]


class Spoilt(gymnasium.Env):
    """Pays less and less, from episode to episode; what it shows follows from the seed."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    episodes = steps = 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        super().reset(seed=seed)
        self.episodes, self.steps = self.episodes + 1, 0
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):  # noqa: ARG002
        self.steps += 1
        obs = self.np_random.normal(size=2).astype(np.float32)
        return obs, 1.0 / self.episodes, self.steps % 17 == 0, False, {}


def test_an_environment_whose_rewards_remember_earlier_episodes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "Spoilt-v0", EnvSpec("Spoilt-v0", Spoilt))
    run(tiny(out=tmp_path, env="Spoilt-v0"), [Interrupt(195)])
    with pytest.raises(UnsupportedError, match="remembers earlier episodes"):
        resume(tmp_path)


class Bandit(gymnasium.Env):
    """Every step is an episode; fails once, at a step of all lives that it is told."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    ends_after = 1
    fails_at = math.inf
    lives = 0

    def reset(self, *, seed=None, options=None):  # noqa: ARG002
        super().reset(seed=seed)
        self.steps, self.pays = 0, self.np_random.random()
        return np.full(2, self.pays, np.float32), {}

    def step(self, action):
        type(self).lives += 1
        if self.lives == self.fails_at:
            raise ConnectionError("the robot has gone")
        self.steps += 1
        obs = np.full(2, self.pays * (0.5 + 0.1 * int(action)), np.float32)
        return obs, self.pays, self.steps == self.ends_after, False, {}


@pytest.mark.parametrize("kind", ["dqn", "noisy"])
@pytest.mark.parametrize("ends_after", [1, 2, 7])
@pytest.mark.parametrize("num_envs", [1, 2])
@pytest.mark.parametrize("fails_at", [6, 205, 206])
def test_an_environment_that_fails_once_changes_no_number(
    tmp_path, monkeypatch, kind, ends_after, num_envs, fails_at
):
    bandit = type("Bandit", (Bandit,), {"ends_after": ends_after})
    monkeypatch.setitem(gymnasium.registry, "Bandit-v0", EnvSpec("Bandit-v0", bandit))
    agent = {"agent": C51Config(hidden=(16,), noisy_sigma=0.5)} if kind == "noisy" else {}
    config = dataclasses.replace(tiny(env="Bandit-v0", num_envs=num_envs, save_every=50), **agent)
    run(dataclasses.replace(config, out=tmp_path / "whole"))
    bandit.lives, bandit.fails_at = 0, fails_at
    broken = tmp_path / "broken"
    with pytest.raises(ConnectionError):
        run(dataclasses.replace(config, out=broken))
    bandit.fails_at = math.inf
    before = (fails_at - 1) // num_envs * num_envs
    ended_before = (
        num_envs == 2 and fails_at % 2 == 0 and before // 2 % ends_after == ends_after - 1
    )
    if ended_before:  # the first copy had begun a new episode in that step: from the last save
        before = before // 50 * 50
    if before == 0:
        assert not (broken / "checkpoint").exists()
        return
    listener = Listener()
    resume(broken, [listener])
    assert listener.records[0].step == before
    ours = [record for record in told(broken) if record.get("error") is None]
    assert ours == told(tmp_path / "whole")
    assert_same_values(
        *(load_file(tmp_path / run / "policy.safetensors") for run in ("whole", "broken"))
    )


def test_an_error_in_an_update_leaves_the_save_before_it_alone(tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(tiny(out=whole, save_every=100))
    learn, calls = DQN.learn, []

    def fails_once(self, *args):
        calls.append(self)
        if len(calls) == 31:
            raise MemoryError("no memory")
        return learn(self, *args)

    monkeypatch.setattr(DQN, "learn", fails_once)
    with pytest.raises(MemoryError):
        run(tiny(out=broken, save_every=100))
    resume(broken)
    assert_same_run(whole, broken)


@pytest.mark.parametrize("how", ["ctrl-c", "error"])
def test_an_evaluation_on_the_way_that_broke_off_is_made_after_the_resume(
    tmp_path, monkeypatch, how
):
    config = {"total_steps": 400, "eval_every": 150}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(tiny(out=whole, **config))
    played, calls = loop.evaluate, []

    def breaks_off_once(*args):
        calls.append(args)
        if len(calls) == 1 and how == "error":
            raise ConnectionError("the robot has gone")
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return played(*args)

    monkeypatch.setattr(loop, "evaluate", breaks_off_once)
    with pytest.raises(ConnectionError) if how == "error" else nullcontext():
        run(tiny(out=broken, **config))
    resume(broken)
    judged = [
        [(r["step"], r["returns"]) for r in told(out) if r["record"] == "evaluated"]
        for out in (whole, broken)
    ]
    assert judged[0] == judged[1]
    assert [step for step, _ in judged[0]] == [150, 300, 400]
    assert_same_values(*(load_file(out / "best.safetensors") for out in (whole, broken)))


@pytest.mark.parametrize("missing", ["config.json", "metrics.jsonl"])
def test_a_run_directory_that_has_lost_a_file_says_which(stopped, missing):
    (stopped / missing).unlink()
    with pytest.raises(InputError, match=f"has no {missing}"):
        resume(stopped)


def test_an_environment_that_cannot_be_brought_back_is_refused(tmp_path, drifting):
    import dataclasses

    config = dataclasses.replace(tiny(out=tmp_path, eval_episodes=0), env=drifting)
    stop = Listener(TrainingProgress, lambda: signal.raise_signal(signal.SIGINT))
    run(config, [stop])
    assert resume(tmp_path).ended.step == 300  # the observation does follow from the seed
    out = tmp_path / "reset"
    config = dataclasses.replace(config, out=out, total_steps=2)

    run(dataclasses.replace(config, total_steps=300), [Interrupt(0)])
    with pytest.raises(UnsupportedError, match="cannot be resumed: the same seed and actions"):
        resume(out)


def test_without_the_rows_warm_up_is_repeated_and_nothing_bursts(tmp_path):
    listener = Listener()
    config = {"save_buffer": False, "total_steps": 600, "log_every": 10, "out": tmp_path}
    run(tiny(**config), [Interrupt(300)])
    resume(tmp_path, [listener])
    first = listener.records[0]
    assert first.changed == {"buffer": f"not saved; filled anew until step {first.step + 100}"}
    progress = [r for r in listener.records if isinstance(r, TrainingProgress)]
    by_step = {r.step: r for r in progress}
    before = [r for r in told(tmp_path) if r["record"] == "training_progress"]
    last = next(r for r in reversed(before) if r["step"] <= first.step)
    assert by_step[first.step // 10 * 10 + 90].updates == last["updates"]
    assert progress[0].beta >= last["beta"]
    assert progress[0].epsilon <= last["epsilon"]
    bursts = np.diff([r.updates for r in progress])
    assert max(bursts) <= 6  # 2 every 4 steps
    assert any(isinstance(r, EpisodeEnded) for r in listener.records)
    with pytest.raises(InputError, match="holds a note, but no buffer"):
        ReplayBuffer.load(tmp_path / "checkpoint")


def test_without_the_rows_what_was_drawn_ahead_of_them_is_left_behind(tmp_path):
    config = tiny({"prefetch": 2}, save_buffer=False, out=tmp_path)
    run(config, [Interrupt(200)])
    note = ReplayBuffer.saved_note(tmp_path / "checkpoint")["trainer"]
    assert len(note["batches"]["drawn"]) == 2
    trainer = Trainer(config, build(config))
    trainer.load_state_dict(note, buffer_kept=False)
    assert trainer.state_dict()["batches"] == {"drawn": []}


def test_ctrl_c_while_the_policy_is_judged_ends_it_and_the_judging_can_be_resumed(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(tiny(out=whole, eval_episodes=5))
    at_the_end = Listener(ReplayMeasured, lambda: signal.raise_signal(signal.SIGINT))
    result = run(tiny(out=broken, eval_episodes=5), [at_the_end])
    assert result.ended.interrupted
    assert result.evaluated is None
    assert resume(broken).evaluated.returns == run_returns(whole)
    assert_same_run(whole, broken)


def run_returns(out):
    return next(tuple(r["returns"]) for r in told(out) if r["record"] == "evaluated")


def test_a_run_that_says_it_has_ended_is_saved_as_it_ended(tmp_path, monkeypatch):
    opened, write_all = threading.Event(), files.write_all

    def slow(file, chunk):
        assert opened.wait(60)
        write_all(file, chunk)

    seen = []

    def look():
        seen.append(ReplayBuffer.saved_note(tmp_path / "checkpoint")["trainer"]["step"])

    monkeypatch.setattr(files, "write_all", slow)
    measured = Listener(ReplayMeasured, opened.set)  # the last save is under way until then
    run(tiny(out=tmp_path, save_every=0), [measured, Listener(RunEnded, look)])
    assert seen == [300]


def test_a_run_that_another_process_is_at_is_left_alone(stopped):
    from relive.storage.writer_lock import Lock

    before = {path: path.read_bytes() for path in stopped.rglob("*") if path.is_file()}
    held = Lock(stopped, "")
    with pytest.raises(UnsupportedError, match=r"is being written by process \d+, .* wait for its"):
        resume(stopped)
    held.release()
    del before[stopped / "lock"]
    assert {path: path.read_bytes() for path in before} == before
    assert resume(stopped).ended.step == 300


def test_auto_goes_on_with_what_was_chosen(stopped):
    saved = run_settings(stopped)
    auto = dataclasses.replace(saved, log_every="auto", threads="auto", device="auto")
    listener = Listener()
    resume(stopped, [listener], config=auto)
    config = listener.records[0].config
    assert (config["log_every"], config["threads"]) == (saved.log_every, saved.threads)
    assert config["device"] == saved.device


def test_what_a_failing_gpu_leads_to_is_what_is_said_now(stopped):
    saved = run_settings(stopped)
    assert saved.replay.on_failure == "cpu"
    replay = dataclasses.replace(saved.replay, on_failure="raise")
    config = dataclasses.replace(saved, replay=replay)
    buffer, _ = load_checkpoint(stopped / "checkpoint", config)
    assert buffer._home.settings.on_failure == "raise"
