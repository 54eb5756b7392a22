"""Datasets as Minari's own writer leaves them, and ours as Minari reads them."""

from __future__ import annotations

import shutil

import gymnasium as gym
import minari
import numpy as np
import pytest
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box, Dict, Discrete, Tuple
from minari.data_collector import EpisodeBuffer
from minari.dataset.minari_storage import MinariStorage

from relive import ReplayBuffer, fields_of
from relive.demos import Filter, load, read, write_minari
from relive.errors import ConfigError, InputError, UnsupportedError
from tests.unit.demos import files

formats = pytest.mark.parametrize("data_format", ["hdf5", "arrow", "parquet"])
VECTOR = Box(-1, 1, (3,), np.float32)
PICTURE = Box(0, 255, (32, 40, 3), np.uint8)
SPACES = {
    "a vector": VECTOR,
    "a matrix": Box(-1, 1, (2, 3), np.float64),
    "a number": Discrete(7),
    "nested groups": Dict({"hand": Dict({"at": VECTOR, "closed": Discrete(2)}), "goal": VECTOR}),
    "a tuple": Tuple([VECTOR, Discrete(3)]),
    "a picture": PICTURE,
    "a picture beside a vector": Dict({"camera": PICTURE, "at": VECTOR}),
}


class Spaces(gym.Env):
    """An environment that has spaces and does nothing."""

    spec = None

    def __init__(self, observation_space, action_space=VECTOR):
        self.observation_space, self.action_space = observation_space, action_space


