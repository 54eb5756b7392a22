"""What a tee costs an `add`, and how fast episodes are appended and read, beside a plain write.

    python benchmarks/store_speed.py --rounds 9 > benchmarks/results/store_speed.json

`add`: two buffers of 17 + 17 + 6 floats take the same steps in turn, block by block, one of them
with a tee; the difference is that of each pair of blocks, writing to the files included.
`append`: an episode of 256 MB, beside a plain write of as many bytes as it takes on disk; both into
new files and down to the disk (fsync), the ratio is that of each pair. `read`: all of it again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from relive import Field, ReplayBuffer, TrajectoryStore

FIELDS = {"obs": Field((17,)), "action": Field((6,))}
CHUNK = 1 << 23


def block_of_adds(buffer: ReplayBuffer, steps: list[dict[str, Any]]) -> float:
    """Microseconds a call."""
    start = time.perf_counter()
    for step in steps:
        buffer.add(**step)
    return (time.perf_counter() - start) / len(steps) * 1e6


def some_steps(count: int, length: int) -> list[dict[str, Any]]:
    """Arguments of `add`, episodes of some length."""
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((count + 1, 17), np.float32)
    action = rng.standard_normal((count, 6), np.float32)
    return [
        {
            "obs": obs[i],
            "action": action[i],
            "reward": 1.0,
            "next_obs": obs[i + 1],
            "terminated": i % length == length - 1,
            "truncated": False,
        }
        for i in range(count)
    ]


def adds(rounds: int, length: int, folder: Path) -> dict[str, Any]:
    """With and without a tee, in turn."""
    plain, teed = ReplayBuffer(100_000, FIELDS), ReplayBuffer(100_000, FIELDS)
    steps = some_steps(20_000, length)
    with TrajectoryStore(folder / f"adds-{length}", FIELDS) as store:
        teed.tee(store)
        block_of_adds(plain, steps)
        block_of_adds(teed, steps)
        pairs = []
        for round_ in range(rounds):
            order = (plain, teed) if round_ % 2 else (teed, plain)
            times = {buffer: block_of_adds(buffer, steps) for buffer in order}
            pairs.append((times[plain], times[teed]))
        stored = store.stats()
        row_bytes = plain.memory().row_bytes
    return {
        "episode_steps": length,
        "add_microseconds": round(statistics.median(p for p, _ in pairs), 2),
        "tee_microseconds": [round(t - p, 2) for p, t in pairs],
        "tee_microseconds_median": round(statistics.median(t - p for p, t in pairs), 2),
        "bytes_a_step": round(stored["bytes"] / stored["steps"], 1),
        "bytes_a_row": row_bytes,
    }


def write(path: Path, nbytes: int) -> float:
    """Seconds of a plain write."""
    chunk = memoryview(np.random.default_rng(0).bytes(CHUNK))
    start = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for first in range(0, nbytes, CHUNK):
            file.write(chunk[: min(CHUNK, nbytes - first)])
        os.fsync(file.fileno())
    return time.perf_counter() - start


def appends(rounds: int, folder: Path, steps: int, obs_floats: int) -> dict[str, Any]:
    """A large episode, beside a plain write."""
    rng = np.random.default_rng(0)
    obs = rng.standard_normal((steps + 1, obs_floats), np.float32)
    numbers = np.zeros(steps, np.float32)
    fields = {"obs": Field((obs_floats,)), "action": Field()}
    ratios, appended, plain, read = [], [], [], []
    for round_ in range(rounds):
        with TrajectoryStore(folder / f"append-{round_}", fields) as store:
            start = time.perf_counter()
            store.append(
                obs=obs[:-1],
                action=numbers,
                reward=numbers,
                next_obs=obs[1:],
                terminated=np.zeros(steps, bool),
            )
            store.flush(sync=True)
            seconds = time.perf_counter() - start
            nbytes = store.stats()["bytes"]
            start = time.perf_counter()
            store.episode(0).next_obs  # noqa: B018 - reads all of it
            read.append(nbytes / (time.perf_counter() - start) / 1e6)
        for path in store.path.iterdir():
            path.unlink()
        other = write(folder / "plain", nbytes)
        (folder / "plain").unlink()
        appended.append(nbytes / seconds / 1e6)
        plain.append(nbytes / other / 1e6)
        ratios.append(other / seconds)
    return {
        "observation_floats": obs_floats,
        "bytes": nbytes,
        "append_megabytes_a_second": [round(x) for x in appended],
        "plain_megabytes_a_second": [round(x) for x in plain],
        "read_megabytes_a_second": [round(x) for x in read],
        "speed_ratio": round(statistics.median(ratios), 3),
    }


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        print(
            json.dumps(
                {
                    "add": [adds(options.rounds, length, folder) for length in (1000, 200, 20)],
                    "append": [
                        appends(options.rounds, folder, 1 << 26 >> bits, 1 << bits)
                        for bits in (6, 12)
                    ],
                },
                indent=1,
            )
        )


if __name__ == "__main__":
    main()
