"""How fast a buffer is saved, beside a plain write of as many bytes, and what memory that takes.

    python benchmarks/save_speed.py --gigabytes 4 --rounds 5

Both end on the disk (fsync). Each round writes a file, then saves into a new folder; the ratio is
that of each pair.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from relive import Field, Proportional, ReplayBuffer

OBS = 20  # floats; rows of 192 bytes
CHUNK = 1 << 23


def filled(gigabytes: float) -> ReplayBuffer:
    """A full buffer of about so many gigabytes."""
    fields = {"obs": Field((OBS,)), "action": Field()}
    row_bytes = ReplayBuffer(1, fields).memory().row_bytes
    capacity = int(gigabytes * 1e9 / row_bytes)
    buffer = ReplayBuffer(capacity, fields, sampler=Proportional())
    rng = np.random.default_rng(0)
    for start in range(0, capacity, 1 << 18):
        count = min(1 << 18, capacity - start)
        obs = rng.standard_normal((count, OBS), np.float32)
        buffer.extend(
            obs=obs, action=obs[:, 0], reward=obs[:, 1], next_obs=obs, terminated=obs[:, 2] > 3
        )
    return buffer


def write(path: Path, nbytes: int) -> float:
    """Seconds of a plain write."""
    chunk = memoryview(np.random.default_rng(0).bytes(CHUNK))
    start = time.perf_counter()
    with path.open("wb") as file:
        for first in range(0, nbytes, CHUNK):
            file.write(chunk[: min(CHUNK, nbytes - first)])
        file.flush()
        os.fsync(file.fileno())
    return time.perf_counter() - start


def resident() -> int:
    """Most bytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=None)
    options = parser.parse_args()
    buffer = filled(options.gigabytes)
    before = resident()
    pairs = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            start = time.perf_counter()
            buffer.save(Path(folder) / "saved")
            saving = time.perf_counter() - start
            nbytes = sum(path.stat().st_size for path in (Path(folder) / "saved").iterdir())
            shutil.rmtree(Path(folder) / "saved")
            pairs.append((nbytes, saving, write(Path(folder) / "plain", nbytes)))
    print(
        json.dumps(
            {
                "bytes": pairs[0][0],
                "save_megabytes_a_second": [round(n / s / 1e6) for n, s, _ in pairs],
                "plain_megabytes_a_second": [round(n / p / 1e6) for n, _, p in pairs],
                "speed_ratio": round(statistics.median(p / s for _, s, p in pairs), 3),
                "extra_megabytes": round((resident() - before) / 1e6, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