def drawn(space, count):
    """That many values of a space, stacked as Minari takes them."""
    if isinstance(space, Dict):
        return {key: drawn(sub, count) for key, sub in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(drawn(sub, count) for sub in space.spaces)
    space.seed(count)
    if space is PICTURE:  # smooth, as JPEG likes them
        steps = np.arange(count)[:, None, None, None]
        rows, columns = np.arange(32)[None, :, None, None], np.arange(40)[None, None, :, None]
        return (3 * rows + 2 * columns + 5 * steps + np.zeros((1, 1, 1, 3))).astype(np.uint8)
    return np.stack([space.sample() for _ in range(count)])


def official(folder, space, lengths=(4, 2), action=VECTOR, **settings):
    """A dataset by Minari's writer, and the values that went in."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    storage = MinariStorage.new(folder, space, action, **settings)
    storage.update_metadata({"dataset_id": "x-v0", "minari_version": minari.__version__})
    given = []
    for steps in lengths:
        ends = np.arange(steps) == steps - 1
        given.append(
            EpisodeBuffer(
                seed=steps,
                observations=drawn(space, steps + 1),
                actions=drawn(action, steps),
                rewards=np.arange(steps) + 0.5,
                terminations=ends & (steps == 4),
                truncations=ends & (steps != 4),
            )
        )
    storage.update_episodes(given)
    return given


def same(values, expected):
    """Assert equality; a tuple has become a dict."""
    if isinstance(expected, tuple):
        expected = {str(number): part for number, part in enumerate(expected)}
    if isinstance(expected, dict):
        assert values.keys() == expected.keys()
        for key in expected:
            same(values[key], expected[key])
    else:
        np.testing.assert_array_equal(values, expected, strict=True)


def steps_of(values, start, stop):
    if isinstance(values, dict):
        return {key: steps_of(part, start, stop) for key, part in values.items()}
    if isinstance(values, tuple):
        return tuple(steps_of(part, start, stop) for part in values)
    return values[start:stop]


@formats
@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_every_space_comes_back_number_for_number(space, data_format, tmp_path):
    folder = tmp_path / "data"
    given = official(folder, space, data_format=data_format, jpeg_encoding=False)
    for path in (tmp_path, folder):
        found = list(read(path))
        assert len(found) == len(given)
        for episode, true in zip(found, given, strict=True):
            steps = len(true.rewards)
            same(episode.obs, steps_of(true.observations, 0, steps))
            same(episode.next_obs, steps_of(true.observations, 1, steps + 1))
            same(episode.action, true.actions)
            same(episode.reward, true.rewards)
            same(episode.terminated, true.terminations)
            same(episode.truncated, true.truncations)
            assert episode.seed == true.seed
            assert episode.success is None


@formats
@pytest.mark.parametrize("name", ["a picture", "a picture beside a vector"])
def test_pictures_in_jpeg_are_those_that_minari_reads(name, data_format, tmp_path):
    given = official(tmp_path, SPACES[name], data_format=data_format)
    theirs = minari.MinariDataset(tmp_path).iterate_episodes()
    for episode, other, true in zip(read(tmp_path), theirs, given, strict=True):
        seen, expected, put = episode.next_obs, other.observations, true.observations
        if isinstance(seen, dict):
            same(seen["at"], put["at"][1:])
            seen, expected, put = seen["camera"], expected["camera"], put["camera"]
        same(seen, expected[1:])
        assert abs(seen.astype(int) - put[1:]).mean() < 12  # JPEG loses a little


@formats
def test_nested_groups_and_numbered_actions_go_into_a_buffer_for_such_an_environment(
    data_format, tmp_path
):
    space, action = SPACES["nested groups"], Discrete(4)
    given = official(tmp_path, space, action=action, data_format=data_format)
    buffer = ReplayBuffer(50, fields_of(Spaces(space, action)), n_step=2)
    assert load(buffer, tmp_path).rows == 6
    at = np.concatenate([e.observations["hand"]["at"][:-1] for e in given])
    assert np.array_equal(buffer.all().obs["hand"]["at"], at)
    assert buffer.all().action.tolist() == np.concatenate([e.actions for e in given]).tolist()


def test_success_is_what_infos_say_or_else_what_the_environment_asks_for(tmp_path):
    env = gym.make("MountainCarContinuous-v0")  # solved from a return of 90 on
    known = [
        files.Known(np.zeros((3, 2), np.float32), np.zeros((2, 1), np.float32), rewards, True)
        for rewards in (np.array([-1.0, 95.0]), np.array([-1.0, 80.0]))
    ]
    episodes = list(read(files.minari_hdf5(tmp_path, known)))
    write_minari(tmp_path / "a", episodes, env)
    assert [episode.success for episode in read(tmp_path / "a")] == [True, False]
    where = Filter(successful_only=True)
    assert load(ReplayBuffer.for_env(env, 20), tmp_path / "a", where=where).episodes == 1
    for data_format in ("hdf5", "arrow"):
        import dataclasses

        told = [dataclasses.replace(episode, success=False) for episode in episodes]
        write_minari(tmp_path / data_format, told, env, data_format=data_format)
        assert [e.success for e in read(tmp_path / data_format)] == [False, False]
    env.close()


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
@pytest.mark.parametrize("name", ["a vector", "nested groups", "a picture"])
def test_what_is_written_is_read_by_minari_and_by_us(name, data_format, tmp_path, monkeypatch):
    space = SPACES[name]
    given = official(tmp_path / "given", space, jpeg_encoding=False)
    out = tmp_path / "root" / "some-v3"
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "root"))
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path / "home")
    episodes = list(read(tmp_path / "given"))
    write_minari(out, episodes, Spaces(space), data_format=data_format,
                 about={"algorithm_name": "a hand"})  # fmt: skip
    dataset = minari.load_dataset("some-v3")
    assert (dataset.total_episodes, dataset.total_steps) == (2, 6)
    assert dataset.storage.metadata["algorithm_name"] == "a hand"
    for theirs, ours, true in zip(dataset.iterate_episodes(), read(out), given, strict=True):
        same(theirs.observations, true.observations)
        same(theirs.rewards, true.rewards)
        same(ours.obs, steps_of(true.observations, 0, len(true.rewards)))
        assert ours.seed == true.seed
    told = list(dataset.storage.get_episode_metadata([0]))[0]  # noqa: RUF015 - as they do
    assert told["rewards_sum"] == 8.0
    assert not (tmp_path / "home").exists()


def test_a_place_where_something_is_stays_as_it_is(tmp_path):
    episodes, env = list(read(files.minari_hdf5(tmp_path, files.known()))), Spaces(VECTOR)
    env.action_space = Box(-1, 1, (2,), np.float32)
    out = tmp_path / "out"
    write_minari(out, episodes, env)
    before = (out / "data/main_data.hdf5").read_bytes()
    with pytest.raises(InputError, match="out has a dataset in it; name another place, or replac"):
        write_minari(out, episodes[:1], env)
    assert (out / "data/main_data.hdf5").read_bytes() == before
    write_minari(out, episodes[:1], env, overwrite=True)
    assert len(list(read(out))) == 1
    (other := tmp_path / "other").mkdir()
    (other / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match="is no dataset of Minari"):
        write_minari(other, episodes, env, overwrite=True)
    assert (other / "thesis.txt").read_text() == "years of work"
    assert {path.name for path in tmp_path.iterdir()} == {"main_data.hdf5", "other", "out"}


def test_a_dataset_is_replaced_though_a_killed_process_left_the_one_before_it_behind(tmp_path):
    episodes = list(read(files.minari_hdf5(tmp_path, files.known())))
    env = Spaces(VECTOR, Box(-1, 1, (2,), np.float32))
    write_minari(tmp_path / "out", episodes, env)
    for left in ("old", "part"):
        shutil.copytree(tmp_path / "out", tmp_path / f".out.{left}")
    write_minari(tmp_path / "out", episodes[:1], env, overwrite=True)
    assert len(list(read(tmp_path / "out"))) == 1
    assert {path.name for path in tmp_path.iterdir()} == {"main_data.hdf5", "out"}


def test_a_write_that_fails_leaves_nothing_and_the_dataset_before(tmp_path, monkeypatch):
    episodes = list(read(files.minari_hdf5(tmp_path, files.known())))
    env = Spaces(VECTOR, Box(-1, 1, (2,), np.float32))
    write_minari(tmp_path / "out", episodes, env)

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("minari.dataset._storages.hdf5_storage.HDF5Storage.update_episodes", full)
    for place in ("out", "new"):
        with pytest.raises(OSError, match="no space left"):
            write_minari(tmp_path / place, episodes, env, overwrite=True)
    monkeypatch.undo()
    assert len(list(read(tmp_path / "out"))) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"main_data.hdf5", "out"}


def test_an_environment_that_is_registered_with_a_class_is_recorded_without_its_words(tmp_path):
    env = Spaces(VECTOR)
    env.spec = EnvSpec("Spaces-v0", entry_point=Spaces)
    with pytest.raises(ValueError, match="Callable"):
        env.spec.to_json()
    episodes = list(read(files.d4rl(tmp_path, files.known((4,)))))
    write_minari(tmp_path / "out", episodes, env)
    (again,) = read(tmp_path / "out")
    assert again.reward.tolist() == episodes[0].reward.tolist()


def test_what_minari_cannot_say_is_refused(tmp_path):
    env = Spaces(VECTOR)
    with pytest.raises(ConfigError, match="data_format is hdf5 or arrow; given 'csv'"):
        write_minari(tmp_path / "out", [], env, data_format="csv")
    with pytest.raises(InputError, match="there are no episodes"):
        write_minari(tmp_path / "out", [], env)
    tree = files.flat(files.known((4,)))
    tree["next_observations"] = tree["next_observations"] + 1
    gaps = read(files.hdf5(tmp_path / "gaps.hdf5", tree))
    with pytest.raises(UnsupportedError, match="steps 0 to 3 has gaps"):
        write_minari(tmp_path / "out", gaps, env)
    cut = read(files.lerobot(tmp_path / "l", files.known((1,))), last_step="drop",
               done_means="truncated")  # fmt: skip
    with pytest.raises(InputError, match="episode 0 has no steps"):
        write_minari(tmp_path / "out", cut, env)
    assert not (tmp_path / "out").exists()


def test_a_dataset_is_found_by_the_name_that_minari_has_for_it(tmp_path, monkeypatch):
    root, space = tmp_path / "root", SPACES["a vector"]
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(root))
    official(root / "my" / "vectors-v0" / "data", space)
    monkeypatch.chdir(tmp_path)
    buffers = [ReplayBuffer(50, fields_of(Spaces(space))) for _ in range(2)]
    assert load(buffers[0], "my/vectors-v0").path == root / "my" / "vectors-v0"
    assert len(list(read("my/vectors-v0"))) == 2
    dataset = minari.load_dataset("my/vectors-v0")
    assert load(buffers[1], dataset).rows == 6
    assert torch.equal(buffers[0].all().obs, buffers[1].all().obs)
    some = dataset.filter_episodes(lambda episode: episode.id == 1)
    with pytest.raises(InputError, match="only 1 of its episodes are given; choose some by where"):
        read(some)
    said = "there is no file or folder my/vector-v0 to .*, nor a dataset .*root/my/vector-v0 of Min"
    with pytest.raises(InputError, match=said):
        read("my/vector-v0")


def test_minari_keeps_datasets_at_home_if_nothing_else_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("MINARI_DATASETS_PATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    official(tmp_path / ".minari/datasets/vectors-v0/data", SPACES["a vector"])
    assert len(list(read("vectors-v0"))) == 2
    assert minari.load_dataset("vectors-v0").total_episodes == 2


def test_arrays_of_ones_own_become_a_dataset(tmp_path):
    env = Spaces(VECTOR, Box(-1, 1, (2,), np.float32))
    known = files.known((3,))[0]
    episode = {"obs": known.obs, "action": known.action, "reward": known.reward,
               "terminated": known.ends}  # fmt: skip
    write_minari(tmp_path / "own", [episode], env)
    (again,) = read(tmp_path / "own")
    assert np.array_equal(again.next_obs, known.obs[1:])
    assert again.ended == "terminated"
    with pytest.raises(InputError, match=r"episode 0: missing: .*'reward'"):
        write_minari(tmp_path / "other", [{"obs": known.obs}], env)
    assert not (tmp_path / "other").exists()
