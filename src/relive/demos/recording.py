"""Episodes as a dataset of Minari, which Minari and `read` open.

It is written beside its place and renamed, so that it is there whole or not at all.
"""

from __future__ import annotations

import re
import shutil
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from relive.demos.given import given_episodes
from relive.demos.minari import datasets_folder
from relive.errors import ConfigError, InputError, MissingExtraError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from relive.demos.demonstration import Demonstration

DataFormat = Literal["hdf5", "arrow"]
DATA = "data"  # the folder that Minari opens
PACKAGES: dict[DataFormat, str] = {"hdf5": "h5py", "arrow": "pyarrow"}
DATASET_ID = re.compile(r"([-\w][-\w/]*[-\w]/)?[-\w]+-v\d+")


def write_minari(
    path: str | Path,
    episodes: Iterable[Demonstration | Mapping[str, Any]],
    env: Any,
    *,
    data_format: DataFormat = "hdf5",
    overwrite: bool = False,
    about: dict[str, str] | None = None,
) -> None:
    """Write episodes into a new dataset of Minari; pictures are kept as they are, not as JPEG.

    Args:
        path: Of the dataset. `minari.MinariDataset(path / "data")` opens it; below the folder that
            `MINARI_DATASETS_PATH` names, `minari.load_dataset` does, by the way from there. That
            is (FOLDER/)NAME-vN then.
        episodes: At least one, each of steps that follow one another; dicts of arrays too, as in
            `load`.
        env: The Gymnasium environment that they are from, for its spaces and its specification.
        data_format: Of the files.
        overwrite: Replace a dataset that is there; anything else is never replaced.
        about: More of Minari's metadata, `algorithm_name` say.

    Raises:
        ConfigError: No such format.
        InputError: Something is there already; a name that Minari would not list; no episodes, or
            one with gaps; nothing has been written then.
        MissingExtraError: Minari, or what it writes the format with, is not installed.
    """
    if data_format not in get_args(DataFormat):
        raise ConfigError(f"data_format is hdf5 or arrow; given {data_format!r}")
    minari, place = _minari(data_format), Path(path).absolute()  # it joins relative paths twice
    require_writable(place, data_format=data_format, overwrite=overwrite)
    all_episodes = list(given_episodes(episodes))
    if not all_episodes:
        raise InputError(f"there are no episodes to write to {place}")
    buffers = [_buffer(minari, number, ep) for number, ep in enumerate(all_episodes)]
    unfinished = place.with_name(f".{place.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        storage = minari.dataset.minari_storage.MinariStorage.new(
            unfinished / DATA,
            env.observation_space,
            env.action_space,
            _portable(env.spec),
            data_format,
            jpeg_encoding=False,
        )
        told = {"dataset_id": dataset_id(place), "minari_version": minari.__version__}
        storage.update_metadata({**told, **(about or {})})
        storage.update_episodes(buffers)
        storage.update_episode_metadata([_statistics(episode) for episode in all_episodes])
        replaced = place.with_name(f".{place.name}.old")
        if place.exists():
            shutil.rmtree(replaced, ignore_errors=True)  # of a process that was killed in here
            place.rename(replaced)
        unfinished.rename(place)
        shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _portable(spec: Any) -> Any:
    """The specification of an environment, or None for one that has no words for how it is made."""
    try:
        spec.to_json()
    except (AttributeError, ValueError):  # registered with a class or a function
        return None
    return spec


def require_writable(path: Path, *, data_format: DataFormat, overwrite: bool) -> None:
    """Refuse a place where something is, but for a dataset that may be replaced, and a wrong name.

    Raises:
        InputError: Says what to do.
        MissingExtraError: Minari, or what it writes the format with, is not installed.
    """
    _minari(data_format)
    dataset_id(path)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / DATA / "metadata.json").is_file():
        raise InputError(f"{path} is there and is no dataset of Minari; name another place")
    if not overwrite:
        raise InputError(
            f"{path} has a dataset in it; name another place, or replace it (overwrite=True, "
            "--overwrite)"
        )


def dataset_id(path: Path) -> str:
    """What Minari calls the dataset in a folder.

    Below the folder of Minari it is the way from there, as Minari finds it. One name that it does
    not take, and it lists no dataset at all.

    Raises:
        InputError: It would be no name, (FOLDER/)NAME-vN.

    >>> dataset_id(Path("demos/mountain car"))
    'mountain-car-v0'
    >>> dataset_id(Path("demos/door-v2"))
    'door-v2'
    """
    place, folder = path.resolve(), datasets_folder().resolve()
    name = re.sub(r"[^-\w]+", "-", place.name).strip("-") or "demonstrations"
    name = name if re.search(r"-v\d+$", name) else f"{name}-v0"
    if not place.is_relative_to(folder):
        return name
    found = place.relative_to(folder)
    if DATASET_ID.fullmatch(found.as_posix()) is None or DATA in found.parts:
        raise InputError(
            f"{path} is below {folder}, where Minari finds datasets called NAME-vN, of letters, "
            f"digits, - and _, perhaps in a folder of two letters or more (not {DATA}); "
            f"name it {name}, or write it elsewhere"
        )
    return found.as_posix()


def _minari(data_format: DataFormat) -> Any:
    try:
        import minari
        import minari.dataset.minari_storage

        for package in (PACKAGES[data_format], "PIL"):  # which Minari asks for once it writes
            import_module(package)
    except ImportError as error:
        raise MissingExtraError(error.name or "minari", extra="record") from None
    return minari


def _buffer(minari: Any, number: int, episode: Demonstration) -> Any:
    """An episode as Minari takes it."""
    if not len(episode):
        raise InputError(f"{episode.name} has no steps")
    infos = None
    if episode.success is not None:
        infos = {"success": np.array([False] * len(episode) + [episode.success])}
    return minari.data_collector.EpisodeBuffer(
        id=number,
        seed=episode.seed,
        observations=_observations(episode.obs, episode.next_obs, episode.name),
        actions=episode.action,
        rewards=np.asarray(episode.reward, np.float64),
        terminations=episode.terminated,
        truncations=episode.truncated,
        infos=infos,
    )


def _observations(obs: Any, next_obs: Any, name: str) -> Any:
    """T + 1 observations from T and those after them."""
    if isinstance(obs, dict):
        return {key: _observations(obs[key], next_obs[key], name) for key in obs}
    if not np.array_equal(obs[1:], next_obs[:-1], equal_nan=obs.dtype.kind == "f"):
        raise UnsupportedError(f"{name} has gaps between its steps, which Minari cannot say")
    return np.concatenate([obs, next_obs[-1:]])


def _statistics(episode: Demonstration) -> dict[str, float]:
    """What Minari's own collector tells of rewards."""
    reward = np.asarray(episode.reward, np.float64)
    numbers = {
        name: float(getattr(reward, name)()) for name in ("sum", "mean", "std", "min", "max")
    }
    return {f"rewards_{name}": number for name, number in numbers.items()}
