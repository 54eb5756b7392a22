"""Which row is in which slot, and what must always be true.

Ids count the rows ever written. The ring holds the newest of those written since it was last
cleared; `ops.window` says in which slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relive.arrays import as_tensor
from relive.errors import InputError
from relive.ops import words as w
from relive.ops.state import CHANGING_FRAMES
from relive.ops.tree.shape import level_sizes, lowest_total
from relive.ops.window.reference import held_ids, num_demonstrations, ring_range, slots_of
from relive.storage.memory import ROW_ALIGNMENT
from relive.storage.rings import ring_of_frames

if TYPE_CHECKING:
    from relive.batch import BatchLayout
    from relive.fields import Column, RowLayout
    from relive.frames import FrameLayout
    from relive.ops.dispatch import Operations
    from relive.ops.state import State


def initialise(
    state: State, row: RowLayout, batch: BatchLayout, *, gamma: float, autoreset: int
) -> None:
    """Write into the words of new memory what does not change any more, then clear it."""
    words = state.words
    capacity, row_bytes = state.rows.shape
    words[w.CAPACITY], words[w.ROW_BYTES] = capacity, row_bytes
    words[w.NEXT_OFFSET], words[w.NEXT_BYTES] = row.next_offset, row.next_bytes
    words[w.NUM_COLUMNS] = len(batch.gathered)
    words[w.NUM_LANES], words[w.N_STEP] = state.pending.shape[:2]
    words[w.AUTORESET] = autoreset
    words[w.TRACK_REUSE] = int(len(state.uses) > 0)
    words[w.REWARD_OFFSET] = row.columns["reward"].offset
    words[w.DISCOUNT_OFFSET] = row.columns["discount"].offset
    words[w.TERMINATED_OFFSET] = row.columns["terminated"].offset
    words[w.TRUNCATED_OFFSET] = row.columns["truncated"].offset
    words[w.NUM_LEAVES] = len(state.leaves)
    words[w.SWEEP_LENGTH] = 1
    words[w.ADDED_FIRST_ID] = w.FIRST_ADDED_ID
    if len(state.leaves):
        sizes = level_sizes(capacity)
        words[w.NUM_LEVELS] = len(sizes)
        words[w.LEVEL_0 + 1 : w.LEVEL_0 + 1 + len(sizes)] = torch.tensor(
            sizes, device=words.device
        ).cumsum(0)
    columns = [column_words(column, row.columns[column.name]) for column in batch.gathered]
    state.columns.copy_(torch.tensor(columns, device=words.device))
    state.gammas.copy_(
        torch.tensor(
            [gamma**k for k in range(len(state.gammas))], dtype=torch.float64, device=words.device
        )
    )
    clear(state)


def column_words(column: Column, stored: Column) -> tuple[int, int, int, int, int]:
    """What kernels are told of a gathered column, and where a row has it, or ids of its frames."""
    field = column.field
    return stored.offset, column.nbytes, field.nbytes, column.conversion, field.stack or 0


def initialise_frames(state: State, frames: FrameLayout) -> None:
    """Write into the words of new frames what does not change any more, then clear them."""
    words = [0] * w.FIRST_MOVE
    words[w.NUM_FRAMES], words[w.FRAME_SIZE] = frames.room, frames.nbytes
    words[w.FRAME_BYTES], words[w.STACK] = frames.pitch, frames.stack
    words[w.STEP_OBS], words[w.STEP_NEXT] = frames.step_obs, frames.step_next
    words[w.ROW_OBS], words[w.ROW_NEXT] = frames.row_obs, frames.row_next
    words[w.ROWS_BEHIND], words[w.FRAMES_BEHIND] = frames.rows_behind, frames.frames_behind
    words[w.NUM_MOVES] = len(frames.moves)
    words += [number for move in frames.moves for number in move]
    state.frame_words.copy_(torch.tensor(words, device=state.words.device))
    _clear_frames(state)


def _clear_frames(state: State) -> None:
    """Forget all frames; their ids go on."""
    if state.keeps_frames:
        words = state.frame_words
        words[w.FRAME_BASE] = words[w.NEXT_FRAME]
        words[w.FRAME_START : w.DEMO_FIRST_FRAME + 1] = 0
        state.stacks.fill_(-1)


def clear(state: State) -> None:
    """Forget rows, demonstrations, waiting steps and the largest leaf; all else goes on."""
    words = state.words
    words[w.BASE_ID] = words[w.NEXT_ID]
    words[w.ADDED_FIRST_ID] += words[w.DEMO_ADDED]
    for word in (w.RING_START, w.DEMO_FIRST_ID, w.DEMO_COUNT, w.DEMO_ADDED, w.TOTAL):
        state.put(word, 0)
    words[w.RING_CAPACITY] = words[w.CAPACITY]
    state.put(w.SCALE, lowest_total(state.rows.shape[0]))
    state.put(w.MAX_LEAF, 0.0)
    state.leaves.fill_(0.0)
    state.errors.fill_(torch.inf)
    state.sums.fill_(0)
    state.mins.fill_(torch.inf)
    state.maxs.fill_(0.0)
    state.uses.fill_(0)
    for word, value in ((w.LANE_COUNT, 0), (w.LANE_START, 0), (w.LANE_LAST, -1)):
        state.lanes[:, word].fill_(value)  # a fake reset step that is due stays due
    _clear_frames(state)


def known_ids(state: State, ids: Any) -> Tensor:
    """`ids` as an int64 vector, all of which are held.

    Raises:
        InputError: not integers, or not held.
    """
    try:
        given = as_tensor(ids).to(state.words.device)
    except TypeError as error:
        raise InputError(f"ids: not an array of integers: {error}") from None
    is_whole = not (given.is_floating_point() or given.dtype == torch.bool)
    if given.ndim != 1 or len(given) == 0 or not is_whole:
        raise InputError(
            f"ids: given {given.dtype} of shape {tuple(given.shape)}, "
            "expected integers of shape [B]"
        )
    given = given.to(torch.int64)  # a narrow type would wrap in the comparison
    missing = ~are_held(state, given)
    if bool(missing.any()):
        oldest, stop = ring_range(state)
        count = num_demonstrations(state)
        raise InputError(
            f"the ids held are {oldest}...{stop - 1}"
            + (f" and those of {count} demonstrations" if count else "")
            + f"; given {given[missing][:5].tolist()}"
            if stop > oldest or count
            else "no rows are held"
        )
    return given.contiguous()


def are_held(state: State, ids: Tensor) -> Tensor:
    """Whether there is a row with each id: int64 [B] -> bool [B]."""
    oldest, stop = ring_range(state)
    pinned = ids - state.words[w.DEMO_FIRST_ID]
    added = ids - state.words[w.ADDED_FIRST_ID]
    return (
        ((ids >= oldest) & (ids < stop))
        | ((pinned >= 0) & (pinned < state.words[w.DEMO_COUNT]))
        | ((added >= 0) & (added < state.words[w.DEMO_ADDED]))
    )


def repadded(state: State, tensors: Any) -> Any:
    """Tensors of another state with the same settings, rows padded as they are in this one.

    On a GPU rows are padded to more bytes than on the CPU. What does not look like rows stays as it
    is, to be refused.
    """
    if not isinstance(tensors, dict):
        return tensors
    width = state.rows.shape[1]
    used = state.word(w.NEXT_OFFSET) + state.word(w.NEXT_BYTES)
    fitting = dict(tensors)
    for name in ("rows", "pending"):
        given = tensors.get(name)
        if not isinstance(given, Tensor) or given.dtype != torch.uint8 or given.ndim < 2:
            continue
        if given.layout == torch.strided and given.shape[-1] in _padded(used) - {width}:
            fitting[name] = torch.nn.functional.pad(given, (0, width - given.shape[-1]))
    return fitting


def _padded(nbytes: int) -> set[int]:
    return {-(-nbytes // alignment) * alignment for alignment in ROW_ALIGNMENT.values()}


def copy_into(state: State, larger: State, operations: Operations) -> None:
    """Bring everything of a state into a new one of at least its capacity."""
    oldest, _ = ring_range(state)
    start = state.word(w.RING_START)
    capacity = larger.word(w.CAPACITY)
    ids = held_ids(state)
    source = slots_of(state, ids)
    for name in ("lanes", "pending", "age_counts", "reuse_counts"):
        getattr(larger, name).copy_(getattr(state, name))
    larger.words[w.FIRST_SAVED :] = state.words[w.FIRST_SAVED :]
    larger.words[w.SWEEP_LENGTH] = state.words[w.SWEEP_LENGTH]
    larger.words[w.BASE_ID] = oldest
    larger.words[w.RING_CAPACITY] = capacity - start
    larger.words[w.TOTAL] = 0
    target = slots_of(larger, ids)
    larger.rows[target.to(larger.rows.device)] = state.rows[source.to(state.rows.device)]
    for name in ("uses", "errors"):
        if len(getattr(state, name)):
            getattr(larger, name)[target] = getattr(state, name)[source]
    _copy_frames(state, larger)
    if len(state.leaves) and len(ids):
        operations.set_leaves(larger, target, state.leaves[source])


def _copy_frames(state: State, larger: State) -> None:
    """The same of frames: those of the ring begin anew with its oldest."""
    if not state.keeps_frames:
        return
    ring = ring_of_frames(state)
    larger.stacks.copy_(state.stacks)
    larger.frame_words[CHANGING_FRAMES] = state.frame_words[CHANGING_FRAMES]
    larger.frame_words[w.FRAME_BASE] = ring.oldest
    larger.frames[: ring.start] = state.frames[: ring.start]
    first = ring.start
    for run in ring.runs(ring.oldest, ring.stop):
        frames = state.frames[run]
        larger.frames[first : first + len(frames)] = frames
        first += len(frames)
