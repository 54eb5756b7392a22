"""A saved buffer into memory, see `relive.storage.saving`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from relive.errors import InputError
from relive.ops import words as w
from relive.ops.window.reference import held_ids, num_demonstrations, ring_range, slots_of
from relive.storage.files import Stored, bytes_of, read_bytes, read_manifest
from relive.storage.notes import unflatten
from relive.storage.saving import FORMAT, MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

    from relive.ops.dispatch import Operations
    from relive.ops.state import State

SCRATCH = 1 << 20  # bytes, at least a row


def read_settings(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, of a format that this version reads.

    Raises:
        InputError: no saved buffer is there, or one of a newer version.
        CorruptError: it is damaged.
    """
    manifest = read_manifest(folder, MANIFEST)
    if manifest.get("format") != FORMAT:
        raise InputError(
            f"{folder} was saved in format {manifest.get('format')!r}, this version of relive "
            f"reads {FORMAT}; use the version that saved it"
        )
    return manifest


def load(state: State, operations: Operations, folder: Path, manifest: dict[str, Any]) -> None:
    """Fill a new state, of the settings in a manifest and at least as many rows as are wanted.

    Raises:
        CorruptError: a file is missing or has changed.
    """
    arrays = _arrays(folder, manifest)
    capacity = state.word(w.CAPACITY)
    state.words[w.FIRST_SAVED :] = arrays["words"]
    state.words[w.SWEEP_LENGTH] = arrays["sweep_length"][0]
    same_size = state.word(w.RING_START) + state.word(w.RING_CAPACITY) == capacity
    if not same_size:  # the newest that fit
        oldest, _ = ring_range(state)
        state.words[w.RING_CAPACITY] = capacity - state.word(w.RING_START)
        state.words[w.BASE_ID] = max(oldest, manifest["stop"] - state.word(w.RING_CAPACITY))
    for name in ("lanes", "age_counts", "reuse_counts"):
        getattr(state, name).copy_(arrays[name])
    _put(arrays["pending"], state.pending)
    _put(arrays["demonstrations"], state.rows[: len(arrays["demonstrations"])])
    oldest, _stop = ring_range(state)
    for segment in manifest["segments"]:
        stored = Stored(segment["file"], segment["nbytes"], segment["crc32"])
        read_bytes(folder, stored, _targets(state, manifest["row_bytes"], segment))
    for row, content in zip(arrays["changed_ids"].tolist(), arrays["changed_rows"], strict=True):
        if row >= oldest:
            slot = int(slots_of(state, torch.tensor([row]))[0])
            _put(content[None], state.rows[slot : slot + 1])
    for name in ("leaves", "errors", "uses"):
        if len(getattr(state, name)):
            _spread(state, getattr(state, name), arrays[name])
    if not len(state.leaves):
        return
    if same_size:
        operations.rebuild(state)  # at the scale that was saved
    else:
        slots = slots_of(state, held_ids(state))
        leaves = state.leaves[slots]
        state.leaves.zero_()
        state.words[w.TOTAL] = 0
        operations.set_leaves(state, slots, leaves)


def _spread(state: State, target: Tensor, values: Tensor) -> None:
    """Put values of rows, in the order of ids, into their slots; the oldest may be left out."""
    pinned, held = state.word(w.DEMO_COUNT), num_demonstrations(state)
    oldest, stop = ring_range(state)
    first_added = len(values) - (held - pinned)
    target[:pinned] = values[:pinned]
    target[pinned:held] = values[first_added:]
    first = first_added - (stop - oldest)
    for run in _slots(state, oldest, stop):
        count = run.stop - run.start
        target[run] = values[first : first + count]
        first += count


def _arrays(folder: Path, manifest: dict[str, Any]) -> dict[str, Tensor]:
    """Everything but rows of the ring, by name, on the CPU."""
    arrays = {
        name: torch.empty(shape, dtype=getattr(torch, dtype))
        for name, (dtype, shape) in manifest["arrays"].items()
    }
    read_bytes(folder, Stored(**manifest["state"]), map(bytes_of, arrays.values()))
    return arrays


def load_note(folder: Path) -> Any:
    """What was saved beside the buffer.

    Raises:
        InputError: no saved buffer is there.
        CorruptError: it is damaged.
    """
    manifest = read_settings(folder)
    arrays = _arrays(folder, manifest)
    kept = (arrays.get(f"note.{k}") for k in range(len(arrays)))
    return unflatten(manifest.get("note"), [array for array in kept if array is not None])


def _put(rows: Tensor, target: Tensor) -> None:
    """Copy rows, which may be padded otherwise on another device."""
    nbytes = min(rows.shape[-1], target.shape[-1])
    target[..., :nbytes] = rows[..., :nbytes].to(target.device)


def _targets(state: State, row_bytes: int, segment: dict[str, Any]) -> Iterator[memoryview]:
    """Where the rows of a segment go; those that are not held any more go nowhere."""
    oldest, _ = ring_range(state)
    start, stop = segment["start"], segment["stop"]
    scratch = torch.empty(max(1, SCRATCH // row_bytes), row_bytes, dtype=torch.uint8)
    while start < min(stop, oldest):
        count = min(len(scratch), min(stop, oldest) - start)
        yield bytes_of(scratch[:count])
        start += count
    direct = state.rows.is_cpu and state.rows.shape[1] == row_bytes
    for run in _slots(state, start, stop):
        if direct:
            yield bytes_of(state.rows[run])
            continue
        for first in range(run.start, run.stop, len(scratch)):
            count = min(len(scratch), run.stop - first)
            yield bytes_of(scratch[:count])  # is read here
            _put(scratch[:count], state.rows[first : first + count])


def _slots(state: State, start: int, stop: int) -> Iterator[slice]:
    """The slots of ring ids in a range, oldest first, in runs."""
    while start < stop:
        slot = int(slots_of(state, torch.tensor([start]))[0])
        count = min(stop - start, state.word(w.CAPACITY) - slot)
        yield slice(slot, slot + count)
        start += count
