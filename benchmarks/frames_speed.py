"""Stacks of four frames of 84 x 84 bytes: memory of a row, time of `add` and of a batch of 32.

    make bench            # installs the other libraries, once
    python benchmarks/frames_speed.py

Each buffer lives in a process of its own and holds 50,000 rows, one environment, episodes of 1,000
steps, drawn uniformly. Memory is what the process grew by. Processes take turns; of the CPU times
of one thread the median of all rounds counts. Below them lie copies of NumPy: of the one new frame,
and of the eight frames of each row of a batch.

Each library is asked to keep frames as sparingly as it can: relive with `stack=4` (and, beside it,
whole stacks), cpprb with `stack_compress` and `next_of`, tianshou with `stack_num` and
`save_only_last_obs`, Stable-Baselines3 with `optimize_memory_usage`, which keeps stacks whole and
leaves out next observations.

Writes results/frames_speed.json.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS, BATCH, EPISODE, STACK, PIXELS = 50_000, 32, 1_000, 4, 84
DIFFERENT = 7 * EPISODE + STACK  # frames
ROUNDS, ADDS, SAMPLES = 5, 3_000, 200
PEERS = Path(__file__).parents[1] / "build" / "peers"
RESULTS = Path(__file__).parent / "results" / "frames_speed.json"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


class Frames:
    """Frames of an endless run of episodes; each is seen once in seven of them."""

    def __init__(self, axis: int = 0) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (DIFFERENT, PIXELS, PIXELS), np.uint8)
        self._frames = pixels if axis == 0 else np.ascontiguousarray(np.moveaxis(pixels, 0, axis))
        self._axis = axis
        self.step = 0

    def next(self) -> tuple[Any, Any, bool]:
        """A stack, the one behind it, and whether the episode ends."""
        at, self.step = self.step % (DIFFERENT - STACK), self.step + 1
        return self._stack(at), self._stack(at + 1), self.step % EPISODE == 0

    def _stack(self, first: int) -> Any:
        stack = self._frames[(slice(None),) * (self._axis % 3) + (slice(first, first + STACK),)]
        return stack if self._axis == 0 else np.ascontiguousarray(stack)


def relive(rows: int, stack: int | None) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Ours; whole stacks without `stack`."""
    import torch

    from relive import Field, ReplayBuffer

    obs = Field((STACK, PIXELS, PIXELS), torch.uint8, stack=stack)
    buffer = ReplayBuffer(rows, {"obs": obs, "action": Field((), torch.int64)})
    frames, out = Frames(), buffer.empty_batch(BATCH)

    def add() -> None:
        obs, after, ends = frames.next()
        buffer.add(obs=obs, action=0, reward=1.0, next_obs=after, terminated=False, truncated=ends)

    return add, lambda: buffer.sample(BATCH, out=out)


def cpprb(rows: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Its stacks have the frames in the last axis."""
    from cpprb import ReplayBuffer

    fields = {
        "obs": {"shape": (PIXELS, PIXELS, STACK), "dtype": np.uint8},
        "act": {"dtype": np.int64},
        "rew": {},
        "done": {},
    }
    buffer = ReplayBuffer(rows, fields, next_of="obs", stack_compress="obs")
    frames = Frames(axis=2)

    def add() -> None:
        obs, after, ends = frames.next()
        buffer.add(obs=obs, act=0, rew=1.0, next_obs=after, done=0.0)
        if ends:
            buffer.on_episode_end()

    return add, lambda: buffer.sample(BATCH)


def stable_baselines3(rows: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Half of the stacks."""
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    buffer = ReplayBuffer(
        rows,
        spaces.Box(0, 255, (STACK, PIXELS, PIXELS), np.uint8),
        spaces.Discrete(4),
        device="cpu",
        optimize_memory_usage=True,
        handle_timeout_termination=False,
    )
    frames, action, reward = Frames(), np.zeros((1, 1), np.int64), np.ones(1, np.float32)

    def add() -> None:
        obs, after, ends = frames.next()
        buffer.add(obs[None], after[None], action, reward, np.array([ends]), [{}])

    return add, lambda: buffer.sample(BATCH)


def tianshou(rows: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The last frame of each stack, and none of the next observation."""
    from tianshou.data import Batch, ReplayBuffer

    buffer = ReplayBuffer(rows, stack_num=STACK, ignore_obs_next=True, save_only_last_obs=True)
    frames = Frames()

    def add() -> None:
        obs, after, ends = frames.next()
        buffer.add(
            Batch(
                obs=obs, act=0, rew=1.0, terminated=False, truncated=ends, obs_next=after, info={}
            )
        )

    return add, lambda: buffer.sample(BATCH)


def copies(rows: int) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The floor."""
    kept = np.zeros((rows, PIXELS, PIXELS), np.uint8)
    frames, rng = Frames(), np.random.default_rng(1)
    out = np.empty((BATCH * 2 * STACK, PIXELS, PIXELS), np.uint8)

    def add() -> None:
        kept[frames.step % rows] = frames.next()[1][-1]

    def sample() -> None:
        np.take(kept, rng.integers(0, rows, BATCH * 2 * STACK), axis=0, out=out, mode="clip")

    return add, sample


SIDES: dict[str, tuple[str | None, Callable[[int], Any]]] = {  # environment, and what is made there
    "copies of NumPy": (None, copies),
    "relive, whole stacks": (None, lambda rows: relive(rows, None)),
    "relive, frames once": (None, lambda rows: relive(rows, STACK)),
    "cpprb": ("cpprb", cpprb),
    "tianshou": ("tianshou", tianshou),
    "Stable-Baselines3": ("stable-baselines3", stable_baselines3),
}


def measure(name: str) -> None:
    """Serve one side: a line a round."""
    make = SIDES[name][1]
    run(*make(EPISODE), EPISODE)  # what is imported and compiled is no row's
    before = resident()
    add, sample = make(ROWS)
    run(add, sample, ROWS + EPISODE)
    nbytes = (resident() - before - DIFFERENT * PIXELS**2) / ROWS  # without those of `Frames`
    for _ in sys.stdin:
        times = {"add": per_call(add, ADDS), "sample": per_call(sample, SAMPLES)}
        print(json.dumps({"bytes": nbytes, **times}), flush=True)


def run(add: Callable[[], Any], sample: Callable[[], Any], steps: int) -> None:
    """Write steps, and draw a batch."""
    for _ in range(steps):
        add()
    sample()


def per_call(call: Callable[[], Any], count: int) -> float:
    """Microseconds of CPU."""
    began = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - began) / count * 1e6


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    """Measure all sides, those whose library is there."""
    children = {}
    for name, (peer, _) in SIDES.items():
        python = Path(sys.executable) if peer is None else PEERS / peer / "bin" / "python"
        if python.exists():
            children[name] = subprocess.Popen(
                [python, __file__, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **ONE_THREAD},
            )
    found: dict[str, list[dict[str, float]]] = {name: [] for name in children}
    for _ in range(ROUNDS):
        for name, child in children.items():
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            found[name].append(json.loads(child.stdout.readline()))
    for child in children.values():
        child.communicate()
    rows = {
        name: {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
        for name, rounds in found.items()
    }
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    result = {"date": dt.datetime.now(dt.UTC).date().isoformat(), "machine": machine, "sides": rows}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name, row in rows.items():
        print(
            f"{name:22} {row['bytes']:10,.0f} bytes a row {row['add']:8.1f} us add"
            f" {row['sample']:9.1f} us sample"
        )


if __name__ == "__main__":
    measure(sys.argv[1]) if len(sys.argv) > 1 else main()
