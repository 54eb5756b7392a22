"""Datasets of Minari: HDF5, Arrow or Parquet, with a file of metadata.

    NAME/data/metadata.json       spaces, counts, data_format
    NAME/data/main_data.hdf5      a group for each episode: T + 1 observations, T of all else;
                                  under another name it has no metadata
    NAME/data/0/part-0.arrow      a table for each: T + 1 rows, and the last one is padding but for
                                  its observation; T is in 0/metadata.json

T  steps of an episode
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.arrays import is_finite
from relive.demos import arrow, hdf5
from relive.demos.demonstration import (
    Demonstration,
    Options,
    demonstration,
    flags,
    lengths,
    reading,
)
from relive.errors import CorruptError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

METADATA, MAIN = "metadata.json", "main_data.hdf5"
SUCCESS = ("success", "is_success", "goal_achieved")  # names in infos
SMALLEST_PICTURE = 32


def datasets_folder() -> Path:
    """Where Minari keeps datasets and finds them by name."""
    return Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")


def folder_of(path: Path) -> Path | None:
    """The folder with the data, if this is one or the dataset around it."""
    for folder in (path, path / "data"):
        if (folder / MAIN).is_file() or (folder / METADATA).is_file():
            return folder
    return None


def episodes(path: Path, options: Options) -> Iterator[Demonstration]:
    """The episodes, in order; `path` is the dataset, its folder `data`, or an HDF5 file."""
    if path.is_file():
        metadata = _metadata_of(path)
        yield from _counted(_from_hdf5(path, metadata, options), metadata)
        return
    folder = folder_of(path)
    if folder is None:
        raise CorruptError(f"there is neither {METADATA} nor {MAIN}")
    metadata = _metadata_in(folder)
    kind = metadata.get("data_format", "hdf5")
    if kind not in ("hdf5", "arrow", "parquet"):
        raise UnsupportedError(f"data_format {kind!r} is not read; hdf5, arrow and parquet are")
    if kind == "hdf5":
        found = _from_hdf5(folder / MAIN, metadata, options)
    else:
        found = _from_tables(folder, kind, metadata, options)
    yield from _counted(found, metadata)


def _counted(found: Iterator[Demonstration], metadata: dict[str, Any]) -> Iterator[Demonstration]:
    """The episodes, and once all have been read, whether they have as many steps as is told."""
    steps = 0
    for episode in found:
        steps += len(episode)
        yield episode
    told = metadata.get("total_steps")
    if told is not None and _whole(told) != steps:
        raise CorruptError(f"{steps} steps, but {METADATA} has total_steps {told}")


def _metadata_in(folder: Path) -> dict[str, Any]:
    """What a dataset tells of itself; files of earlier versions have nothing beside them."""
    return json_of(folder / METADATA) if (folder / METADATA).exists() else {}


def _metadata_of(path: Path) -> dict[str, Any]:
    """What is told of a file: metadata is of the main file alone, and not where it is of tables."""
    metadata = _metadata_in(path.parent) if path.name == MAIN else {}
    return metadata if metadata.get("data_format", "hdf5") == "hdf5" else {}


def _from_hdf5(path: Path, metadata: dict[str, Any], options: Options) -> Iterator[Demonstration]:
    pictures = {part: _pictures(metadata, part) for part in ("observation", "action")}
    spec = _env_spec(metadata)
    with hdf5.opened(path) as file:
        there = sum(name.startswith("episode_") for name in file)
        count = metadata.get("total_episodes", there)
        if there != count:
            raise CorruptError(f"{METADATA} tells of {count} episodes, {path.name} has {there}")
        for number in range(there):
            name = f"episode_{number}"
            with reading(name):
                group = hdf5.member(file, name)
                reward = hdf5.array(group, "rewards")
                obs = hdf5.tree(
                    group, "observations", keys=options.keys, images=pictures["observation"]
                )
                _require_one_more(obs, len(reward))
                found = demonstration(
                    name,
                    obs=obs,
                    action=hdf5.tree(group, "actions", images=pictures["action"]),
                    reward=reward,
                    terminated=flags(hdf5.array(group, "terminations"), "terminations"),
                    truncated=flags(hdf5.array(group, "truncations"), "truncations"),
                    success=_success(_flags_of(group), reward, _threshold(spec)),
                    seed=_whole(group.attrs.get("seed")),
                    env=_env_id(spec),
                )
                _require_steps(found, group.attrs.get("total_steps"))
            yield found


def _from_tables(
    folder: Path, kind: str, metadata: dict[str, Any], options: Options
) -> Iterator[Demonstration]:
    spaces = {part: _space(metadata, part) for part in ("observation", "action")}
    pictures = {part: _pictures(metadata, part) for part in ("observation", "action")}
    spec = _env_spec(metadata)
    count = _whole(metadata.get("total_episodes"))
    if count is None:
        raise CorruptError(f"{METADATA} has no total_episodes")
    for number in range(count):
        name, file = f"episode_{number}", f"{number}/part-0.{kind}"
        with reading(file):
            told = json_of(folder / str(number) / METADATA)
            steps = _whole(told.get("total_steps"))
            if steps is None:
                raise CorruptError(f"its {METADATA} has no total_steps")
            table = arrow.table_of(folder / file)
            if len(table) != steps + 1:
                raise CorruptError(
                    f"{len(table)} rows, expected {steps + 1}: its {steps} steps and one more "
                    "observation"
                )
            fields = {}
            for column, part in (("observations", "observation"), ("actions", "action")):
                values = arrow.tree(
                    arrow.column(table, column),
                    column,
                    keys=options.keys if part == "observation" else None,
                    images=pictures[part],
                )
                fields[column] = _shaped(values, spaces[part])
            reward, terminated, truncated = (
                arrow.array(arrow.column(table, column), column)[:steps]
                for column in ("rewards", "terminations", "truncations")
            )
            success = _flags_in(table)
            found = demonstration(
                name,
                obs=fields["observations"],
                action=_first(fields["actions"], steps),
                reward=reward,
                terminated=flags(terminated, "terminations"),
                truncated=flags(truncated, "truncations"),
                success=_success(success, reward, _threshold(spec)),
                seed=_whole(told.get("seed")),
                env=_env_id(spec),
            )
        yield found


def json_of(path: Path) -> dict[str, Any]:
    """A file of JSON that is an object.

    Raises:
        CorruptError: It is not there, or is something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptError(f"{path.name} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise CorruptError(f"{path.name} is no JSON object")
    return found


def _require_one_more(obs: Any, steps: int) -> None:
    """Of T observations nothing tells which is missing: the rows may be one step apart."""
    if (there := lengths(obs)) - {steps + 1}:
        raise CorruptError(
            f"{steps} rewards, but observations {sorted(there)}, expected {steps + 1}: one before "
            "each step and one after the last; copy the file again, or record it anew"
        )


def _require_steps(found: Demonstration, told: Any) -> None:
    if told is not None and _whole(told) != len(found):
        raise CorruptError(f"{len(found)} steps, but total_steps is {told}")


def _whole(value: Any) -> int | None:
    """A whole number from 0 on; None for anything else."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool) and value >= 0
    return int(value) if whole else None


def _success(
    said: NDArray[np.bool_] | None, reward: NDArray[Any], threshold: float | None
) -> bool | None:
    """Whether a step says so, or else whether the return is what the environment asks for."""
    if said is not None:
        return bool(said.any())
    if threshold is None or not is_finite(reward).all():
        return None
    return float(np.sum(reward, dtype=np.float64)) >= threshold


def _flags_of(group: Any) -> NDArray[np.bool_] | None:
    infos = hdf5.member(group, "infos") if "infos" in group else {}
    return next((flags(hdf5.array(infos, name), name) for name in SUCCESS if name in infos), None)


def _flags_in(table: Any) -> NDArray[np.bool_] | None:
    if "infos" not in table.column_names:
        return None
    infos = arrow.column(table, "infos")
    names = [field.name for field in infos.type]
    return next((flags(arrow.array(infos.field(n), n), n) for n in SUCCESS if n in names), None)


def _env_spec(metadata: dict[str, Any]) -> dict[str, Any]:
    """What Gymnasium says of the environment; empty if nothing is told."""
    try:
        spec = json.loads(metadata.get("env_spec") or "{}")
    except (ValueError, TypeError):
        spec = None
    if not isinstance(spec, dict):
        raise CorruptError(f"env_spec in {METADATA} is no JSON object")
    return spec


def _threshold(spec: dict[str, Any]) -> float | None:
    """The return from which the environment counts as solved."""
    value = spec.get("reward_threshold")
    if not isinstance(value, int | float) or value != value:  # Python's JSON has NaN
        return None
    return float(value)


def _env_id(spec: dict[str, Any]) -> str | None:
    return found if isinstance(found := spec.get("id"), str) else None


def _space(metadata: dict[str, Any], part: str) -> Any:
    """A space as it is told, or None."""
    told = metadata.get(f"{part}_space")
    return json.loads(told) if isinstance(told, str) else told


def _parts(space: Any) -> dict[str, Any]:
    """The spaces that a space is made of, by name."""
    parts = space.get("subspaces") if isinstance(space, dict) else None
    if isinstance(parts, list):
        return {str(number): part for number, part in enumerate(parts)}
    return parts or {}


def _pictures(metadata: dict[str, Any], part: str) -> frozenset[str]:
    """Dotted names of what is kept as JPEG: bytes of at least 32 x 32, unless it is said not."""
    if not metadata.get("jpeg_encoding", True):
        return frozenset()
    return frozenset(_picture_names(_space(metadata, part), ""))


def _picture_names(space: Any, prefix: str) -> Iterator[str]:
    parts = _parts(space)
    for name, inner in parts.items():
        yield from _picture_names(inner, f"{prefix}.{name}" if prefix else name)
    if parts or not isinstance(space, dict) or space.get("dtype") != "uint8":
        return
    shape = space.get("shape", [])
    if len(shape) in (2, 3) and min(shape[:2]) >= SMALLEST_PICTURE:
        low, high = np.asarray(space["low"]), np.asarray(space["high"])
        if (low == 0).all() and (high == 255).all():
            yield prefix


def _shaped(values: Any, space: Any) -> Any:
    """Rows of a table are flat; the space says what they were."""
    if isinstance(values, dict):
        parts = _parts(space)
        return {name: _shaped(value, parts.get(name)) for name, value in values.items()}
    shape = space.get("shape") if isinstance(space, dict) else None
    return values if shape is None else values.reshape(len(values), *shape)


def _first(values: Any, steps: int) -> Any:
    if isinstance(values, dict):
        return {name: _first(value, steps) for name, value in values.items()}
    return values[:steps]
