"""Steps per second of training, environment and buffer included, beside others.

    python benchmarks/train_speed.py --peer-python PATH

DQN on CartPole-v1 with the settings of the RL Zoo, SAC and TD3 on HalfCheetah-v5 with those of the
papers (an update of 256 rows at every step, layers of 256 and 256); uniform replay, one thread,
nothing logged. `PATH` is the interpreter of an environment with Stable-Baselines3 and the same
PyTorch:

    python -m venv build/sb3
    build/sb3/bin/pip install torch==2.13.0 gymnasium[mujoco]==1.4.0 stable-baselines3

`plain` is a file without tricks, as one writes it by hand: benchmarks/plain. Each side trains in a
process of its own and stops after every turn, of a second or two, for the others'; so all of them
see the same machine. Random actions, and a turn with the first updates, go before those that count.
A ratio is the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import platform
import statistics
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from train_sides import SETTINGS

SIDES = {
    "dqn": ("relive", "relive-prioritized", "stable-baselines3"),
    "sac": ("relive", "relive-prioritized", "plain", "stable-baselines3"),
    "td3": ("relive", "relive-prioritized", "plain", "stable-baselines3"),
}
TURN = {"dqn": 2560, "sac": 100, "td3": 100}  # environment steps
RESULTS = Path(__file__).parent / "results" / "train_speed.json"
CLOCKS = ("steps_per_second", "steps_per_cpu_second")


class Side:
    """A training in a process of its own."""

    def __init__(self, python: str, name: str, algorithm: str) -> None:
        script = Path(__file__).with_name("train_sides.py")
        self.steps = TURN[algorithm]
        self._process = subprocess.Popen(
            [python, str(script), name, algorithm, str(self.steps)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def turn(self) -> list[float]:
        """Steps per second of one turn, by each clock."""
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return [self.steps / seconds for seconds in json.loads(self._process.stdout.readline())]

    def close(self) -> None:
        """Ends the training."""
        self._process.stdin.close()
        self._process.wait()


def compare(algorithm: str, rounds: int, peer_python: str) -> dict[str, object]:
    """All sides in turn, `rounds` times: medians, ranges, and ratios to each of the others."""
    pythons = {"stable-baselines3": peer_python}
    sides = {
        name: Side(pythons.get(name, sys.executable), name, algorithm) for name in SIDES[algorithm]
    }
    for side in sides.values():
        side.turn()  # the first updates, and what they compile
    figures: dict[str, list[list[float]]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, side in sides.items():
            figures[name].append(side.turn())
        told = "  ".join(f"{name} {taken[-1][1]:.0f}" for name, taken in figures.items())
        print(f"{algorithm}  round {number + 1}  steps per CPU second: {told}", flush=True)
    for side in sides.values():
        side.close()
    summary, ratios = {}, {}
    for place, clock in enumerate(CLOCKS):
        taken = {name: [figure[place] for figure in rows] for name, rows in figures.items()}
        summary[clock] = {
            name: {"median": statistics.median(rates), "low": min(rates), "high": max(rates)}
            for name, rates in taken.items()
        }
        ratios[clock] = {
            f"relive / {name}": statistics.median(
                ours / theirs for ours, theirs in zip(taken["relive"], rates, strict=True)
            )
            for name, rates in taken.items()
            if name != "relive"
        }
    return {"settings": SETTINGS[algorithm], "steps_of_a_turn": TURN[algorithm]} | {
        "rounds": rounds,
        "rates": summary,
        "ratios": ratios,
    }


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--algorithms", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--peer-python", required=True, help="has stable-baselines3")
    options = parser.parse_args()
    result = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    for algorithm in options.algorithms:
        result[algorithm] = {
            "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
            "machine": f"{platform.machine()}, Python {platform.python_version()}",
            "torch": version("torch"),
            **compare(algorithm, options.rounds, options.peer_python),
        }
        RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(json.dumps(result[algorithm]["ratios"], indent=2))


if __name__ == "__main__":
    main()
