"""A buffer on disk: a folder with a manifest, segments of rows, and all else in one file.

    manifest.json              settings, what is in which file, checksums; put in place last
    rows-<save>.bin            rows of the ring written since the save before, by id
    state-<save>.bin           words, lanes, priorities, demonstrations, rows that changed since

A save writes new files and then renames the manifest, so the save before it counts until the new
one is whole. Files that no manifest names any more are removed afterwards. Nothing in a file is
code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relive.errors import CorruptError, InputError
from relive.ops import words as w
from relive.ops.window.reference import held_ids, num_demonstrations, ring_range, slots_of
from relive.storage.files import (
    Stored,
    bytes_of,
    read_bytes,
    read_manifest,
    write_bytes,
    write_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from relive.ops.dispatch import Operations
    from relive.ops.state import State

FORMAT = 1
MANIFEST = "manifest.json"
OURS = re.compile(r"(?:rows|state)-(\d+)\.bin")  # nothing else in a folder is ever touched


class Lineage:
    """What a folder held when this buffer last saved there or was loaded from it.

    Only if it still holds just that can a save leave out what is there already.
    """

    def __init__(self) -> None:
        self._manifests: dict[Path, dict[str, Any]] = {}

    def of(self, folder: Path) -> dict[str, Any] | None:
        """The manifest to go on from; None if all must be written."""
        known = self._manifests.get(folder.resolve())
        if known is None:
            return None
        try:
            return known if read_manifest(folder, MANIFEST) == known else None
        except (InputError, CorruptError):
            return None

    def note(self, folder: Path, manifest: dict[str, Any]) -> None:
        """This is what the folder holds now."""
        self._manifests[folder.resolve()] = manifest


def save(
    state: State, settings: dict[str, Any], folder: Path, before: dict[str, Any] | None
) -> Any:
    """Write a buffer; returns the manifest.

    Args:
        settings: JSON, of the buffer.
        before: the manifest there, to write only what is new since; or None.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number = _next_number(folder)
    oldest, stop = ring_range(state)
    segments, start = [], oldest
    if before is not None:
        segments = [s for s in before["segments"] if s["stop"] > oldest]
        start = max(oldest, before["stop"])
    if stop > start:
        runs = [bytes_of(state.rows[run]) for run in _slots(state, start, stop)]
        stored = write_bytes(folder, f"rows-{number}.bin", runs)
        segments = [*segments, {**stored._asdict(), "start": start, "stop": stop}]
    changed = _changed(state, before)
    arrays = _arrays(state, changed)
    parts = (bytes_of(part) for array in arrays.values() for part in array)
    stored = write_bytes(folder, f"state-{number}.bin", parts)
    manifest = {
        "format": FORMAT,
        "settings": settings,
        "row_bytes": state.word(w.ROW_BYTES),
        "ring_start": state.word(w.RING_START),
        "stop": stop,
        "last": state.lanes[:, w.LANE_LAST].tolist(),
        "changed": changed,
        "segments": segments,
        "state": stored._asdict(),
        "arrays": {
            name: [
                str(parts[0].dtype).removeprefix("torch."),
                [sum(map(len, parts)), *parts[0].shape[1:]],
            ]
            for name, parts in arrays.items()
        },
    }
    write_manifest(folder, MANIFEST, manifest)
    _remove_others(folder, manifest)
    return manifest


def _changed(state: State, before: dict[str, Any] | None) -> list[int]:
    """Ids of rows that may differ from what an earlier save wrote of them.

    The last row of a lane is told of its successor, or that its episode was cut, after it was
    saved; nothing else of a row ever changes.
    """
    if before is None:
        return []
    oldest, _ = ring_range(state)
    candidates = {*before["last"], *before["changed"]}
    return sorted(row for row in candidates if oldest <= row < before["stop"])


