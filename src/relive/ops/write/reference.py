"""Writing steps: windows are folded in a lane per environment and become rows of the ring.

A lane holds the last n - 1 steps of its episode. When a step makes a window of n, the window's
first step becomes a row; when a step ends the episode, every step still waiting becomes one, with
windows of n - 1 ... 1 steps.

    reward    sum_{j<k} gamma^j r_{t+j} of the k steps in the window
    discount  gamma^k, 0 if terminated
    next_obs, terminated, truncated: of the window's last step
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from relive.fields import LAST_LINK
from relive.ops import words as w
from relive.ops.pack.reference import pack
from relive.ops.tree import reference as tree
from relive.ops.window.reference import ring_range

if TYPE_CHECKING:
    from relive.ops.pack.reference import Column
    from relive.ops.state import State


def write(state: State, steps: Tensor) -> None:
    """Write one step of every lane.

    Args:
        steps: uint8 [E, row_bytes], packed as rows; discount and links need not be filled in.
    """
    first_id = state.word(w.NEXT_ID)
    for lane, step in enumerate(steps):
        _take(state, lane, step)
    _set_leaves(state, first_id)


def extend(
    state: State,
    columns: list[Column],
    count: int,
    lanes: range,
    staging: Tensor,  # noqa: ARG001 - only faster with it
    *,
    ready_made: bool,
    close: bool,
) -> None:
    """Write many steps, those of all `lanes` at one time before those of the next.

    Args:
        columns: what the steps are made of, see `pack`.
        count: steps in all.
        staging: uint8 [at least one row, row_bytes]; may be used, means nothing afterwards.
        ready_made: the steps are finished rows (discount filled in): stored as they are, unlinked.
        close: end the episodes of these lanes afterwards, as `flush` does.
    """
    first_id = state.word(w.NEXT_ID)
    steps = torch.zeros(count, state.rows.shape[1], dtype=torch.uint8, device=state.rows.device)
    pack(steps, columns)
    for i, step in enumerate(steps):
        lane = lanes[i % len(lanes)]
        if ready_made:
            _commit(state, lane, step, linked=False)
        else:
            _take(state, lane, step)
    if close:
        for lane in lanes:
            _close(state, lane)
    _set_leaves(state, first_id)


def flush(state: State, lanes: range) -> None:
    """End the episodes of some lanes here, as truncated: what waits becomes rows."""
    first_id = state.word(w.NEXT_ID)
    for lane in lanes:
        _close(state, lane)
    _set_leaves(state, first_id)


def _take(state: State, lane: int, step: Tensor) -> None:
    if state.lanes[lane, w.LANE_RESET]:
        # Gymnasium's next-step autoreset: the action was ignored, this is no transition
        state.lanes[lane, w.LANE_RESET] = 0
        state.words[w.RESET_ROWS] += 1
    else:
        _push(state, lane, step)


def _push(state: State, lane: int, step: Tensor) -> None:
    waiting = int(state.lanes[lane, w.LANE_COUNT])
    state.pending[lane, (int(state.lanes[lane, w.LANE_START]) + waiting) % state.word(w.N_STEP)] = (
        step
    )
    state.lanes[lane, w.LANE_COUNT] += 1
    terminated, truncated = _flags(state, step)
    if terminated or truncated:
        _emit_all(state, lane)
        if state.word(w.AUTORESET) == w.AUTORESET_NEXT_STEP:
            state.lanes[lane, w.LANE_RESET] = 1
    elif waiting + 1 == state.word(w.N_STEP):
        _emit_first(state, lane)


def _close(state: State, lane: int) -> None:
    count, start = int(state.lanes[lane, w.LANE_COUNT]), int(state.lanes[lane, w.LANE_START])
    newest = int(state.lanes[lane, w.LANE_LAST])
    if count:
        last = state.pending[lane, (start + count - 1) % state.word(w.N_STEP)]
        last[state.word(w.TRUNCATED_OFFSET)] = 1
    if _is_live(state, newest):  # the full window that ends with the same step
        state.rows[_slot(state, newest), state.word(w.TRUNCATED_OFFSET)] = 1
    _emit_all(state, lane)
    state.lanes[lane, w.LANE_RESET] = 0


def _emit_all(state: State, lane: int) -> None:
    while state.lanes[lane, w.LANE_COUNT]:
        _emit_first(state, lane)
    state.lanes[lane, w.LANE_LAST] = -1


def _emit_first(state: State, lane: int) -> None:
    """Turn the oldest waiting step of a lane into a row."""
    n, count = state.word(w.N_STEP), int(state.lanes[lane, w.LANE_COUNT])
    start = int(state.lanes[lane, w.LANE_START])
    window = [state.pending[lane, (start + k) % n] for k in range(count)]
    row, last = window[0].clone(), window[-1]
    gamma, reward = float(state.gammas[1]), 0.0
    for step in reversed(window):
        reward = float(_float(step, state.word(w.REWARD_OFFSET))) + gamma * reward
    if n == 1:  # nothing to fold: -0.0 keeps its sign
        reward = float(_float(row, state.word(w.REWARD_OFFSET)))
    terminated, truncated = _flags(state, last)
    _float(row, state.word(w.REWARD_OFFSET)).fill_(reward)
    _float(row, state.word(w.DISCOUNT_OFFSET)).fill_(
        0.0 if terminated else float(state.gammas[count])
    )
    row[state.word(w.TERMINATED_OFFSET)] = int(terminated)
    row[state.word(w.TRUNCATED_OFFSET)] = int(truncated)
    begin = state.word(w.NEXT_OFFSET)
    row[begin : begin + state.word(w.NEXT_BYTES)] = last[begin : begin + state.word(w.NEXT_BYTES)]
    state.lanes[lane, w.LANE_START] = (start + 1) % n
    state.lanes[lane, w.LANE_COUNT] = count - 1
    _commit(state, lane, row, linked=True)


def _commit(state: State, lane: int, row: Tensor, *, linked: bool) -> None:
    """Give a finished row the next id and put it into the ring."""
    row_id = state.word(w.NEXT_ID)
    slot = _slot(state, row_id)
    if state.word(w.TRACK_REUSE):
        if _is_live(state, row_id - state.word(w.RING_CAPACITY)):
            state.reuse_counts[int(state.uses[slot]).bit_length()] += 1
        state.uses[slot] = 0
    state.words[w.NEXT_ID] += 1
    previous = int(state.lanes[lane, w.LANE_LAST]) if linked else -1
    distance = row_id - previous if previous >= 0 else 0
    if distance > LAST_LINK:
        distance = 0
    _links(row).copy_(torch.tensor([lane, distance, 0]))
    state.rows[slot] = row
    if distance and _is_live(state, previous):
        _links(state.rows[_slot(state, previous)])[2] = distance
    if linked:
        state.lanes[lane, w.LANE_LAST] = row_id


def _set_leaves(state: State, first_id: int) -> None:
    """Give the rows written since `first_id` the priority of new rows."""
    if state.word(w.WEIGHTING) == w.UNIFORM or state.word(w.NEXT_ID) == first_id:
        return
    first_live = max(first_id, state.word(w.NEXT_ID) - state.word(w.RING_CAPACITY))
    slots = torch.tensor(
        [_slot(state, row_id) for row_id in range(first_live, state.word(w.NEXT_ID))]
    )
    if state.word(w.NEW_PRIORITY) == w.MAX_CURRENT:  # what is overwritten lives no more
        tree.set_leaves(state, slots, torch.zeros(len(slots)))
    tree.set_leaves(state, slots, torch.full((len(slots),), tree.new_leaf(state)))
    if state.word(w.WEIGHTING) == w.RANKED:
        state.errors[slots] = torch.inf


def _slot(state: State, row_id: int) -> int:
    ring = (row_id - state.word(w.BASE_ID)) % state.word(w.RING_CAPACITY)
    return state.word(w.RING_START) + ring


def _is_live(state: State, row_id: int) -> bool:
    oldest, stop = ring_range(state)
    return oldest <= row_id < stop


def _flags(state: State, step: Tensor) -> tuple[bool, bool]:
    return bool(step[state.word(w.TERMINATED_OFFSET)]), bool(step[state.word(w.TRUNCATED_OFFSET)])


def _float(row: Tensor, offset: int) -> Tensor:
    return row[offset : offset + 4].view(torch.float32)


def _links(row: Tensor) -> Tensor:
    return row[:12].view(torch.int32)  # lane, prev, next
