"""What an update of SAC and TD3 spends outside of products of matrices, beside the plain scripts.

    python benchmarks/update_time.py

A batch is drawn and learned from: 17 + 17 + 6 floats, 256 rows, layers of 256 and 256, one thread.
Both sides take turns in one process. The whole is timed undisturbed; what the products take of it
(`mm`, `addmm`, `bmm`, `baddbmm`, forwards and backwards) is timed call by call in updates of their
own. Medians over rounds count, of CPU time.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import platform
import statistics
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import torch
from plain import sac, td3
from torch.utils._python_dispatch import TorchDispatchMode

from relive import Field, ReplayBuffer
from relive.agents import SAC, TD3, ActionScale
from relive.training.runtime import cpu_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    Update = Callable[[], object]

ROWS, BATCH = 20_000, 256
UPDATES = 4  # of a turn; TD3 moves its policy every other time
RESULTS = Path(__file__).parent / "results" / "update_time.json"
aten = torch.ops.aten
PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm}  # into new memory or given one


class Products(TorchDispatchMode):
    """Adds up the CPU time that products of matrices take."""

    seconds = 0.0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:  # the signature is torch's
        """Does what is asked, and notes how long that took."""
        if func.overloadpacket not in PRODUCTS:
            return func(*args, **(kwargs or {}))
        start = time.process_time()
        result = func(*args, **(kwargs or {}))
        self.seconds += time.process_time() - start
        return result


def relive_update(algorithm: str) -> Update:
    """Ours."""
    actions = ActionScale([-1.0] * 6, [1.0] * 6)
    agent = {"sac": SAC, "td3": TD3}[algorithm](Field((17,)), actions)
    buffer = ReplayBuffer(ROWS, {"obs": Field((17,)), "action": Field((6,))})
    rng = np.random.default_rng(0)
    buffer.extend(
        obs=rng.standard_normal((ROWS, 17)),
        action=rng.uniform(-1.0, 1.0, (ROWS, 6)),
        reward=rng.standard_normal(ROWS),
        next_obs=rng.standard_normal((ROWS, 17)),
        terminated=np.zeros(ROWS, bool),
        truncated=np.zeros(ROWS, bool),
    )
    return lambda: agent.update(buffer.sample(BATCH))


def plain_update(algorithm: str) -> Update:
    """The script's."""
    script = {"sac": sac, "td3": td3}[algorithm]
    env, settings, rng = gym.make("HalfCheetah-v5"), script.settings([]), np.random.default_rng(0)
    agent = getattr(script, algorithm.upper())(env, settings)
    buffer = script.ReplayBuffer(env, ROWS, seed=0)
    for _ in range(ROWS):
        obs, next_obs = rng.standard_normal((2, 17))
        buffer.add(obs, rng.uniform(-1.0, 1.0, 6), rng.standard_normal(), next_obs, False)
    return lambda: agent.update(*buffer.sample(BATCH))


def turn(update: Update) -> tuple[float, float]:
    """Microseconds of CPU time of an update, and of the products in one."""
    start = time.process_time()
    for _ in range(UPDATES):
        update()
    whole = time.process_time() - start
    with Products() as products:
        for _ in range(UPDATES):
            update()
    return 1e6 * whole / UPDATES, 1e6 * products.seconds / UPDATES


def compare(algorithm: str, rounds: int) -> dict[str, float]:
    """Both sides in turn."""
    sides = {"relive": relive_update(algorithm), "plain": plain_update(algorithm)}
    for update in sides.values():
        turn(update)
    figures = {name: [] for name in sides}
    for _ in range(rounds):
        for name, update in sides.items():
            figures[name].append(turn(update))
    found = {}
    for name, turns in figures.items():
        whole, products = (statistics.median(column) for column in zip(*turns, strict=True))
        found |= {f"{name} whole": whole, f"{name} products": products}
        found[f"{name} outside"] = whole - products
    found["ratio outside"] = found["relive outside"] / found["plain outside"]
    found["ratio whole"] = found["relive whole"] / found["plain whole"]
    return found


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    with cpu_settings(threads=1):
        found = {algorithm: compare(algorithm, options.rounds) for algorithm in ("sac", "td3")}
    result = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "torch": version("torch"),
        "rounds": options.rounds,
        "microseconds": found,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
