"""Whether a manifest is one: what is in which file, of a form that can be believed.

A checksum says that a file is what was written, not who wrote it. So nothing a manifest says is
used before it has been compared with what it must be: names of files stay inside the folder, sizes
agree with each other and with the files, and only then is memory asked for.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from relive.declared import is_whole
from relive.errors import CorruptError
from relive.storage.saving import OURS

MOST = 2**62  # of whatever is counted


def check_manifest(manifest: dict[str, Any]) -> None:
    """Raise CorruptError unless a manifest is of the form that `save` writes."""
    settings = manifest.get("settings", "missing")
    _require(settings is None or isinstance(settings, dict), "settings")
    if settings is not None:  # not a note alone
        _check_rows(manifest)
    _require(is_file(manifest.get("state")), "state")
    arrays = manifest.get("arrays")
    _require(isinstance(arrays, dict) and all(map(is_array, arrays.values())), "arrays")
    total = sum(nbytes_of(array) for array in manifest["arrays"].values())
    _require(total == manifest["state"]["nbytes"], "arrays")


def _check_rows(manifest: dict[str, Any]) -> None:
    """What there is to say of a buffer besides its settings."""
    for name in ("ring_start", "stop", "row_bytes"):
        _require(is_count(manifest.get(name)), name)
    for name in ("last", "changed"):
        ids = manifest.get(name)
        _require(isinstance(ids, list) and all(is_count(i) or i == -1 for i in ids), name)
    _check_segments(manifest.get("segments"), manifest["stop"], manifest["row_bytes"])
    if "frames" in manifest:
        _check_frames(manifest["frames"])


def _check_frames(frames: Any) -> None:
    """What there is to say of frames that are kept once."""
    _require(isinstance(frames, dict), "frames")
    for name in ("room", "frame_bytes", "start", "stop"):
        _require(is_count(frames.get(name)), "frames")
    _check_segments(frames.get("segments"), frames["stop"], frames["frame_bytes"])


def _check_segments(segments: Any, stop: int, row_bytes: int) -> None:
    """Files of rows follow each other without gaps."""
    _require(isinstance(segments, list) and all(map(is_file, segments)), "segments")
    for segment, following in zip(segments, [*segments[1:], {"start": stop}], strict=False):
        first, last = segment.get("start"), segment.get("stop")
        _require(is_count(first) and is_count(last) and first < last, "segments")
        _require(segment["nbytes"] == (last - first) * row_bytes, "segments")
        _require(last == following.get("start"), "segments")


def is_file(entry: Any) -> bool:
    """Whether an entry names a file of ours in the folder, its size and its checksum."""
    if not isinstance(entry, dict) or not isinstance(entry.get("file"), str):
        return False
    known = OURS.fullmatch(entry["file"]) is not None
    return known and is_count(entry.get("nbytes")) and is_count(entry.get("crc32"))


def is_array(entry: Any) -> bool:
    """Whether an entry is the dtype and the shape of an array."""
    if not isinstance(entry, list) or len(entry) != 2 or not isinstance(entry[0], str):
        return False
    dtype, shape = getattr(torch, entry[0], None), entry[1]
    is_shape = isinstance(shape, list) and len(shape) <= 64 and all(map(is_count, shape))
    return isinstance(dtype, torch.dtype) and is_shape


def nbytes_of(array: list[Any]) -> int:
    """Bytes of an array that is described so."""
    dtype: torch.dtype = getattr(torch, array[0])
    values: int = math.prod(array[1])
    return values * dtype.itemsize


def is_count(value: Any) -> bool:
    """Whether a value is a whole number that is not negative."""
    return is_whole(value, 0, MOST)


def _require(holds: bool, part: str) -> None:
    if not holds:
        raise CorruptError(f"manifest.json is damaged: its {part} cannot be what save() wrote")
