"""A saved buffer into memory, see `relive.storage.saving`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from relive.errors import ConfigError, CorruptError, InputError, shown
from relive.frames import room_of_rows
from relive.ops import words as w
from relive.ops.state import CHANGING, CHANGING_FRAMES
from relive.ops.window.reference import held_ids, num_demonstrations, ring_range, slots_of
from relive.storage.checks import SCALES, check, check_frame_words, check_words
from relive.storage.files import Stored, bytes_of, check_size, read_bytes, read_manifest
from relive.storage.manifest import MOST, check_manifest
from relive.storage.notes import unflatten
from relive.storage.rings import ring_of_frames, ring_of_rows
from relive.storage.saving import FORMAT, MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from torch import Tensor

    from relive.ops.dispatch import Operations
    from relive.ops.state import State
    from relive.storage.rings import Ring

SCRATCH = 1 << 20  # bytes, at least a row
BY_ROW = ("leaves", "errors", "uses")


def read_settings(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, of a format that this version reads.

    Raises:
        InputError: no saved buffer is there, or one of a newer version.
        CorruptError: it is damaged.
    """
    manifest = read_manifest(folder, MANIFEST)
    if manifest.get("format") != FORMAT:
        raise InputError(
            f"{folder} was saved in format {shown(manifest.get('format'))}, this version of relive "
            f"reads {FORMAT}; use the version that saved it"
        )
    check_manifest(manifest)
    return manifest


def require_room(manifest: dict[str, Any], capacity: int) -> None:
    """Raise ConfigError unless such a buffer has room for demonstrations and more."""
    rows = manifest["ring_start"]
    if capacity <= rows:
        raise ConfigError(
            f"{rows} rows are kept for demonstrations; capacity is more than that, given {capacity}"
        )
    frames, room = manifest.get("frames", {}).get("start", 0), room_of_rows(capacity)
    if room <= frames:
        raise ConfigError(
            f"{frames} frames are kept for demonstrations, {room} fit beside those of steps on "
            f"their way; take more rows than capacity={capacity}"
        )


def load(state: State, operations: Operations, folder: Path, manifest: dict[str, Any]) -> None:
    """Fill a new state, of the settings in a manifest and at least as many rows as are wanted.

    Raises:
        CorruptError: a file is missing or has changed, or what is in it cannot be.
    """
    _check_shapes(state, manifest)
    arrays = _arrays(folder, manifest)
    capacity = state.word(w.CAPACITY)
    words = torch.zeros(w.NUM_WORDS, dtype=torch.int64, device="cpu")
    words[w.FIRST_SAVED :] = arrays["words"]
    words[w.SWEEP_LENGTH] = arrays["sweep_length"][0]
    state.words[CHANGING] = words[CHANGING].to(state.words.device)
    if state.keeps_frames:
        state.frame_words[CHANGING_FRAMES] = arrays["frame_words"].to(state.words.device)
    _check_ranges(state, manifest, arrays)
    same_size = state.word(w.RING_START) + state.word(w.RING_CAPACITY) == capacity
    if not same_size:  # the newest that fit
        oldest, _ = ring_range(state)
        state.words[w.RING_CAPACITY] = capacity - state.word(w.RING_START)
        state.words[w.BASE_ID] = max(oldest, manifest["stop"] - state.word(w.RING_CAPACITY))
    for name in ("lanes", "age_counts", "reuse_counts"):
        getattr(state, name).copy_(arrays[name])
    _put(arrays["pending"], state.pending)
    _put(arrays["demonstrations"], state.rows[: len(arrays["demonstrations"])])
    _load_rows(state, folder, manifest, arrays)
    if state.keeps_frames:
        _load_frames(state, folder, manifest["frames"], arrays)
    for name in BY_ROW:
        if len(getattr(state, name)):
            _spread(state, getattr(state, name), arrays[name])
    if len(state.leaves) and same_size:
        operations.rebuild(state)  # at the scale that was saved
    elif len(state.leaves):
        _plant(state, operations)
    if state.keeps_frames and not same_size:  # the frames of some rows may not fit
        operations.evict(state)
    check(state)


def _load_rows(
    state: State, folder: Path, manifest: dict[str, Any], arrays: dict[str, Tensor]
) -> None:
    """Bring rows of the ring into it, and what has changed of them since they were written."""
    ring = ring_of_rows(state)
    _read_segments(folder, manifest["segments"], ring, manifest["row_bytes"])
    for row, content in zip(arrays["changed_ids"].tolist(), arrays["changed_rows"], strict=True):
        if row >= ring.oldest:
            (run,) = ring.runs(row, row + 1)
            _put(content[None], state.rows[run])


