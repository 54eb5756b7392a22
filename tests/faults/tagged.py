"""The rows that the entries of FAULTS are about.

Row t: obs = t, action = t, reward = 2^t, next_obs = t + 0.5, neither terminated nor truncated. With
gamma = 1/2 each of the k steps of a window that starts at t is worth 2^t: its return is k 2^t.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relive import Field, Proportional, ReplayBuffer, Uniform
from relive.ops import words as w
from relive.storage import ring

if TYPE_CHECKING:
    from collections.abc import Iterable

FIELDS = {"obs": Field(), "action": Field((), torch.int64)}
BYTES = {"obs": Field((), torch.uint8), "action": Field((), torch.uint8)}


def uniform(capacity: int, kernels: str = "cpu", **settings: Any) -> ReplayBuffer:
    settings.setdefault("fields", FIELDS)
    return ReplayBuffer(capacity, sampler=Uniform(), kernels=kernels, gamma=0.5, **settings)


def prioritized(
    capacity: int, kernels: str = "cpu", n_step: int = 1, num_envs: int = 1, **sampler: Any
) -> ReplayBuffer:
    """The leaf is the error: alpha = 1 and eps = 0, unless said otherwise."""
    return ReplayBuffer(
        capacity,
        FIELDS,
        sampler=Proportional(**{"alpha": 1.0, "eps": 0.0, **sampler}),
        n_step=n_step,
        num_envs=num_envs,
        gamma=0.5,
        autoreset="disabled",
        kernels=kernels,
    )


def row(t: float, *, terminated: bool = False, truncated: bool = False) -> dict[str, Any]:
    return {
        "obs": float(t),
        "action": int(t),
        "reward": 2.0**t,
        "next_obs": t + 0.5,
        "terminated": terminated,
        "truncated": truncated,
    }


def write(
    buffer: ReplayBuffer, ts: Iterable[int], *, terminated: Any = (), truncated: Any = ()
) -> ReplayBuffer:
    """Rows ts, one `add` each."""
    for t in ts:
        buffer.add(**row(t, terminated=t in terminated, truncated=t in truncated))
    return buffer


def rows(ts: Iterable[int]) -> dict[str, Any]:
    """Rows ts as the arguments of one `extend`."""
    t = np.array(ts, float)
    return {
        "obs": t,
        "action": t.astype(np.int64),
        "reward": 2.0 ** (t % 30),
        "next_obs": t + 0.5,
        "terminated": np.zeros(len(t), bool),
    }


def held(buffer: ReplayBuffer) -> dict[float, tuple[float, float, float, bool]]:
    """Start of each row held -> its return, discount, next_obs and terminated, oldest first."""
    if not len(buffer):
        return {}
    batch = buffer.rows(buffer.live_ids())
    columns = (batch.reward, batch.discount, batch.next_obs, batch.terminated)
    values = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(batch.obs.tolist(), values, strict=True))


def drawn(buffer: ReplayBuffer, draws: int, batch_size: int = 1000) -> Counter[float]:
    """How often each start comes up."""
    counts: Counter[float] = Counter()
    for _ in range(draws // batch_size):
        counts.update(buffer.sample(batch_size).obs.tolist())
    return counts


def by_slot(buffer: ReplayBuffer) -> list[float]:
    """The obs in each slot that holds a row."""
    ids = buffer.live_ids()
    slots = ring.slots_of(buffer._state, ids)
    found = dict(zip(slots.tolist(), buffer.rows(ids).obs.tolist(), strict=True))
    return [found[slot] for slot in sorted(found)]


def leaves(buffer: ReplayBuffer) -> list[float]:
    """Leaves of the rows held, oldest first."""
    return buffer.priorities(buffer.live_ids()).tolist()


def root(buffer: ReplayBuffer) -> float:
    """Sum of all leaves, as the tree has it."""
    return buffer._state.word(w.TOTAL) * 2.0 ** -buffer._state.word(w.SCALE)


def share(buffer: ReplayBuffer, row_id: int) -> float:
    """P of a row."""
    return float(buffer.priorities([row_id])) / root(buffer)
