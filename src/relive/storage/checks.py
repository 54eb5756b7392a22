"""What must always be true of a state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from relive.errors import CorruptError, InputError
from relive.frames import room_of_rows
from relive.ops import words as w
from relive.ops.frames.reference import FRAMES_OF_ROW, frames_of_rows, oldest_frame
from relive.ops.state import CHANGING, CHANGING_FRAMES, FROM_SETTINGS, State
from relive.ops.tree.reference import masses
from relive.ops.tree.shape import CHILDREN, LEAVES_PER_NODE, level_sizes, lowest_total
from relive.ops.window.reference import held_ids, num_demonstrations, ring_range, slots_of

if TYPE_CHECKING:
    from torch import Tensor

SCALES = 300  # exponents of the mass scale are far within


def check(state: State) -> None:
    """Raise CorruptError with the first invariant that does not hold."""
    oldest, stop = ring_range(state)
    capacity = state.rows.shape[0]
    _require(0 <= state.word(w.BASE_ID) <= stop < 2**62, "base id lies between 0 and the next id")
    _require(0 <= state.word(w.OLDEST_ID) <= stop, "rows that were dropped have been written")
    demonstrations = num_demonstrations(state)
    _require(
        0 <= demonstrations <= state.word(w.RING_START) < capacity,
        "demonstrations lie in front of the ring",
    )
    _require(
        state.word(w.RING_START) + state.word(w.RING_CAPACITY) == capacity,
        "the ring has what demonstrations leave",
    )
    check_words(state)
    _check_lanes(state, stop)
    _check_links(state, oldest, stop)
    if state.keeps_frames:
        check_frame_words(state)
        _check_frames(state)
    if state.word(w.WEIGHTING) != w.UNIFORM:
        _check_tree(state)


def require_sound(state: State, tensors: dict[str, Tensor]) -> None:
    """Refuse tensors that no buffer like that of `state` can have.

    Raises:
        InputError: names what is wrong; nothing has changed.
    """
    state.require_fit(tensors)
    words = state.words.clone()
    words[CHANGING] = tensors["words"][CHANGING].to(words.device)
    frame_words = state.frame_words.clone()
    if state.keeps_frames:
        given = tensors["frame_words"][CHANGING_FRAMES]
        frame_words[CHANGING_FRAMES] = given.to(words.device)
    own = {"words": words, "frame_words": frame_words}
    own |= {name: getattr(state, name) for name in FROM_SETTINGS}
    taken = {
        name: tensors[name].to(tensor.device) if tensor.numel() else tensor
        for name, tensor in state.tensors().items()
        if name not in own
    }
    try:
        check(State(**own, **taken))
    except CorruptError as error:
        raise InputError(f"this is the state of no buffer: {error}") from None


def check_words(state: State) -> None:
    """Raise CorruptError unless ids, counters and what is carried on can be."""
    counters = state.words[[*range(w.SAMPLES, w.EVICTED_ROWS + 1), w.DRAWS, w.EVAL_DRAWS]]
    counted = (counters >= 0) & (counters < 2**62)
    _require(bool(counted.all()), "counters are not negative, and do not overflow")
    _require(0 <= state.word(w.PROGRESS) < 2**62, "progress is a number of samples")
    _require(0 <= state.word(w.SWEEP) < state.word(w.SWEEP_LENGTH), "a sweep ends")
    _require(0 <= state.word(w.UPDATES) < 2**62, "updates since the last sort have been counted")
    # sums of shares may be rounded up
    _require(0 <= state.real(w.DEMO_CARRY) <= 1, "no more than a row is owed to demonstrations")
    _require(0 <= state.real(w.MAX_LEAF) < math.inf, "the largest priority is finite")
    ids = state.word(w.DEMO_FIRST_ID), state.word(w.DEMO_COUNT)
    _require(min(ids) >= 0 and sum(ids) <= state.word(w.NEXT_ID), "demonstrations have ids")
    added = state.word(w.DEMO_ADDED), state.word(w.ADDED_FIRST_ID) - w.FIRST_ADDED_ID
    _require(min(added) >= 0 and sum(added) < 2**61, "added demonstrations have ids")
    _require(bool((state.uses >= 0).all()), "uses are counted")
    errors = state.errors
    _require(bool((errors >= 0).all()), "errors are not negative, nor NaN")


def _check_lanes(state: State, stop: int) -> None:
    counts, starts, last, resets = state.lanes.unbind(1)
    most = max(2, state.word(w.N_STEP))
    _require(bool(((counts >= 0) & (counts < most)).all()), "a lane holds fewer than n steps")
    inside = (starts >= 0) & (starts < state.word(w.N_STEP))
    _require(bool(inside.all()), "the steps of a lane begin inside of it")
    _require(bool(((last >= -1) & (last < stop)).all()), "the last row of a lane has been written")
    _require(bool(((resets == 0) | (resets == 1)).all()), "a fake step is due or not")


def check_frame_words(state: State) -> None:
    """Raise CorruptError unless frames can lie as their words say."""
    base, stop = state.frame_word(w.FRAME_BASE), state.frame_word(w.NEXT_FRAME)
    first, pinned = state.frame_word(w.DEMO_FIRST_FRAME), state.frame_word(w.FRAME_START)
    _require(0 <= base <= stop < 2**62, "ids of frames lie between 0 and the next")
    _require(min(first, pinned) >= 0 and first + pinned <= base, "pinned frames have ids")
    room = room_of_rows(state.word(w.CAPACITY))
    _require(pinned < room, "pinned frames leave room for others")


def _check_frames(state: State) -> None:
    """Every frame is there that a row, a step that waits or the next step of a lane needs."""
    n_step, stack = state.pending.shape[1], state.stacks.shape[1]
    places = torch.arange(n_step, device=state.lanes.device)
    counts, starts = state.lanes[:, w.LANE_COUNT, None], state.lanes[:, w.LANE_START, None]
    waits = (places - starts) % n_step < counts
    slots = slots_of(state, held_ids(state))
    for at in FRAMES_OF_ROW:
        _require(_are_kept(state, frames_of_rows(state, slots, at)), "a row has its frames")
        begin = state.frame_word(at)
        waiting = state.pending[waits, begin : begin + 8 * stack].view(torch.int64)
        _require(_are_kept(state, waiting), "a step that waits has its frames")
    _require(_are_kept(state, state.stacks[state.stacks != -1]), "a lane has its last frames")


def _are_kept(state: State, ids: Tensor) -> bool:
    pinned = ids - state.frame_word(w.DEMO_FIRST_FRAME)
    in_ring = (ids >= oldest_frame(state)) & (ids < state.frame_word(w.NEXT_FRAME))
    return bool((in_ring | (pinned >= 0) & (pinned < state.frame_word(w.FRAME_START))).all())


def _check_tree(state: State) -> None:
    capacity = state.rows.shape[0]
    _require(-SCALES < state.word(w.SCALE) < SCALES, "the exponent of the mass scale is small")
    live = torch.zeros(len(state.leaves), dtype=torch.bool, device=state.leaves.device)
    live[slots_of(state, held_ids(state))] = True
    leaves = state.leaves
    bounded = (leaves == 0) | ((leaves >= w.SMALLEST_LEAF) & (leaves <= w.LARGEST_LEAF))
    _require(bool(bounded.all()), "a leaf is 0 or in [2^-40, 2^40]")
    _require(bool((leaves[~live] == 0).all()), "a slot without a row has leaf 0")
    children = masses(leaves, state.word(w.SCALE)).view(-1, LEAVES_PER_NODE).sum(1)
    smallest = torch.where(leaves > 0, leaves, torch.inf).view(-1, LEAVES_PER_NODE).amin(1)
    largest = leaves.view(-1, LEAVES_PER_NODE).amax(1)
    start = 0
    for level, size in enumerate(level_sizes(capacity)):
        nodes = slice(start, start + len(children))
        _require(
            torch.equal(state.sums[nodes], children),
            f"sums of level {level} equal those of their children",
        )
        _require(
            not len(state.mins) or torch.equal(state.mins[nodes], smallest),
            f"minima of level {level} are right",
        )
        _require(
            not len(state.maxs) or torch.equal(state.maxs[nodes], largest),
            f"maxima of level {level} are right",
        )
        padded = slice(start, start + size)
        children = state.sums[padded].view(-1, CHILDREN).sum(1)
        if len(state.mins):
            smallest = state.mins[padded].view(-1, CHILDREN).amin(1)
        if len(state.maxs):
            largest = state.maxs[padded].view(-1, CHILDREN).amax(1)
        start += size
    total = state.word(w.TOTAL)
    _require(int(children.sum()) == total, "the total is the sum of the highest nodes")
    exact = float(leaves.to(torch.float64).sum()) * 2.0 ** state.word(w.SCALE)
    _require(
        abs(total - exact) <= len(leaves) + 1e-6 * exact, "the total is that of the leaves"
    )  # sums that overflow agree with each other
    _require(
        total == 0 or total.bit_length() > lowest_total(capacity),
        "the total is large enough to be exact",
    )
    _require(total.bit_length() <= w.HIGHEST_TOTAL + 1, "the total is small enough not to overflow")


def _check_links(state: State, oldest: int, stop: int) -> None:
    """A row and the one it links to point at each other and belong to one lane."""
    ids = torch.arange(oldest, stop, device=state.words.device)
    if not len(ids):
        return
    links = state.rows[:, :12].view(torch.int32).to(ids.device, torch.int64)
    lane, previous, following = links[slots_of(state, ids)].unbind(1)
    lanes = state.word(w.NUM_LANES)
    _require(bool(((lane >= 0) & (lane < lanes)).all()), "a row's lane exists")
    linked = (following > 0) & (ids + following < stop)
    _require(bool((ids + following < stop).all()), "a row's next row has been written")
    target = links[slots_of(state, (ids + following)[linked])]
    _require(torch.equal(target[:, 1], following[linked]), "a row's next row links back")
    _require(torch.equal(target[:, 0], lane[linked]), "a row's next row is of its lane")
    linked = (previous > 0) & (ids - previous >= oldest)
    source = links[slots_of(state, (ids - previous)[linked])]
    _require(torch.equal(source[:, 2], previous[linked]), "a row's previous row links to it")


def _require(holds: bool, invariant: str) -> None:
    if not holds:
        raise CorruptError(f"broken invariant: {invariant}")