def _load_frames(
    state: State, folder: Path, saved: dict[str, Any], arrays: dict[str, Tensor]
) -> None:
    """Bring frames into a ring that may have another size; where it is smaller, the newest."""
    if saved["room"] != state.frame_word(w.NUM_FRAMES):
        state.frame_words[w.FRAME_BASE] = _oldest_saved(state, saved)
    state.stacks.copy_(arrays["stacks"])
    _put(arrays["demonstration_frames"], state.frames[: saved["start"]])
    _read_segments(folder, saved["segments"], ring_of_frames(state), saved["frame_bytes"])


def _plant(state: State, operations: Operations) -> None:
    """Grow the tree anew, at the scale that its leaves need."""
    slots = slots_of(state, held_ids(state))
    leaves = state.leaves[slots]
    state.leaves.zero_()
    state.words[w.TOTAL] = 0
    operations.set_leaves(state, slots, leaves)


def _oldest_saved(state: State, saved: dict[str, Any]) -> int:
    """Id of the oldest frame of a ring with the room that there was."""
    ring: int = saved["room"] - saved["start"]
    return max(state.frame_word(w.FRAME_BASE), state.frame_word(w.NEXT_FRAME) - ring)


def _check_shapes(state: State, manifest: dict[str, Any]) -> None:
    """Raise CorruptError unless the arrays of a manifest are those of such a state."""
    row_bytes = manifest["row_bytes"]
    padding = abs(row_bytes - state.rows.shape[1])  # rows of another device
    expected: dict[str, tuple[Tensor, list[int | None]]] = {
        "words": (state.words, [w.NUM_WORDS - w.FIRST_SAVED]),
        "sweep_length": (state.words, [1]),
        "lanes": (state.lanes, [*state.lanes.shape]),
        "pending": (state.pending, [*state.pending.shape[:2], row_bytes]),
        "demonstrations": (state.rows, [None, row_bytes]),
        "changed_ids": (state.words, [len(manifest["changed"])]),
        "changed_rows": (state.rows, [len(manifest["changed"]), row_bytes]),
        "age_counts": (state.age_counts, [*state.age_counts.shape]),
        "reuse_counts": (state.reuse_counts, [*state.reuse_counts.shape]),
        **{name: (getattr(state, name), [None]) for name in BY_ROW},
    }
    frames = manifest.get("frames")
    _require((frames is not None) == state.keeps_frames, "frames")
    if frames is not None:
        frame_bytes = state.frames.shape[1]
        _require(frames["frame_bytes"] == frame_bytes, "size of a frame")
        expected |= {
            "frame_words": (state.frame_words, [w.NUM_MOVES - w.NEXT_FRAME]),
            "stacks": (state.stacks, [*state.stacks.shape]),
            "demonstration_frames": (state.frames, [frames["start"], frame_bytes]),
        }
    for name, (tensor, shape) in expected.items():
        dtype, given = manifest["arrays"].get(name, (None, []))
        fits = len(given) == len(shape) and all(
            length in (None, wanted) for wanted, length in zip(given, shape, strict=True)
        )
        _require(fits and dtype == str(tensor.dtype).removeprefix("torch."), f"shape of {name}")
    _require(row_bytes > 0 and padding < 64, "size of a row")


def _check_ranges(state: State, manifest: dict[str, Any], arrays: dict[str, Tensor]) -> None:
    """Raise CorruptError unless rows, as the words say they lie, are those that were saved."""
    start, ring, stop = map(state.word, (w.RING_START, w.RING_CAPACITY, w.NEXT_ID))
    pinned, added = state.word(w.DEMO_COUNT), state.word(w.DEMO_ADDED)
    _require(min(pinned, added, start) >= 0 and pinned + added <= start < MOST, "demonstrations")
    _require(start == manifest["ring_start"] < state.word(w.CAPACITY), "demonstrations")
    _require(pinned + added == len(arrays["demonstrations"]), "demonstrations")
    _require(0 < ring < MOST and stop == manifest["stop"], "ring")
    _require(0 <= state.word(w.BASE_ID) <= stop, "ring")
    _require(0 <= state.word(w.OLDEST_ID) <= stop, "ring")
    oldest, _ = ring_range(state)
    segments = manifest["segments"]
    _require(segments[0]["start"] <= oldest if segments else oldest == stop, "ring")
    changed = arrays["changed_ids"]
    _require(bool(((changed >= 0) & (changed < stop)).all()), "changed rows")
    for name in BY_ROW:
        rows = pinned + added + stop - oldest if len(getattr(state, name)) else 0
        _require(len(arrays[name]) == rows, name)
    _require(-SCALES < state.word(w.SCALE) < SCALES, "scale")
    check_words(state)
    if state.keeps_frames:
        _check_frames(state, manifest["frames"])


