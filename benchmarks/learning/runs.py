"""One run: made, gone on with, or found made; then read."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.learning.tasks import Task

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "runs" / "learn"
RELIVE = (str(Path(sys.executable).with_name("relive")),)
PEER = ROOT / "build" / "peers" / "stable-baselines3" / "bin" / "python"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
LAST_EPISODES = 100  # of training that count
POINTS = 25  # of a curve


def directory(task: Task, seed: int) -> Path:
    """Where a run lies."""
    return RUNS / task.name / str(seed)


def make(task: Task, seed: int) -> dict[str, Any]:
    """Makes a run, or goes on with it, unless it has been made; what came of it.

    Raises:
        RuntimeError: It failed; the text says where its output is.
    """
    out = directory(task, seed)
    if not has_ended(out):
        log = out.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as file:
            for command in commands(task, seed):
                run = subprocess.run(
                    command,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=os.environ | ONE_THREAD,
                    cwd=ROOT,
                    check=False,
                )
                if run.returncode:
                    raise RuntimeError(f"{shlex.join(command)} failed; see {log}")
    return result(task, out)


def commands(task: Task, seed: int) -> list[list[str]]:
    """What has to be run, from where the run is now."""
    out = directory(task, seed)
    if task.peer:
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        script = str(Path(__file__).parent / "peer.py")
        options = ["--seed", str(seed), "--out", str(out), "--eval-episodes", str(task.episodes)]
        return [[str(PEER), script, *shlex.split(task.words), *options]]
    if (out / "checkpoint" / "manifest.json").exists():
        return [[*RELIVE, "train", "--resume", str(out)]]
    shutil.rmtree(out, ignore_errors=True)
    first, demonstrations = [], []
    if task.record is not None:
        path = RUNS / "demonstrations" / task.record.split()[1]
        demonstrations = ["--demos.path", str(path)]
        if not path.exists():
            first = [[*RELIVE, "record", *shlex.split(task.record), "--out", str(path)]]
    words = [*shlex.split(task.words), *demonstrations, "--device", "cpu", "--seed", str(seed)]
    options = ["--eval-episodes", str(task.episodes), "--save-every", "50000", "--out", str(out)]
    return [*first, [*RELIVE, "train", *words, *options]]


def command_shown(task: Task) -> str:
    """The command of seed 0 as a user types it."""
    if task.peer:
        return f"python benchmarks/learning/peer.py {task.words} --seed 0"
    demonstrations = " --demos.path demonstrations" if task.record else ""
    return (
        f"relive train {task.words}{demonstrations} --device cpu --seed 0 "
        f"--eval-episodes {task.episodes}"
    )


def records(out: Path) -> list[dict[str, Any]]:
    """What happened in a run, as `metrics.jsonl` tells it."""
    path = out / "metrics.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:  # cut off when the run was killed
            continue
    return found


def has_ended(out: Path) -> bool:
    """Whether a run was made to its end."""
    last = records(out)[-1:]
    return bool(last) and last[0]["record"] == "run_ended" and not last[0]["interrupted"]


def result(task: Task, out: Path) -> dict[str, Any]:
    """What came of a run that has ended."""
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for record in records(out):
        by_kind.setdefault(record["record"], []).append(record)
    started = by_kind["run_started"][0]
    ended, evaluated = by_kind["run_ended"][-1], by_kind["evaluated"][-1]
    episodes = by_kind["episode_ended"]
    training = [episode["episode_return"] for episode in episodes[-LAST_EPISODES:]]
    returns = evaluated["returns"]
    greedy = {
        "episodes": len(returns),
        "mean": round(float(np.mean(returns)), 2),
        "std": round(float(np.std(returns)), 2),
        "worst": round(min(returns), 2),
    }
    return {
        "greedy": greedy,
        "training": {"episodes": len(training), "mean": round(float(np.mean(training)), 2)},
        "curve": curve(episodes, ended["step"]),
        "steps": ended["step"],
        "updates": ended["updates"],
        "seconds": round(ended["seconds"], 1),
        "versions": started["versions"],
        "command": command_shown(task),
    }


def curve(episodes: list[dict[str, Any]], steps: int) -> list[list[float | None]]:
    """Mean return of the episodes that ended in each of equal parts: `[last step, mean]`."""
    ends = np.linspace(0, steps, POINTS + 1)
    at = np.array([episode["step"] for episode in episodes])
    returns = np.array([episode["episode_return"] for episode in episodes])
    points: list[list[float | None]] = []
    for start, stop in itertools.pairwise(ends):
        inside = returns[(at > start) & (at <= stop)]
        points.append([round(stop), round(float(inside.mean()), 2) if len(inside) else None])
    return points
