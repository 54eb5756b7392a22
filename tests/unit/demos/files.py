"""Files of demonstrations, written by hand from known episodes.

T  steps of an episode
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path


class Known(NamedTuple):
    """An episode: `[T + 1, 3]` observations, `[T, 2]` actions; how it ended."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    terminated: bool

    @property
    def ends(self) -> np.ndarray:
        """True at its last step."""
        return np.arange(len(self.reward)) == len(self.reward) - 1


def known(lengths=(4, 1, 3), seed=0) -> list[Known]:
    """Episodes of these lengths; every second one is truncated, the others terminate."""
    rng = np.random.default_rng(seed)
    return [
        Known(
            rng.normal(size=(steps + 1, 3)).astype(np.float32),
            rng.uniform(-1, 1, size=(steps, 2)).astype(np.float32),
            rng.normal(size=steps).astype(np.float32),
            number % 2 == 0,
        )
        for number, steps in enumerate(lengths)
    ]


def flat(episodes: list[Known]) -> dict[str, np.ndarray]:
    """All steps one after the other, by D4RL's names."""
    return {
        "observations": np.concatenate([e.obs[:-1] for e in episodes]),
        "next_observations": np.concatenate([e.obs[1:] for e in episodes]),
        "actions": np.concatenate([e.action for e in episodes]),
        "rewards": np.concatenate([e.reward for e in episodes]),
        "terminals": np.concatenate([e.ends & e.terminated for e in episodes]),
        "timeouts": np.concatenate([e.ends & (not e.terminated) for e in episodes]),
    }


def hdf5(path: Path, tree: dict[str, Any], attributes: dict[str, dict] | None = None) -> Path:
    """A file with these datasets; keys may be paths. Attributes by the path of their group."""
    with h5py.File(path, "w") as file:
        for name, values in tree.items():
            file.create_dataset(name, data=values)
        for name, attrs in (attributes or {}).items():
            file.require_group(name).attrs.update(attrs)
    return path


def d4rl(folder: Path, episodes: list[Known], without: tuple[str, ...] = ()) -> Path:
    tree = {name: values for name, values in flat(episodes).items() if name not in without}
    return hdf5(folder / "flat.hdf5", tree)


def robomimic(folder: Path, episodes: list[Known], *, next_obs: bool = True) -> Path:
    """Observations in two keys, `[T, 2]` and `[T, 1]`; `dones` at the end of every episode."""
    tree, attributes = {}, {"data": {"total": sum(len(e.reward) for e in episodes)}}
    attributes["data"]["env_args"] = json.dumps({"env_name": "Lift"})
    for number, episode in enumerate(episodes):
        group = f"data/demo_{number}"
        sides = {"obs": episode.obs[:-1], "next_obs": episode.obs[1:]}
        for side, obs in sides.items() if next_obs else [("obs", sides["obs"])]:
            tree[f"{group}/{side}/hand"] = obs[:, :2]
            tree[f"{group}/{side}/cube"] = obs[:, 2:]
        tree |= {f"{group}/actions": episode.action, f"{group}/rewards": episode.reward}
        tree |= {f"{group}/dones": episode.ends.astype(np.int64)}
        attributes[group] = {"num_samples": len(episode.reward)}
    return hdf5(folder / "robomimic.hdf5", tree, attributes)


def vectors(values: np.ndarray) -> pa.Array:
    """Rows as LeRobot writes them: lists of fixed size."""
    return pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])


def lerobot(folder: Path, episodes: list[Known], *, files: int = 1, done: bool = True) -> Path:
    """Frames of all episodes, the first ones in the first file."""
    (folder / "meta" / "episodes" / "chunk-000").mkdir(parents=True)
    (folder / "data" / "chunk-000").mkdir(parents=True)
    lengths = [len(e.reward) for e in episodes]
    of_file = [number * files // len(episodes) for number in range(len(episodes))]
    features = {
        "observation.state": {"dtype": "float32", "shape": [3], "names": None},
        "action": {"dtype": "float32", "shape": [2], "names": None},
        "next.reward": {"dtype": "float32", "shape": [1], "names": None},
        "next.done": {"dtype": "bool", "shape": [1], "names": None},
    }
    info = {
        "codebase_version": "v3.0",
        "total_episodes": len(episodes),
        "total_frames": sum(lengths),
        "features": features,
    }
    (folder / "meta" / "info.json").write_text(json.dumps(info))
    for file in range(files):
        held = [(n, e) for n, e in enumerate(episodes) if of_file[n] == file]
        table = {
            "observation.state": vectors(np.concatenate([e.obs[:-1] for _, e in held])),
            "action": vectors(np.concatenate([e.action for _, e in held])),
            "next.reward": np.concatenate([e.reward for _, e in held]),
            "episode_index": np.concatenate([np.full(len(e.reward), n) for n, e in held]),
            "frame_index": np.concatenate([np.arange(len(e.reward)) for _, e in held]),
        }
        if done:
            table["next.done"] = np.concatenate([e.ends for _, e in held])
        pq.write_table(pa.table(table), folder / f"data/chunk-000/file-{file:03d}.parquet")
    index = {
        "episode_index": list(range(len(episodes))),
        "length": lengths,
        "data/chunk_index": [0] * len(episodes),
        "data/file_index": of_file,
    }
    pq.write_table(pa.table(index), folder / "meta/episodes/chunk-000/file-000.parquet")
    return folder


def minari_hdf5(folder: Path, episodes: list[Known]) -> Path:
    """The file alone, as written before there was metadata beside it."""
    tree, attributes = {}, {}
    for number, episode in enumerate(episodes):
        group = f"episode_{number}"
        tree |= {f"{group}/observations": episode.obs, f"{group}/actions": episode.action}
        tree[f"{group}/rewards"] = episode.reward.astype(np.float64)
        tree[f"{group}/terminations"] = episode.ends & episode.terminated
        tree[f"{group}/truncations"] = episode.ends & (not episode.terminated)
        attributes[group] = {"id": number, "total_steps": len(episode.reward)}
    return hdf5(folder / "main_data.hdf5", tree, attributes)


def minari_arrow(folder: Path, episodes: list[Known]) -> Path:
    """A table for each episode, with the row of padding behind its last step."""
    total = {"total_episodes": len(episodes), "total_steps": sum(len(e.reward) for e in episodes)}
    spaces = {
        "observation_space": json.dumps({"type": "Box", "shape": [3], "dtype": "float32"}),
        "action_space": json.dumps({"type": "Box", "shape": [2], "dtype": "float32"}),
    }
    folder.mkdir(exist_ok=True)
    (folder / "metadata.json").write_text(json.dumps({"data_format": "arrow", **total, **spaces}))
    for number, episode in enumerate(episodes):
        (folder / str(number)).mkdir()
        steps = {"id": number, "total_steps": len(episode.reward)}
        (folder / str(number) / "metadata.json").write_text(json.dumps(steps))
        table = pa.table(
            {
                "observations": vectors(episode.obs),
                "actions": vectors(np.pad(episode.action, ((0, 1), (0, 0)))),
                "rewards": np.pad(episode.reward.astype(np.float64), (0, 1)),
                "terminations": np.pad(episode.ends & episode.terminated, (0, 1)),
                "truncations": np.pad(episode.ends & (not episode.terminated), (0, 1)),
            }
        )
        with pa.ipc.new_file(folder / str(number) / "part-0.arrow", table.schema) as writer:
            writer.write_table(table)
    return folder