def _check_frames(state: State, saved: dict[str, Any]) -> None:
    """Raise CorruptError unless frames, as their words say they lie, are those that were saved."""
    check_frame_words(state)
    start, stop = state.frame_word(w.FRAME_START), state.frame_word(w.NEXT_FRAME)
    _require(start == saved["start"] < saved["room"] and stop == saved["stop"], "frames")
    oldest, segments = _oldest_saved(state, saved), saved["segments"]
    _require(segments[0]["start"] <= oldest if segments else oldest == stop, "frames")


def _require(holds: bool, part: str) -> None:
    if not holds:
        raise CorruptError(f"the saved buffer is damaged: its {part} cannot be")


def _spread(state: State, target: Tensor, values: Tensor) -> None:
    """Put values of rows, in the order of ids, into their slots; the oldest may be left out."""
    pinned, held = state.word(w.DEMO_COUNT), num_demonstrations(state)
    oldest, stop = ring_range(state)
    first_added = len(values) - (held - pinned)
    target[:pinned] = values[:pinned]
    target[pinned:held] = values[first_added:]
    first = first_added - (stop - oldest)
    for run in ring_of_rows(state).runs(oldest, stop):
        count = run.stop - run.start
        target[run] = values[first : first + count]
        first += count


def _arrays(folder: Path, manifest: dict[str, Any]) -> dict[str, Tensor]:
    """Everything but rows of the ring, by name, on the CPU."""
    stored = manifest["state"]
    file = Stored(stored["file"], stored["nbytes"], stored["crc32"])
    check_size(folder, file)  # before so much memory is asked for
    try:
        arrays = {
            name: torch.empty(shape, dtype=getattr(torch, dtype), device="cpu")
            for name, (dtype, shape) in manifest["arrays"].items()
        }
    except RuntimeError as error:  # more than there is
        raise CorruptError(f"{file.file} cannot be read: {error}") from None
    read_bytes(folder, file, map(bytes_of, arrays.values()))
    return arrays


def load_note(folder: Path) -> Any:
    """What was saved beside the buffer.

    Raises:
        InputError: no saved buffer is there.
        CorruptError: it is damaged.
    """
    manifest = read_settings(folder)
    try:
        arrays = _arrays(folder, manifest)
    except CorruptError:
        if read_settings(folder) == manifest:
            raise
        return load_note(folder)  # saved again while it was being read
    kept = (arrays.get(f"note.{k}") for k in range(len(arrays)))
    return unflatten(manifest.get("note"), [array for array in kept if array is not None])


def _put(rows: Tensor, target: Tensor) -> None:
    """Copy rows, which may be padded otherwise on another device."""
    nbytes = min(rows.shape[-1], target.shape[-1])
    target[..., :nbytes] = rows[..., :nbytes].to(target.device)


def _read_segments(
    folder: Path, segments: list[dict[str, Any]], ring: Ring, row_bytes: int
) -> None:
    """Read the files of a ring into it.

    Args:
        row_bytes: of a row or a frame, as they were saved.
    """
    for segment in segments:
        stored = Stored(segment["file"], segment["nbytes"], segment["crc32"])
        read_bytes(folder, stored, _targets(ring, row_bytes, segment))


def _targets(ring: Ring, row_bytes: int, segment: dict[str, Any]) -> Iterator[memoryview]:
    """Where the rows of a segment go; those that are not held any more go nowhere."""
    start, stop = segment["start"], segment["stop"]
    num_rows = max(1, SCRATCH // row_bytes)
    scratch = torch.empty(num_rows, row_bytes, dtype=torch.uint8, device="cpu")
    while start < min(stop, ring.oldest):
        count = min(len(scratch), min(stop, ring.oldest) - start)
        yield bytes_of(scratch[:count])
        start += count
    direct = ring.memory.is_cpu and ring.memory.shape[1] == row_bytes
    for run in ring.runs(start, stop):
        if direct:
            yield bytes_of(ring.memory[run])
            continue
        for first in range(run.start, run.stop, len(scratch)):
            count = min(len(scratch), run.stop - first)
            yield bytes_of(scratch[:count])  # is read here
            _put(scratch[:count], ring.memory[first : first + count])
