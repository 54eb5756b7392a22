"""Folding steps into rows, in Numba, and linking the rows of an episode.

n  steps folded into one row
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from relive.fields import LAST_LINK
from relive.ops import words as w
from relive.ops.compiled import (
    byte_pointer,
    copy_bytes,
    float32_pointer,
    float64_pointer,
    helper,
    int32_pointer,
    int64_pointer,
)
from relive.ops.nodes.cpu import bit_length
from relive.ops.window.cpu import ring_slot


@helper
def gammas_of(words: Any) -> Any:
    """gamma^k."""
    return carray(float64_pointer(words[w.GAMMAS]), words[w.N_STEP] + 1)


@helper
def float_at(address: Any) -> Any:
    """A float32 in memory, as an array of one."""
    return carray(float32_pointer(address), 1)


@helper
def flag_at(address: Any) -> Any:
    """A byte in memory, as an array of one."""
    return carray(byte_pointer(address), 1)


@helper
def row_at(words: Any, row_id: Any) -> Any:
    """Address of the slot of an id."""
    return words[w.ROWS] + ring_slot(words, row_id) * words[w.ROW_BYTES]


@helper
def has_ended(words: Any, row: Any) -> Any:
    """Whether a step is the last of its episode."""
    terminated = flag_at(row + words[w.TERMINATED_OFFSET])[0]
    return (terminated | flag_at(row + words[w.TRUNCATED_OFFSET])[0]) != 0


@helper
def discount_one(words: Any, row: Any) -> None:
    """Fill in the discount of a single step."""
    terminated = flag_at(row + words[w.TERMINATED_OFFSET])[0]
    discount = np.float32(0) if terminated else np.float32(gammas_of(words)[1])
    float_at(row + words[w.DISCOUNT_OFFSET])[0] = discount


@helper
def retire(words: Any, row_id: Any) -> None:
    """Count how often the row was drawn whose slot `row_id` takes, if there is one."""
    slot = ring_slot(words, row_id)
    uses = carray(int32_pointer(words[w.USES]), words[w.CAPACITY])
    if row_id - words[w.RING_CAPACITY] >= max(words[w.BASE_ID], words[w.OLDEST_ID]):
        counts = carray(int64_pointer(words[w.REUSE_COUNTS]), w.HISTOGRAM_BINS)
        counts[bit_length(np.int64(uses[slot]))] += 1
    uses[slot] = 0


@helper
def links_of(row: Any) -> Any:
    """Lane, distance to the row before in the same episode, and to the one after."""
    return carray(int32_pointer(row), 3)


@helper
def distance_between(row_id: Any, previous: Any) -> Any:
    """What a link to the row before holds; 0 if there is none (-1), or it is too far away."""
    distance = row_id - previous if previous >= 0 else 0
    return distance if distance <= LAST_LINK else 0


@helper
def link_back(words: Any, row: Any, row_id: Any, previous: Any) -> None:
    """Tell the row before a new one, if it is still held, how far away its successor is."""
    distance = distance_between(row_id, previous)
    first = max(words[w.BASE_ID], words[w.OLDEST_ID])
    if distance > 0 and distance < words[w.RING_CAPACITY] and previous >= first:
        before = row - distance * words[w.ROW_BYTES]
        if before < words[w.ROWS] + words[w.RING_START] * words[w.ROW_BYTES]:
            before += words[w.RING_CAPACITY] * words[w.ROW_BYTES]
        links_of(before)[2] = distance


@helper
def place(words: Any, lane: Any, row: Any, row_id: Any, distance: Any, following: Any) -> None:
    """Make what lies in the slot of an id its row, with links to its lane's rows before and after.

    Args:
        distance, following: in ids; 0: there is none.
    """
    if words[w.TRACK_REUSE]:
        retire(words, row_id)
    links = links_of(row)
    links[0] = lane
    links[1] = distance
    links[2] = following


@helper
def emit(words: Any, lane: Any, lane_words: Any, steps: Any, start: Any, count: Any) -> None:
    """Fold the `count` steps from `start` on, in a ring of n at address `steps`, into one row."""
    n = words[w.N_STEP]
    row_bytes = words[w.ROW_BYTES]
    gammas = gammas_of(words)
    last = steps + (start + count - 1) % n * row_bytes
    reward = 0.0
    for k in range(count - 1, -1, -1):
        step = steps + (start + k) % n * row_bytes
        reward = np.float64(float_at(step + words[w.REWARD_OFFSET])[0]) + gammas[1] * reward
    terminated = flag_at(last + words[w.TERMINATED_OFFSET])[0]
    truncated = flag_at(last + words[w.TRUNCATED_OFFSET])[0]
    row = row_at(words, words[w.NEXT_ID])
    copy_bytes(row, steps + start * row_bytes, row_bytes)
    float_at(row + words[w.REWARD_OFFSET])[0] = np.float32(reward)
    float_at(row + words[w.DISCOUNT_OFFSET])[0] = (
        np.float32(0) if terminated else np.float32(gammas[count])
    )
    flag_at(row + words[w.TERMINATED_OFFSET])[0] = terminated
    flag_at(row + words[w.TRUNCATED_OFFSET])[0] = truncated
    if count > 1:
        copy_bytes(row + words[w.NEXT_OFFSET], last + words[w.NEXT_OFFSET], words[w.NEXT_BYTES])
    row_id = words[w.NEXT_ID]
    words[w.NEXT_ID] += 1
    previous = lane_words[w.LANE_LAST]
    place(words, lane, row, row_id, distance_between(row_id, previous), 0)
    link_back(words, row, row_id, previous)
    lane_words[w.LANE_LAST] = row_id
