"""Memory of the process while a full buffer is written, drawn from and saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relive import Field, Proportional, RankBased, ReplayBuffer

FIELDS = {"obs": Field((8,)), "action": Field()}
CAPACITY, BATCH = 10_000, 256
ROUNDS, WRITES = 100_000, 10  # a million rows
WARM_UP = ROUNDS // 5
SAVES = 20
SAMPLERS = {"proportional": Proportional(), "rank": RankBased(resort_every=2000)}


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def steps(count: int) -> dict[str, Any]:
    obs = np.ones((count, 8), np.float32)
    flags = np.zeros(count, bool)
    values = np.arange(count, dtype=np.float32)
    given = {"obs": obs, "next_obs": obs, "action": values, "reward": values}
    return {**given, "terminated": flags, "truncated": flags}


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize("saving", [False, True], ids=["never saved", "saved now and then"])
@pytest.mark.parametrize("reused", [False, True], ids=["fresh batches", "one batch"])
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_F57_a_million_writes_and_100_000_rounds_take_no_memory(
    sampler: Any, reused: bool, saving: bool, tmp_path: Path
) -> None:
    buffer = ReplayBuffer(CAPACITY, FIELDS, sampler=sampler, n_step=3, track_reuse=True)
    given = steps(WRITES)
    errors = np.random.default_rng(0).normal(size=(64, BATCH)).astype(np.float32)
    out = buffer.empty_batch(BATCH) if reused else None
    seen = []
    for number in range(ROUNDS):
        buffer.extend(**given)
        batch = buffer.sample(BATCH, out=out)
        buffer.update_priorities(batch.ids, errors[number % 64])
        if saving and number % (ROUNDS // SAVES) == 0:
            buffer.save(tmp_path / "saved")
        if number >= WARM_UP and number % 1000 == 0:
            seen.append(resident())
    assert buffer.stats()["added"] == ROUNDS * WRITES
    assert max(seen) <= seen[0] * 1.01
    buffer.check()
