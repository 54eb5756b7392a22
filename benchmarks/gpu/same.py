"""What is required of two buffers that lived the same life, and of anything else."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from relive import Batch, ReplayBuffer

# Sums of floats, which a GPU takes in another order: all else is the same bit for bit.
IN_ANOTHER_ORDER = ("effective_sample_size", "priority_entropy")


def require_same_batch(ours: Batch, cpu: Batch) -> None:
    """Every field has the same bits."""
    for name in cpu.keys():  # noqa: SIM118 - a batch is no dict
        require_same_bits(f"{name} of a batch", ours[name], cpu[name])


def require_same_state(ours: ReplayBuffer, cpu: ReplayBuffer) -> None:
    """Rows, priorities and counters are the same; waits for the device."""
    ids = cpu.live_ids()
    require_same_bits("ids", ours.live_ids(), ids)
    require_same_batch(ours.all(), cpu.all())
    if cpu.prioritized:
        theirs = cpu.priorities(ids)
        require_same_bits("priorities", ours.priorities(ours.live_ids()), theirs)
    require_same_stats(ours.stats(wait=True), cpu.stats(wait=True))


def require_same_stats(ours: dict[str, Any], cpu: dict[str, Any]) -> None:
    """Every number is the same, but for the last bits of sums."""
    differ = [
        (name, ours.get(name), wanted)
        for name, wanted in cpu.items()
        if not _same_number(ours.get(name), wanted, name in IN_ANOTHER_ORDER)
    ]
    require(not differ, f"stats differ: {differ}")


def _same_number(ours: Any, wanted: Any, in_another_order: bool) -> bool:
    if in_another_order and isinstance(ours, float) and isinstance(wanted, float):
        return math.isclose(ours, wanted, rel_tol=1e-9)
    return bool(ours == wanted)


def require_same_bits(what: str, ours: torch.Tensor, theirs: torch.Tensor) -> None:
    """Equal, NaN to NaN too."""
    a, b = (x.cpu().contiguous().view(-1).view(torch.uint8) for x in (ours, theirs))
    require(torch.equal(a, b), f"{what} differ")


def require(condition: bool, complaint: str) -> None:
    """Raise AssertionError unless it holds, however Python was started."""
    if not condition:
        raise AssertionError(complaint)
