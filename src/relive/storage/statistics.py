"""What has happened to a buffer since it was made, in numbers.

They are gathered on the device, without the host, into one vector that can be sent to it:

    words | age counts | reuse counts | sums of leaves l, of their squares, of l ln l (float64)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relive.ops import words as w
from relive.ops.window.reference import held_ids, slots_of
from relive.schedules import Linear

if TYPE_CHECKING:
    from relive.ops.state import State

USE_BITS = 31  # of a count of draws
AT_ONCE = 1 << 24  # leaves that are made float64 at the same time
COUNTERS = {
    "draws": w.SAMPLED_ROWS,
    "samples": w.SAMPLES,
    "priority_updates": w.UPDATED_ROWS,
    "bad_priorities": w.BAD_PRIORITIES,
    "stale_updates": w.STALE_UPDATES,
    "clamped_priorities": w.CLAMPED_PRIORITIES,
    "clipped_weights": w.CLIPPED_WEIGHTS,
    "out_of_range": w.OUT_OF_RANGE,
    "dropped_reset_rows": w.RESET_ROWS,
    "rescales": w.RESCALES,
    "sorts": w.SORTS,
    "range_rows_gone": w.RANGE_ROWS_GONE,
    "empty_samples": w.EMPTY_SAMPLES,
    "evicted_rows": w.EVICTED_ROWS,
    "progress": w.PROGRESS,
}


def gather(state: State) -> Tensor:
    """The numbers of a state, int64 on its device; the host reads none of them on CUDA."""
    parts = [state.words, state.age_counts, state.reuse_counts]
    if len(state.uses):  # slots without a row have 0 uses, and are taken off again by `stats`
        parts[2] = state.reuse_counts.clone()
        parts[2][: USE_BITS + 1] += _bins(state.uses)
    leaves = state.leaves
    if leaves.is_cpu and len(leaves):  # in the order of ids: the same rows give the same sums
        leaves = leaves[slots_of(state, held_ids(state))]
    parts.append(_moments(leaves).view(torch.int64))
    return torch.cat(parts)


def _bins(uses: Tensor) -> Tensor:
    """How many are 0, and how many in [2^(k-1), 2^k) for k = 1 ... USE_BITS."""
    at_least = [(uses >= 1 << k).sum() for k in range(USE_BITS)]
    falling = torch.stack([at_least[0].new_full((), len(uses)), *at_least])
    return falling - torch.cat([falling[1:], falling.new_zeros(1)])


def _moments(leaves: Tensor) -> Tensor:
    """Sum of leaves, of their squares, of l ln l, float64; leaves that are 0 add nothing."""
    sums = torch.zeros(3, dtype=torch.float64, device=leaves.device)
    for some in torch.split(leaves, AT_ONCE):
        wide = some.to(torch.float64)
        sums += torch.stack([wide.sum(), wide.square().sum(), torch.xlogy(wide, wide).sum()])
    return sums


def stats(numbers: Tensor) -> dict[str, Any]:
    """Counters since the buffer was made, and where its schedules stand.

    size, capacity             rows held, most rows held
    demonstrations             rows that are pinned
    added, draws               rows written, rows drawn (training and other)
    samples                    batches drawn
    priority_updates           priorities given, of which:
      bad_priorities             NaN or infinite
      stale_updates              for rows overwritten meanwhile
      clamped_priorities         outside [2^-40, 2^40]
    clipped_weights            above weight_clip
    out_of_range               values given that their stored dtype could not hold; not n-step
                               returns that become infinite as they are folded
    dropped_reset_rows         fake steps of a next-step autoreset
    sorts                      by rank
    range_rows_gone            rows asked for by sample_range that were overwritten
    empty_samples              batches of nothing, on CUDA, where they are not refused
    evicted_rows               rows dropped before their time, to keep frames of newer ones
    rescales                   changes of the mass scale, each a pass over the tree
    progress, beta             training samples so far, and beta there (None: not prioritized)
    max_priority               largest leaf any update has set (None: none yet)
    effective_sample_size      1 / sum P^2 over the rows held, by priority: as many rows of equal
                               priority would be drawn as evenly (None: not prioritized, or no rows)
    priority_entropy           -sum P ln P, in nats; ln(size) if all are equal (None: the same)
    age_counts                 rows written after a row when it was drawn  (with track_reuse:
    reuse_counts               draws of each row so far, held or not        bin 0 counts 0, bin k
                               what lies in [2^(k-1), 2^k); rows that `clear` dropped, or a load
                               into less capacity, are not among them)

    Args:
        numbers: what `gather` gave, on the CPU.
    """
    words: list[int] = numbers[: w.NUM_WORDS].tolist()
    reals: list[float] = numbers[: w.NUM_WORDS].view(torch.float64).tolist()
    demonstrations = words[w.DEMO_COUNT] + words[w.DEMO_ADDED]
    first = max(words[w.BASE_ID], words[w.OLDEST_ID])
    oldest = max(first, words[w.NEXT_ID] - words[w.RING_CAPACITY])
    size = words[w.NEXT_ID] - oldest + demonstrations
    prioritized = words[w.WEIGHTING] != w.UNIFORM
    result: dict[str, Any] = {
        "size": size,
        "demonstrations": demonstrations,
        "capacity": words[w.CAPACITY],
        "added": words[w.NEXT_ID],
        **{name: words[word] for name, word in COUNTERS.items()},
        "beta": None,
        "max_priority": reals[w.MAX_LEAF] or None,
        **_spread(numbers[-3:].view(torch.float64).tolist()),
    }
    if prioritized:
        start, end, steps = reals[w.BETA_START : w.BETA_STEPS + 1]
        result["beta"] = Linear(start, end, int(steps))(words[w.PROGRESS])
    if words[w.TRACK_REUSE]:
        counts = numbers[w.NUM_WORDS : w.NUM_WORDS + 2 * w.HISTOGRAM_BINS].tolist()
        result["age_counts"] = counts[: w.HISTOGRAM_BINS]
        result["reuse_counts"] = counts[w.HISTOGRAM_BINS :]
        result["reuse_counts"][0] -= words[w.CAPACITY] - size
    return result


def _spread(moments: list[float]) -> dict[str, float | None]:
    """How evenly priorities are spread over the rows held.

    With S_k = sum of leaf^k: effective sample size S_1^2 / S_2 (Kish 1965), entropy
    ln S_1 - (sum of leaf ln leaf) / S_1.
    """
    total, squares, logs = moments
    if total == 0:
        return {"effective_sample_size": None, "priority_entropy": None}
    return {
        "effective_sample_size": total**2 / squares,
        "priority_entropy": math.log(total) - logs / total,
    }
