"""Datasets of LeRobot, version 3.0: tables of frames, many episodes in each.

    meta/info.json                              features, counts, codebase_version
    meta/episodes/chunk-000/file-000.parquet    episode_index, length, data/chunk_index,
                                                data/file_index
    data/chunk-000/file-000.parquet             a row a frame: observation.*, action, next.reward,
                                                next.done, episode_index, frame_index

There is no observation behind the last frame of an episode, and `next.done` does not tell
termination from truncation.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.demos import arrow
from relive.demos.demonstration import (
    Demonstration,
    Options,
    demonstration,
    ends_of,
    flags,
    reading,
    wanted,
)
from relive.demos.minari import json_of
from relive.errors import CorruptError, InputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

INFO = "meta/info.json"
OBS = "observation."
STATE = "state"  # alone it is the observation, not a dict of one
INDEX = ("episode_index", "length", "data/chunk_index", "data/file_index")
DONE, SUCCESS = "next.done", "next.success"


def episodes(path: Path, options: Options) -> Iterator[Demonstration]:
    """The episodes, in order; `path` is the folder with `meta` and `data`."""
    info = json_of(path / INFO)
    version = info.get("codebase_version")
    if not isinstance(version, str) or not version.startswith("v3."):
        raise UnsupportedError(
            f"{INFO} says codebase_version {version!r}, and v3.0 is read; LeRobot converts older "
            "datasets: python -m lerobot.datasets.v30.convert_dataset_v21_to_v30"
        )
    features = info.get("features")
    if not isinstance(features, dict):
        raise CorruptError(f"{INFO} has no features")
    names = _observations(features, options)
    index = _index(path, info)
    table, frames, held = None, np.empty(0), ""
    for number, length, chunk, file in index:
        name, place = f"episode {number}", _place(chunk, file)
        with reading(f"{name}, {place}"):
            if held != place:
                table, held = arrow.table_of(path / place), place
                frames = arrow.array(arrow.column(table, "episode_index"), "episode_index")
            found = _episode(name, _rows(table, frames, number, length), features, names, options)
        yield found
    _require_no_more(path, index)


def _observations(features: dict[str, Any], options: Options) -> list[str]:
    """The columns to read.

    Raises:
        InputError: There is none.
        UnsupportedError: One is a video.
    """
    there = [name for name in features if name.startswith(OBS)]
    alone = there == [OBS + STATE]
    names = [n for n in there if alone or wanted(options.keys, n.removeprefix(OBS))]
    if not names:
        raise InputError(f"none of the observations asked for is there; there are {there}")
    for name in names:
        if features[name].get("dtype") == "video":
            raise UnsupportedError(
                f"{name} is a video, which is not read; leave it out (keys=...), or write the "
                "dataset with use_videos=False"
            )
    return names


def _index(path: Path, info: dict[str, Any]) -> list[tuple[int, ...]]:
    """Number, length, chunk and file of each episode.

    Raises:
        CorruptError: They are not all that the dataset says it has, each once.
    """
    found: list[tuple[int, ...]] = []
    for file in sorted((path / "meta" / "episodes").glob("chunk-*/file-*.parquet")):
        with reading(file.relative_to(path).as_posix()):
            table = arrow.table_of(file)
            columns = [_whole_numbers(table, name) for name in INDEX]
            found += [tuple(map(int, row)) for row in zip(*columns, strict=True)]
    found.sort()
    for what, there in (
        ("total_episodes", len(found)),
        ("total_frames", sum(length for _, length, *_ in found)),
    ):
        if (told := info.get(what)) != there:
            raise CorruptError(f"{INFO} says {what} {told}, meta/episodes {there}")
    for expected, (number, *_) in enumerate(found):
        if number != expected:
            raise CorruptError(
                f"meta/episodes has episode {number} where {expected} should be: each is there once"
            )
    return found


def _whole_numbers(table: Any, name: str) -> NDArray[Any]:
    found = arrow.array(arrow.column(table, name), name)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise CorruptError(
            f"{name} has {found.dtype} of shape {found.shape}, expected a whole number an episode"
        )
    return found


def _place(chunk: int, file: int) -> str:
    return f"data/chunk-{chunk:03d}/file-{file:03d}.parquet"


def _require_no_more(path: Path, index: list[tuple[int, ...]]) -> None:
    """Refuse frames that belong to no episode."""
    told: Counter[str] = Counter()
    for _, length, chunk, number in index:
        told[_place(chunk, number)] += length
    for file in sorted((path / "data").glob("chunk-*/file-*.parquet")):
        with reading(place := file.relative_to(path).as_posix()):
            if (there := arrow.num_rows(file)) != told[place]:
                raise CorruptError(f"{there} frames, but meta/episodes {told[place]}")


def _rows(table: Any, frames: NDArray[Any], number: int, length: int) -> Any:
    """The frames of one episode."""
    places = np.flatnonzero(frames == number)
    if len(places) != length or (length and places[-1] - places[0] != length - 1):
        raise CorruptError(f"{len(places)} frames, expected {length} side by side")
    rows = table.slice(int(places[0]) if length else 0, length)
    order = arrow.array(arrow.column(rows, "frame_index"), "frame_index")
    if (order != np.arange(length)).any():
        raise CorruptError("frame_index does not count from 0")
    return rows


def _episode(
    name: str, rows: Any, features: dict[str, Any], names: list[str], options: Options
) -> Demonstration:
    there = rows.column_names
    if "next.reward" not in there:
        raise InputError("there is no next.reward: without rewards nothing can be learned from it")
    reward = arrow.array(arrow.column(rows, "next.reward"), "next.reward").reshape(-1)
    done = _flags(rows, DONE)
    terminated, truncated = ends_of(done, len(reward), DONE, options.done_means)
    success = _flags(rows, SUCCESS)
    return demonstration(
        name,
        obs=_obs(rows, features, names),
        action=_feature(rows, features, "action"),
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        last_step=options.last_step,
        success=None if success is None else bool(success.any()),
    )


def _flags(rows: Any, name: str) -> NDArray[np.bool_] | None:
    if name not in rows.column_names:
        return None
    return flags(arrow.array(arrow.column(rows, name), name).reshape(-1), name)


def _obs(rows: Any, features: dict[str, Any], names: list[str]) -> Any:
    """The state alone, or a dict nested as the dots in the names say."""
    if names == [OBS + STATE]:
        return _feature(rows, features, names[0])
    found: dict[str, Any] = {}
    for name in names:
        *groups, key = name.removeprefix(OBS).split(".")
        place = found
        for group in groups:
            place = place.setdefault(group, {})
        place[key] = _feature(rows, features, name)
    return found


def _feature(rows: Any, features: dict[str, Any], name: str) -> NDArray[Any]:
    """A column in its declared shape: one of width 1 is written as plain numbers."""
    told = features.get(name)
    if not isinstance(told, dict):
        raise CorruptError(f"{INFO} has no feature {name}")
    values, shape = arrow.column(rows, name), tuple(told.get("shape", ()))
    if told.get("dtype") != "image":
        return arrow.array(values, name).reshape(len(values), *shape)
    pictures = arrow.pictures(values, name)
    if pictures.shape[1:] != shape and pictures.ndim == 4:
        pictures = pictures.transpose(0, 3, 1, 2)  # the colours first
    if len(pictures) and pictures.shape[1:] != shape:
        raise CorruptError(f"{name}: pictures of shape {pictures.shape[1:]}, expected {shape}")
    return pictures
