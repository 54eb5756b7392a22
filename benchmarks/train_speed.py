"""Steps per second of DQN training, environment and buffer included, beside Stable-Baselines3.

    python benchmarks/train_speed.py --peer-python PATH

`PATH` is the interpreter of an environment that holds stable-baselines3 and the same PyTorch:

    python -m venv build/sb3
    build/sb3/bin/pip install torch==2.13.0 gymnasium==1.4.0 stable-baselines3

Both train on CartPole-v1 with the settings of the RL Zoo, uniform replay, one thread, nothing
logged. They take turns, so that both see the same machine; a round is one process that trains
briefly to warm up, then once more for the clock. The median of the rounds counts.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

SETTINGS = {
    "env": "CartPole-v1",
    "lr": 2.3e-3,
    "hidden": [256, 256],
    "batch_size": 64,
    "capacity": 100_000,
    "learning_starts": 1_000,
    "gamma": 0.99,
    "train_every": 256,
    "updates_per_train": 128,
    "epsilon_end": 0.04,
    "epsilon_fraction": 0.16,
    "max_grad_norm": 10.0,
}
WARM_UP = 2_000
RESULTS = Path(__file__).parent / "results" / "train_speed.json"


def train_relive(steps: int, seed: int, sampler: str) -> None:
    """One run of ours."""
    from relive.agents import DQNConfig
    from relive.training import ReplayConfig, TrainConfig, train

    s = SETTINGS
    config = TrainConfig(
        env=s["env"],
        total_steps=steps,
        seed=seed,
        device="cpu",
        threads=1,
        learning_starts=s["learning_starts"],
        train_every=s["train_every"],
        updates_per_train=s["updates_per_train"],
        eval_episodes=0,
        replay=ReplayConfig(
            sampler=sampler,
            capacity=s["capacity"],
            batch_size=s["batch_size"],
            gamma=s["gamma"],
        ),
        agent=DQNConfig(
            double=False,
            hidden=tuple(s["hidden"]),
            lr=s["lr"],
            target_period=s["updates_per_train"],  # the peer's copies fall between its bursts
            max_grad_norm=s["max_grad_norm"],
            epsilon_end=s["epsilon_end"],
            epsilon_fraction=s["epsilon_fraction"],
        ),
    )
    for _ in train(config):
        pass


def train_peer(steps: int, seed: int) -> None:
    """One run of Stable-Baselines3."""
    import torch
    from stable_baselines3 import DQN

    torch.set_num_threads(1)
    s = SETTINGS
    DQN(
        "MlpPolicy",
        s["env"],
        learning_rate=s["lr"],
        policy_kwargs={"net_arch": s["hidden"]},
        batch_size=s["batch_size"],
        buffer_size=s["capacity"],
        learning_starts=s["learning_starts"],
        gamma=s["gamma"],
        train_freq=s["train_every"],
        gradient_steps=s["updates_per_train"],
        target_update_interval=10,
        exploration_final_eps=s["epsilon_end"],
        exploration_fraction=s["epsilon_fraction"],
        max_grad_norm=s["max_grad_norm"],
        seed=seed,
        device="cpu",
    ).learn(steps)


SIDES = {
    "relive": lambda steps, seed: train_relive(steps, seed, "uniform"),
    "relive-prioritized": lambda steps, seed: train_relive(steps, seed, "proportional"),
    "stable-baselines3": train_peer,
}


def measure(side: str, steps: int, seed: int) -> dict[str, float]:
    """Steps per second of one run after a warm-up, by the clock and by the CPU's."""
    SIDES[side](WARM_UP, seed)
    wall, cpu = time.perf_counter(), time.process_time()
    SIDES[side](steps, seed)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"steps_per_second": steps / wall, "steps_per_cpu_second": steps / cpu}


def in_process(python: str, side: str, steps: int, seed: int) -> dict[str, float]:
    """`measure` in a process of its own, with another interpreter."""
    command = [python, __file__, "--side", side, "--steps", str(steps), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def has_peer(python: str) -> bool:
    """Whether an interpreter can import the peer."""
    command = [python, "-c", "import stable_baselines3"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def compare(rounds: int, steps: int, peer_python: str) -> dict[str, object]:
    """All sides in turn, `rounds` times; medians, ranges and the ratio of medians."""
    pythons = dict.fromkeys(SIDES, sys.executable)
    pythons["stable-baselines3"] = peer_python
    figures: dict[str, list[dict[str, float]]] = {side: [] for side in SIDES}
    for seed in range(rounds):
        for side, python in pythons.items():
            figure = in_process(python, side, steps, seed)
            figures[side].append(figure)
            print(
                f"round {seed + 1}  {side:20} {figure['steps_per_second']:7.0f} steps/s", flush=True
            )
    summary = {
        side: {
            clock: {
                "median": statistics.median(values := [figure[clock] for figure in taken]),
                "low": min(values),
                "high": max(values),
            }
            for clock in taken[0]
        }
        for side, taken in figures.items()
    }
    peer = summary["stable-baselines3"]
    ratios = {
        side: {clock: ours[clock]["median"] / peer[clock]["median"] for clock in peer}
        for side, ours in summary.items()
    }
    return {"steps_per_second": summary, "ratio_to_stable_baselines3": ratios}


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="with --side")
    parser.add_argument("--side", choices=SIDES, help="measure one side only, in this process")
    parser.add_argument("--peer-python", default=sys.executable, help="has stable-baselines3")
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measure(options.side, options.steps, options.seed)))
        return
    if not has_peer(options.peer_python):
        print(f"skipped: {options.peer_python} has no stable-baselines3; see --help")
        return
    result = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "torch": version("torch"),
        "settings": SETTINGS,
        "steps": options.steps,
        "rounds": options.rounds,
        **compare(options.rounds, options.steps, options.peer_python),
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result["ratio_to_stable_baselines3"], indent=2))


if __name__ == "__main__":
    main()
