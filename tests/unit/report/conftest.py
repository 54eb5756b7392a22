"""Run directories written by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Record = dict[str, Any]
MakeRun = Callable[..., Path]

CONFIG: Record = {
    "algorithm": "dqn",
    "env": "CartPole-v1",
    "seed": 3,
    "out": None,
    "replay": {"sampler": "proportional", "capacity": 1000},
    "agent": {"double": True, "hidden": [256, 256], "lr": 0.0023},
}
STARTED: Record = {
    "record": "run_started",
    "step": 0,
    "config": CONFIG,
    "versions": {"relive": "0.1.0", "torch": "2.13.0"},
}
EPISODES: list[Record] = [
    {"record": "episode_ended", "step": 20 * i, "env": 0, "episode_return": 2.0 * i, "length": 20}
    for i in range(1, 61)
]
PROGRESS: list[Record] = [
    {
        "record": "training_progress",
        "step": 100 * i,
        "updates": 50 * i,
        "loss": 0.5 / i if i > 1 else None,
        "td_error": 1.0 / i if i > 1 else None,
        "q_mean": float(i),
        "grad_norm": 2.0,
        "epsilon": 1.0 - 0.08 * i,
        "beta": 0.4 + 0.05 * i,
        "fill": 0.1 * i,
        "seconds": 0.5 * i,
        "steps_per_second": 200.0,
    }
    for i in range(1, 12)
]
SUMMARIES: list[Record] = [  # in place of episodes, where environments live on the device
    {
        "record": "episodes_ended",
        "step": 100 * i,
        "episodes": 5,
        "mean_return": 10.0 * i,
        "least_return": 1.0,
        "largest_return": 20.0 * i,
        "mean_length": 20.0,
        "least_length": 1,
        "largest_length": 40,
    }
    for i in range(1, 12)
]
POLICY: list[Record] = [  # as an agent with a policy tells it
    {**record, "actor_loss": -1.0 * i, "temperature": 1.0 / i, "entropy": 0.5 - 0.1 * i}
    for i, record in enumerate(PROGRESS, 1)
]
MEASURED: Record = {
    "record": "replay_measured",
    "step": 1200,
    "priority_edges": [0.001, 0.01, 0.1, 1.0, 10.0],
    "priority_counts": [0, 600, 390, 10],
    "age_counts": [0, 1, 2, 4, 8, 16, 30],
    "reuse_counts": [10, 20, 40, 80, 50, 0, 0],
    "stats": {"size": 1000, "capacity": 1000, "stale_updates": 7, "age_counts": [1, 2]},
}
EVALUATED: Record = {
    "record": "evaluated",
    "step": 1200,
    "returns": [500.0, 490.0, 481.0],
    "mean": 490.3333,
    "std": 7.7603,
    "reference": 500.0,
}
ENDED: Record = {
    "record": "run_ended",
    "step": 1200,
    "updates": 550,
    "seconds": 6.0,
    "interrupted": False,
}
WHOLE = [STARTED, *EPISODES, *PROGRESS, MEASURED, EVALUATED, ENDED]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Writes records, and a tail after them, as a run directory."""

    def make(records: list[Record] = WHOLE, *, config: Any = CONFIG, tail: str = "") -> Path:
        path = tmp_path / "run"
        path.mkdir()
        lines = "".join(json.dumps(record) + "\n" for record in records)
        (path / "metrics.jsonl").write_text(lines + tail)
        if config is not None:
            (path / "config.json").write_text(json.dumps(config))
        return path

    return make
