"""Every format gives the known episodes back, number for number."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relive.demos import FORMATS, read
from relive.errors import ConfigError, CorruptError, InputError, UnsupportedError
from tests.unit.demos import files

WRITERS = {
    "minari": files.minari_hdf5,
    "minari arrow": files.minari_arrow,
    "d4rl": files.d4rl,
    "robomimic": files.robomimic,
    "lerobot": files.lerobot,
}
SAID = {
    "robomimic": {"done_means": "terminated"},
    "lerobot": {"done_means": "terminated", "last_step": "repeat"},
}


def written(kind: str, folder: Path, episodes: list[files.Known]) -> Path:
    return WRITERS[kind](folder, episodes)


def together(obs):
    """Observations as one array, also where a format has them in two keys."""
    return np.concatenate([obs["hand"], obs["cube"]], axis=1) if isinstance(obs, dict) else obs


def same(kind, found, known):
    """Assert that episodes are the known ones, as far as the format can say."""
    assert len(found) == len(known)
    for episode, true in zip(found, known, strict=True):
        assert np.array_equal(together(episode.obs), true.obs[:-1])
        assert np.array_equal(episode.action, true.action)
        assert np.array_equal(episode.reward, true.reward)
        assert episode.episode_return == pytest.approx(float(true.reward.sum()), abs=1e-5)
        ended = true.terminated or kind in SAID  # these do not tell
        assert episode.terminated.tolist() == (true.ends & ended).tolist()
        assert episode.truncated.tolist() == (true.ends & (not ended)).tolist()
        if kind != "lerobot":
            assert np.array_equal(together(episode.next_obs), true.obs[1:])
        else:
            assert np.array_equal(episode.next_obs[:-1], true.obs[1:-1])
            assert np.array_equal(episode.next_obs[-1], true.obs[-2])


@pytest.mark.parametrize("kind", WRITERS)
def test_each_format_is_found_and_read_number_for_number(kind, tmp_path):
    known = files.known()
    path = written(kind, tmp_path, known)
    same(kind, list(read(path, **SAID.get(kind, {}))), known)
    said = SAID.get(kind, {})
    same(kind, list(read(str(path), format=kind.split()[0], **said)), known)


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=15)  # files cost time
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_any_episodes_come_back(kind, lengths, seed):
    known = files.known(lengths, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = written(kind, Path(folder), known)
        same(kind, list(read(path, **SAID.get(kind, {}))), known)


def test_the_row_of_padding_in_arrow_is_no_step(tmp_path):
    known = files.known((5,))
    (episode,) = read(files.minari_arrow(tmp_path, known))
    assert len(episode) == 5
    assert np.array_equal(episode.next_obs[-1], known[0].obs[5])
    assert episode.terminated.tolist() == [False] * 4 + [True]


def test_without_timeouts_an_episode_ends_where_observations_do_not_follow(tmp_path):
    known = files.known((4, 2, 3))  # the second is cut off
    found = list(read(files.d4rl(tmp_path, known, without=("timeouts",))))
    assert [len(episode) for episode in found] == [4, 2, 3]
    assert [episode.ended for episode in found] == ["terminated", "unfinished", "terminated"]
    assert np.array_equal(found[1].next_obs, known[1].obs[1:])
    found = list(read(files.d4rl(tmp_path, known, without=("timeouts", "terminals"))))
    assert [len(episode) for episode in found] == [4, 2, 3]
    assert {episode.ended for episode in found} == {"unfinished"}


def test_observations_that_differ_by_rounding_only_follow_one_another(tmp_path):
    tree = files.flat(files.known((6,)))
    tree["next_observations"] = tree["next_observations"] + np.float32(5e-7)
    del tree["timeouts"], tree["terminals"]
    (episode,) = read(files.hdf5(tmp_path / "a.hdf5", tree))
    assert len(episode) == 6


def test_where_nothing_tells_of_cuts_a_flat_file_is_refused(tmp_path):
    path = files.d4rl(tmp_path, files.known(), without=("timeouts", "next_observations"))
    with pytest.raises(InputError, match="nothing tells where an episode was cut off"):
        next(read(path))


def test_a_last_step_without_a_next_observation_is_dropped_or_repeated_as_is_said(tmp_path):
    known = files.known((4, 3))  # the first terminates, the second is cut off
    path = files.d4rl(tmp_path, known, without=("next_observations",))
    with pytest.raises(InputError, match=r"flat.hdf5: steps 4 to 6: .*last_step='drop'"):
        list(read(path))
    dropped, repeated = ([*read(path, last_step=how)] for how in ("drop", "repeat"))
    assert [len(episode) for episode in dropped] == [4, 2]  # one that terminated needs none
    assert [episode.dropped for episode in dropped] == [0, 1]
    assert [len(episode) for episode in repeated] == [4, 3]
    assert np.array_equal(repeated[1].next_obs[-1], known[1].obs[2])
    assert np.array_equal(dropped[1].next_obs, known[1].obs[1:3])
    for episode, true in zip(dropped, known, strict=True):
        assert episode.episode_return == pytest.approx(true.reward.sum(), abs=1e-5)
    assert dropped[1].ended == "unfinished"


@pytest.mark.parametrize(("means", "ended"), [("terminated", True), ("truncated", False)])
def test_what_done_means_is_said_and_not_guessed(means, ended, tmp_path):
    for kind in ("lerobot", "robomimic"):
        (folder := tmp_path / kind).mkdir()
        path = written(kind, folder, files.known((3,)))
        with pytest.raises(InputError, match="does not tell termination from truncation"):
            list(read(path, last_step="drop"))
        (episode,) = read(path, last_step="repeat", done_means=means)
        assert episode.terminated.tolist() == [False, False, ended]
        assert episode.truncated.tolist() == [False, False, not ended]


def test_an_episode_of_one_frame_may_have_nothing_left(tmp_path):
    path = files.lerobot(tmp_path, files.known((1, 2)))
    found = list(read(path, last_step="drop", done_means="truncated"))
    assert [(len(episode), episode.dropped) for episode in found] == [(0, 1), (1, 1)]
    assert found[0].ended == "unfinished"


def test_frames_in_several_files_and_without_done_are_read(tmp_path):
    known = files.known((3, 2, 4, 1))
    path = files.lerobot(tmp_path, known, files=2, done=False)
    found = list(read(path, last_step="repeat"))
    assert [len(episode) for episode in found] == [3, 2, 4, 1]
    assert np.array_equal(found[2].obs, known[2].obs[:-1])
    assert {episode.ended for episode in found} == {"unfinished"}
    with pytest.raises(InputError, match=r"there is no next.done"):
        list(read(path, last_step="repeat", done_means="terminated"))


def test_robomimic_episodes_come_in_the_order_of_their_numbers(tmp_path):
    known = files.known([1] * 12)
    found = list(read(files.robomimic(tmp_path, known), done_means="truncated"))
    assert [episode.name for episode in found] == [f"demo_{number}" for number in range(12)]
    assert np.array_equal(together(found[11].obs), known[11].obs[:-1])


def test_robomimic_without_next_observations_needs_a_word(tmp_path):
    path = files.robomimic(tmp_path, files.known((3,)), next_obs=False)
    (episode,) = read(path, done_means="truncated", last_step="drop")
    assert len(episode) == 2


def test_only_the_observations_asked_for_are_read(tmp_path):
    path = files.robomimic(tmp_path, files.known((3,)))
    (episode,) = read(path, done_means="truncated", keys=["cube"])
    assert list(episode.obs) == list(episode.next_obs) == ["cube"]


@pytest.mark.parametrize(
    ("rewards", "success"), [([0, 0, 1], True), ([0, 0, 0], False), ([0, 0.3, 1], None)]
)
def test_sparse_rewards_of_robomimic_tell_success(rewards, success, tmp_path):
    (known,) = files.known((3,))
    path = files.robomimic(tmp_path, [known._replace(reward=np.array(rewards, np.float32))])
    (episode,) = read(path, done_means="truncated")
    assert episode.success is success


def test_success_of_a_flat_file_is_in_its_infos(tmp_path):
    tree = files.flat(files.known((2, 2)))
    tree["infos/goal_achieved"] = [False, False, True, False]
    found = list(read(files.hdf5(tmp_path / "a.hdf5", tree)))
    assert [episode.success for episode in found] == [False, True]


def test_success_of_lerobot_is_a_column(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = files.lerobot(tmp_path, files.known((2, 2)))
    file = path / "data/chunk-000/file-000.parquet"
    flags = pa.array([False, False, False, True])
    pq.write_table(pq.read_table(file).append_column("next.success", flags), file)
    found = list(read(path, last_step="drop", done_means="truncated"))
    assert [episode.success for episode in found] == [False, True]


def test_options_that_a_format_does_not_leave_open_are_refused(tmp_path):
    path = files.minari_hdf5(tmp_path, files.known())
    with pytest.raises(ConfigError, match="last_step 'drop' does nothing with"):
        read(path, last_step="drop")
    with pytest.raises(ConfigError, match="done_means 'truncated' does nothing"):
        read(path, done_means="truncated")
    with pytest.raises(ConfigError, match="last_step is drop or repeat"):
        read(path, last_step="keep")
    with pytest.raises(ConfigError, match="format is minari, d4rl"):
        read(path, format="zarr")
    with pytest.raises(InputError, match=r"main_data.hdf5 is minari, not d4rl"):
        read(path, format="d4rl")


def test_the_words_of_an_episode_tell_what_it_is(tmp_path):
    known = [files.Known(np.zeros((3, 3)), np.zeros((2, 2)), np.array([1.0, 0.5]), True)]
    (episode,) = read(files.minari_hdf5(tmp_path, known))
    assert repr(episode) == "Demonstration(episode_0: 2 steps, return 1.5, terminated)"
    assert (len(episode), episode.length, episode.ended) == (2, 2, "terminated")


def test_versions_of_lerobot_before_3_are_refused_with_the_way_to_convert(tmp_path):
    path = files.lerobot(tmp_path, files.known())
    info = json.loads((path / "meta/info.json").read_text())
    (path / "meta/info.json").write_text(json.dumps(info | {"codebase_version": "v2.1"}))
    with pytest.raises(UnsupportedError, match=r"'v2.1'.*convert_dataset_v21_to_v30"):
        list(read(path))


def test_what_the_writer_of_lerobot_itself_has_written_is_read():
    # LeRobotDataset.create, add_frame, save_episode, finalize of lerobot 0.4.4; observations, then
    # actions, are standard normal draws of one generator
    path = Path(__file__).parent / "written" / "lerobot_0.4.4"
    rng = np.random.default_rng(0)
    episodes = list(read(path, last_step="repeat", done_means="terminated"))
    assert [len(episode) for episode in episodes] == [4, 2, 5]
    assert [episode.success for episode in episodes] == [False, True, False]
    for number, episode in enumerate(episodes):
        count = len(episode)
        drawn = rng.standard_normal((count, 5)).astype(np.float32)
        assert np.array_equal(episode.obs, drawn[:, :3])
        assert np.array_equal(episode.action, drawn[:, 3:])
        assert np.array_equal(episode.next_obs[:-1], drawn[1:, :3])
        assert episode.reward.tolist() == [10.0 * number + step for step in range(count)]
        assert episode.terminated.tolist() == [False] * (count - 1) + [True]
        assert not episode.truncated.any()


def test_every_format_says_what_it_is():
    assert set(FORMATS) == {kind.split()[0] for kind in WRITERS}
    assert all(form.what for form in FORMATS.values())


def test_widths_that_lie_are_noticed(tmp_path):
    path = files.minari_arrow(tmp_path, files.known())
    told = json.loads((path / "1/metadata.json").read_text())
    (path / "1/metadata.json").write_text(json.dumps(told | {"total_steps": 2}))
    episodes = read(path)
    next(episodes)
    with pytest.raises(CorruptError, match=r"1/part-0.arrow: 2 rows, expected 3"):
        next(episodes)


HDF5_WRITERS = {name: WRITERS[name] for name in ("minari", "d4rl", "robomimic")}


@pytest.mark.parametrize("beside", [True, False], ids=["beside another", "alone"])
@pytest.mark.parametrize("kind", HDF5_WRITERS)
def test_the_file_that_is_named_is_the_one_that_is_read(kind, beside, tmp_path):
    known = files.known((2, 5), seed=1)
    path = written(kind, tmp_path, known)
    path = path.rename(path.with_name("experts.hdf5"))
    if beside:
        written(kind, tmp_path, files.known((3,), seed=2))
        files.minari_hdf5(tmp_path, files.known((4,), seed=3))
        (tmp_path / "metadata.json").write_text(json.dumps({"total_episodes": 1}))
    same(kind, list(read(path, **SAID.get(kind, {}))), known)


def test_metadata_tells_of_the_main_file_only(tmp_path):
    main = files.minari_hdf5(tmp_path, files.known((3, 2)))
    spec = json.dumps({"id": "Main-v0", "reward_threshold": -1e9})
    told = {"total_episodes": 2, "env_spec": spec}
    (tmp_path / "metadata.json").write_text(json.dumps(told))
    other = tmp_path / "experts.hdf5"
    other.write_bytes(main.read_bytes())
    told_of = [[(e.env, e.success) for e in read(path)] for path in (main, other)]
    assert told_of == [[("Main-v0", True)] * 2, [(None, None)] * 2]
    (tmp_path / "metadata.json").write_text(json.dumps(told | {"total_episodes": 3}))
    with pytest.raises(CorruptError, match=r"tells of 3 episodes, main_data.hdf5 has 2"):
        next(read(main))
    assert len(list(read(other))) == 2


def test_a_file_beside_tables_of_arrow_is_not_taken_for_them(tmp_path):
    files.minari_arrow(tmp_path, files.known((4,), seed=1))
    known = files.known((3, 2), seed=2)
    same("minari", list(read(files.minari_hdf5(tmp_path, known))), known)
    same("minari arrow", list(read(tmp_path)), files.known((4,), seed=1))
