"""A store between processes: killed writers, readers meanwhile, forks.

Children are forked from a process of its own for each test, since threads do not survive a fork.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from relive import Field, ReplayBuffer, TrajectoryStore, UnsupportedError
from relive.storage import episode_writer
from relive.writing import tee
from tests.unit.forks import answer_of, forked

FIELDS = {"obs": Field((5,)), "action": Field((), torch.int64)}
LANES = 3
ROUND = 4 * 7 * 5  # steps after which an episode ends in every lane
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")


def step(t: int) -> dict[str, np.ndarray]:
    """Step t of every lane: it tells lane and time; lane e ends an episode every 4 + 3 e steps."""
    lanes = np.arange(LANES)
    obs = np.repeat((1000 * t + lanes)[:, None], 5, 1).astype(np.float32)
    return {
        "obs": obs,
        "action": 10 * t + lanes,
        "reward": np.full(LANES, t, np.float32),
        "next_obs": obs + 1000,
        "terminated": (t + 1) % (4 + 3 * lanes) == 0,
        "truncated": np.zeros(LANES, bool),
    }


def add_for_ever(path: Path, writable: int, rng: np.random.Generator) -> None:
    """Adds steps until killed; tells the number of steps after each flush."""
    tee.STAGED, episode_writer.PENDING = int(rng.integers(1, 5000)), int(rng.integers(1, 5000))
    store = TrajectoryStore(path, FIELDS)
    buffer = ReplayBuffer(50, FIELDS, num_envs=LANES, autoreset="disabled")
    buffer.tee(store)
    t = 0
    while True:
        for _ in range(int(rng.integers(1, 40))):
            buffer.add(**step(t))
            t += 1
        store.flush(sync=bool(rng.random() < 0.1))
        os.write(writable, struct.pack("q", t))


def killed_writers(folder: Path, kills: int, seed: int) -> int:
    """Kills children while they write; returns steps found in all their stores."""
    rng, found = np.random.default_rng(seed), 0
    for number in range(kills):
        path = folder / str(number)
        readable, writable = os.pipe()
        child = forked(
            lambda path=path, number=number, writable=writable: add_for_ever(
                path, writable, np.random.default_rng((seed, number))
            )
        )
        os.close(writable)
        told = os.read(readable, 8)  # waits for the first flush
        time.sleep(float(rng.uniform(0, 0.05)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while more := os.read(readable, 8):
            told = more
        os.close(readable)
        found += check_what_is_left(path, struct.unpack("q", told)[0])
        shutil.rmtree(path)
    return found


def check_what_is_left(path: Path, flushed: int) -> int:
    """Every flushed step is there, in whole episodes, and the store can be written on."""
    read = TrajectoryStore(path, mode="r")
    before = [check_episode(episode, unfinished=False) for episode in read]
    assert sum(before) >= LANES * flushed - read.stats()["open"] * (4 + 3 * LANES)
    with TrajectoryStore(path) as store:
        assert [len(episode) for episode in store][: len(before)] == before
        assert read.refresh() == store.stats()["unfinished"] <= LANES
        assert store.stats()["open"] == 0
        for lane in range(LANES):
            episodes = [episode for episode in store if episode.env == lane]
            actions = torch.cat([episode.action for episode in episodes]).tolist()
            assert actions == [10 * t + lane for t in range(len(actions))]
            assert len(actions) >= flushed
            for number, episode in enumerate(episodes):
                check_episode(episode, unfinished=number == len(episodes) - 1)
        store.append(**{name: values[:1] for name, values in step(0).items()})
    steps = TrajectoryStore(path, mode="r").num_steps
    assert steps == store.num_steps
    return steps


def check_episode(episode, *, unfinished: bool) -> int:
    """It is one episode of its lane, from its first step to its last."""
    first = (int(episode.action[0]) - episode.env) // 10
    for i, t in enumerate(range(first, first + len(episode))):
        expected = step(t)
        for name in ("obs", "next_obs", "action", "reward", "terminated"):
            assert np.array_equal(episode[name][i].numpy(), expected[name][episode.env]), name
    assert first % (4 + 3 * episode.env) == 0
    assert episode.ended == "terminated" or (unfinished and episode.ended == "unfinished")
    return len(episode)


def read_while_written(folder: Path, seed: int) -> int:
    """Reads what a child writes, as it comes; returns how often there was something new."""
    path = folder / "store"
    TrajectoryStore(path, FIELDS).close()

    def child() -> None:
        rng = np.random.default_rng(seed)
        tee.STAGED, episode_writer.PENDING = 700, 900
        store = TrajectoryStore(path)
        buffer = ReplayBuffer(50, FIELDS, num_envs=LANES, autoreset="disabled")
        buffer.tee(store)
        for t in range(20 * ROUND):
            buffer.add(**step(t))
            if rng.random() < 0.05:
                store.flush()
        store.close()

    number = forked(child)
    read, news, ended = TrajectoryStore(path, mode="r"), 0, False
    while not ended:
        ended = os.waitpid(number, os.WNOHANG)[0] != 0
        before = len(read)
        new = read.refresh()
        news += new > 0
        assert len(read) == before + new
        for k in range(before, len(read)):
            check_episode(read.episode(k), unfinished=False)
    assert read.num_steps == LANES * 20 * ROUND
    return news


def use_in_a_fork(folder: Path) -> int:
    """A child of the writer reads, and is refused to write; the parent goes on."""
    store = TrajectoryStore(folder / "store", FIELDS)
    buffer = ReplayBuffer(50, FIELDS, num_envs=LANES, autoreset="disabled")
    buffer.tee(store)
    for t in range(ROUND):
        buffer.add(**step(t))
    store.flush()
    readable, writable = os.pipe()
    held, release = os.pipe()

    def child() -> None:
        os.close(release)
        for call in (
            lambda: buffer.add(**step(ROUND)),
            store.flush,
            lambda: store.append(**{name: v[:1] for name, v in step(0).items()}),
            lambda: TrajectoryStore(store.path),
        ):
            with pytest.raises(UnsupportedError, match=r"forked from|being written by process"):
                call()
        steps = sum(check_episode(episode, unfinished=False) for episode in store)
        store.close()
        buffer.tee(None)
        buffer.add(**step(ROUND))
        os.write(writable, struct.pack("q", steps))
        os.read(held, 1)  # lives on

    number = forked(child)
    os.close(writable), os.close(held)
    steps = struct.unpack("q", os.read(readable, 8))[0]
    for t in range(ROUND, 2 * ROUND):
        buffer.add(**step(t))
    store.close()
    with TrajectoryStore(store.path) as again:  # though the child lives
        assert [check_episode(episode, unfinished=False) for episode in again]
        assert again.num_steps == LANES * 2 * ROUND
    os.close(release)
    assert os.waitpid(number, 0)[1] == 0
    return steps


def run(call: str, folder: Path, timeout: float) -> int:
    """The answer of a function of this module, in a process of its own."""
    return answer_of("test_trajectory_processes", call, folder, timeout)


@pytest.mark.parametrize("kills", [10, pytest.param(150, marks=pytest.mark.long)])
def test_a_killed_writer_loses_nothing_that_was_flushed(tmp_path, kills):
    seed = int.from_bytes(os.urandom(4))  # moments differ from run to run anyhow
    assert run(f"killed_writers(folder, {kills}, {seed})", tmp_path, 60 + 3 * kills) > kills


def test_a_reader_sees_whole_episodes_while_another_process_writes(tmp_path):
    assert run("read_while_written(folder, 0)", tmp_path, 100) > 1


def test_a_fork_reads_and_does_not_write(tmp_path):
    assert run("use_in_a_fork(folder)", tmp_path, 100) == LANES * ROUND


def test_what_was_not_flushed_is_when_the_program_ends(tmp_path):
    code = (
        "import sys; from tests.unit.test_trajectory_processes import *; "
        "store = TrajectoryStore(sys.argv[1], FIELDS); "
        "buffer = ReplayBuffer(9, FIELDS, num_envs=3, autoreset='disabled'); buffer.tee(store); "
        "[buffer.add(**step(t)) for t in range(9)]"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "store")],
        check=True,
        timeout=100,
        cwd=Path(__file__).parents[2],
    )
    with TrajectoryStore(tmp_path / "store") as store:
        assert store.num_steps == LANES * 9
        assert [e.ended for e in store].count("unfinished") == LANES