def _arrays(state: State, changed: list[int]) -> dict[str, list[Tensor]]:
    """All that is saved besides new rows of the ring, by name; each in one or more parts."""
    ids = torch.tensor(changed, dtype=torch.int64)
    pinned, held = state.word(w.DEMO_COUNT), num_demonstrations(state)
    arrays = {
        "words": [state.words[w.FIRST_SAVED :]],
        "sweep_length": [state.words[w.SWEEP_LENGTH : w.SWEEP_LENGTH + 1]],
        "lanes": [state.lanes],
        "pending": [state.pending],
        "demonstrations": [state.rows[:held]],
        "changed_ids": [ids],
        "changed_rows": [state.rows[slots_of(state, ids)]],
        "age_counts": [state.age_counts],
        "reuse_counts": [state.reuse_counts],
    }
    for name in ("leaves", "errors", "uses"):
        values = getattr(state, name)
        arrays[name] = [values[:0]]
        if len(values):  # in the order of ids
            runs = (values[run] for run in _slots(state, *ring_range(state)))
            arrays[name] = [values[:pinned], *runs, values[pinned:held]]
    return arrays


def _slots(state: State, start: int, stop: int) -> Iterator[slice]:
    """The slots of ring ids in a range, oldest first, in runs."""
    while start < stop:
        slot = int(slots_of(state, torch.tensor([start]))[0])
        count = min(stop - start, state.word(w.CAPACITY) - slot)
        yield slice(slot, slot + count)
        start += count


def _next_number(folder: Path) -> int:
    """A number that no file there has."""
    found = (OURS.fullmatch(path.name) for path in folder.iterdir())
    return max((int(match[1]) for match in found if match), default=0) + 1


def _remove_others(folder: Path, manifest: dict[str, Any]) -> None:
    """Remove files of saves that do not count any more."""
    named = {segment["file"] for segment in manifest["segments"]} | {manifest["state"]["file"]}
    for path in folder.iterdir():
        if OURS.fullmatch(path.name) and path.name not in named:
            path.unlink(missing_ok=True)


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
    arrays = {
        name: torch.empty(shape, dtype=getattr(torch, dtype))
        for name, (dtype, shape) in manifest["arrays"].items()
    }
    read_bytes(folder, Stored(**manifest["state"]), map(bytes_of, arrays.values()))
    capacity = state.word(w.CAPACITY)
    state.words[w.FIRST_SAVED :] = arrays["words"]
    state.words[w.SWEEP_LENGTH] = arrays["sweep_length"][0]
    same_size = state.word(w.RING_START) + state.word(w.RING_CAPACITY) == capacity
    if not same_size:  # the newest that fit
        oldest, _ = ring_range(state)
        state.words[w.RING_CAPACITY] = capacity - state.word(w.RING_START)
        state.words[w.BASE_ID] = max(oldest, manifest["stop"] - state.word(w.RING_CAPACITY))
    for name in ("lanes", "pending", "age_counts", "reuse_counts"):
        getattr(state, name).copy_(arrays[name])
    state.rows[: len(arrays["demonstrations"])] = arrays["demonstrations"]
    oldest, _stop = ring_range(state)
    for segment in manifest["segments"]:
        stored = Stored(segment["file"], segment["nbytes"], segment["crc32"])
        read_bytes(folder, stored, _targets(state, segment["start"], segment["stop"]))
    held = arrays["changed_ids"] >= oldest
    state.rows[slots_of(state, arrays["changed_ids"][held])] = arrays["changed_rows"][held]
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


def _targets(state: State, start: int, stop: int) -> Iterator[memoryview]:
    """Where the rows of a segment go; those that are not held any more go nowhere."""
    oldest, _ = ring_range(state)
    row_bytes = state.word(w.ROW_BYTES)
    scratch = torch.empty(max(1, (1 << 20) // row_bytes), row_bytes, dtype=torch.uint8)
    while start < min(stop, oldest):
        count = min(len(scratch), min(stop, oldest) - start)
        yield bytes_of(scratch[:count])
        start += count
    for run in _slots(state, start, stop):
        yield bytes_of(state.rows[run])
