"""Time of a sample at 10^5 and at 10^7 rows, for every weighting, window and with demonstrations.

    python benchmarks/sample_time.py

Rows have fields of one byte, so that 10^7 of them fit; what is timed is therefore the draw, not the
copying. Priorities are spread over two decades. All buffers with one sampler take turns, one batch
a turn; the median counts, in CPU time of this thread. As many turns as a sweep has updates (1000)
see every size of the shrinking window once. The sort by rank is timed by itself: between sorts a
sample knows nothing of it.

Writes results/sample_time.json.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import platform
import time
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from relive import Field, Proportional, RankBased, Recent, ReplayBuffer, Uniform

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (100_000, 10_000_000)
BATCH = 256
RESORT_EVERY = RankBased().resort_every
DEMONSTRATIONS = 0.1  # of all rows
FIELDS = {"obs": Field((), torch.uint8), "action": Field((), torch.uint8)}
SAMPLERS = {"uniform": Uniform(), "proportional": Proportional(), "rank": RankBased()}
POLICIES = {
    "all rows": (None, False),
    "recent": (Recent(), False),
    "demonstrations": (None, True),
    "both": (Recent(), True),
}
RESULTS = Path(__file__).parent / "results" / "sample_time.json"


def filled(size: int, sampler: str, policy: str) -> ReplayBuffer:
    """A full ring whose newest rows lie on both sides of its seam, sorted if it has ranks."""
    window, pins = POLICIES[policy]
    buffer = ReplayBuffer(size, FIELDS, sampler=SAMPLERS[sampler], window=window)
    pinned = int(size * DEMONSTRATIONS) if pins else 0
    write(buffer, pinned)
    if pins:
        buffer.pin_demonstrations(pinned)
    write(buffer, (size - pinned) + 1000)
    if buffer.prioritized:
        errors = 10 ** np.random.default_rng(0).uniform(-1, 1, size)
        buffer.update_priorities(buffer.live_ids(), errors)
    if buffer.sampler.ranked:
        sort(buffer)
    return buffer


def write(buffer: ReplayBuffer, count: int) -> None:
    """So many rows, all alike."""
    zeros = np.zeros(count, np.uint8)
    columns = dict.fromkeys(("obs", "action", "next_obs"), zeros)
    buffer.extend(**columns, reward=zeros.astype(np.float32), terminated=zeros > 0)


def sort(buffer: ReplayBuffer) -> None:
    """Update priorities, of one row, until that brings a sort."""
    newest = buffer.live_ids()[-1:]
    before = buffer.stats()["sorts"]
    while buffer.stats()["sorts"] == before:
        buffer.update_priorities(newest, [1.0])


def sampling(buffer: ReplayBuffer) -> Callable[[], object]:
    """A call that draws a batch."""
    out = buffer.empty_batch(BATCH)
    return lambda: buffer.sample(BATCH, out=out)


def quartiles(actions: list[Callable[[], object]], rounds: int) -> np.ndarray:
    """Microseconds of each action: lower quartile, median, upper quartile."""
    times = np.empty((rounds, len(actions)))
    for turn in times:
        for k, action in enumerate(actions):
            start = time.thread_time_ns()
            action()
            turn[k] = time.thread_time_ns() - start
    return np.quantile(times, [0.25, 0.5, 0.75], axis=0).T / 1000


def sort_nanoseconds_a_row(size: int, rounds: int = 5) -> float:
    """The median of a few sorts; errors of 256 rows change in between."""
    buffer = ReplayBuffer(size, FIELDS, sampler=RankBased(resort_every=1))
    write(buffer, size)
    rng = np.random.default_rng(0)
    buffer.update_priorities(buffer.live_ids(), 10 ** rng.uniform(-1, 1, size))
    times = []
    for _ in range(rounds):
        ids, errors = rng.integers(0, size, BATCH), 10 ** rng.uniform(-1, 1, BATCH)
        start = time.thread_time_ns()
        buffer.update_priorities(ids, errors)
        times.append(time.thread_time_ns() - start)
    return float(np.median(times)) / size


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    figures: dict[str, dict[str, object]] = {}
    print(f"{'microseconds a batch of 256':32} " + "".join(f"{size:>14,}" for size in SIZES))
    for sampler in SAMPLERS:
        cases = [(policy, size) for policy in POLICIES for size in SIZES]
        calls = [sampling(filled(size, sampler, policy)) for policy, size in cases]
        found = dict(zip(cases, quartiles(calls, options.rounds), strict=True))
        for policy in POLICIES:
            small, large = (found[policy, size][1] for size in SIZES)
            figures[f"{sampler}, {policy}"] = {
                "microseconds": {
                    str(size): found[policy, size].round(2).tolist() for size in SIZES
                },
                "ratio": round(large / small, 2),
            }
            name = f"{sampler}, {policy}"
            print(f"{name:32} {small:13.2f} {large:13.2f}    ratio {large / small:.2f}", flush=True)
    sorts = {}
    for size in SIZES:
        nanoseconds = sort_nanoseconds_a_row(size)
        share = nanoseconds * size / 1000 / RESORT_EVERY
        sorts[str(size)] = {
            "nanoseconds_a_row": round(nanoseconds, 1),
            "microseconds_an_update": round(share, 1),
        }
        print(
            f"a sort of {size:,} rows: {nanoseconds:.1f} ns a row; "
            f"one in {RESORT_EVERY} updates: {share:.1f} microseconds an update"
        )
    result = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {platform.system()}, Python {platform.python_version()}",
        "torch": version("torch"),
        "batch": BATCH,
        "rounds": options.rounds,
        "quartiles": figures,
        "sorts": sorts,
        "resort_every": RESORT_EVERY,
    }
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
