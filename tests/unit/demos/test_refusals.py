"""What is refused: pickles, and files that are damaged, cut off or something else."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import sys
from contextlib import suppress

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relive import Field, ReplayBuffer
from relive.demos import load, read
from relive.errors import (
    CorruptError,
    InputError,
    MissingExtraError,
    ReliveError,
    UnsupportedError,
)
from tests.unit.demos import files
from tests.unit.demos.test_formats import SAID, WRITERS, written


class Marker:
    """Unpickled, it makes a folder: the trace of code that has run."""

    def __init__(self, folder):
        self._folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self._folder,)


def buffer(kind="d4rl"):
    split = {"hand": Field((2,)), "cube": Field((1,))}
    obs = split if kind == "robomimic" else Field((3,))
    return ReplayBuffer(100, {"obs": obs, "action": Field((2,))})


def refused(path, kind, said, **options):
    """Assert that reading and loading are refused, and that the buffer is as it was."""
    into = buffer()
    for attempt in (lambda: list(read(path, **options)), lambda: load(into, path, **options)):
        with pytest.raises(kind, match=said) as raised:
            attempt()
        assert path.name in str(raised.value)
        assert "\n" not in str(raised.value)
        assert len(into) == into.stats()["added"] == 0


@pytest.mark.parametrize("name", ["demos.pkl", "demos.hdf5", "demos.pt", "demos"])
def test_a_pickle_is_refused_whatever_its_name_and_never_opened(name, tmp_path):
    path, marker = tmp_path / name, tmp_path / "marker"
    path.write_bytes(pickle.dumps([Marker(marker)]))
    refused(path, UnsupportedError, "is a pickle, or may hold one")
    assert not marker.exists()
    pickle.loads(path.read_bytes())
    assert marker.exists()  # it would have been


@pytest.mark.parametrize("save", [np.save, np.savez])
def test_arrays_of_numpy_with_pickles_are_refused(save, tmp_path):
    path, marker = tmp_path / "demos.npz", tmp_path / "marker"
    with path.open("wb") as file:
        save(file, np.array([Marker(marker)], dtype=object))
    refused(path, UnsupportedError, "is a pickle, or may hold one")
    refused(path.rename(tmp_path / "demos.bin"), UnsupportedError, "is a pickle")
    assert not marker.exists()


@pytest.mark.parametrize("kind", ["objects", "opaque", "strings"])
@pytest.mark.parametrize("name", ["observations", "actions", "rewards", "terminals"])
def test_datasets_of_pickled_objects_are_refused(kind, name, tmp_path):
    path, marker = files.d4rl(tmp_path, files.known((2,))), tmp_path / "marker"
    content = pickle.dumps(Marker(marker), protocol=0)
    with h5py.File(path, "a") as file:
        del file[name]
        if kind == "objects":
            data = file.create_dataset(name, (2,), h5py.vlen_dtype(np.uint8))
            data[0] = data[1] = np.frombuffer(content, np.uint8)
        elif kind == "opaque":
            file[name] = np.array([content, content], f"V{len(content)}")
        else:
            file.create_dataset(name, data=[content] * 2, dtype=h5py.string_dtype())
    refused(path, UnsupportedError, f"{name} has dtype .* never read, because reading a pickle")
    assert not marker.exists()


def test_columns_of_pickled_objects_are_refused(tmp_path):
    path, marker = files.lerobot(tmp_path / "demos", files.known((2,))), tmp_path / "marker"
    file = path / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    place = table.column_names.index("action")
    column = pa.array([pickle.dumps(Marker(marker))] * 2)
    pq.write_table(table.set_column(place, "action", column), file)
    refused(path, UnsupportedError, "action has type binary", **SAID["lerobot"])
    assert not marker.exists()


def test_links_into_other_files_are_refused(tmp_path):
    path = files.d4rl(tmp_path, files.known((2,)))
    other = files.hdf5(tmp_path / "other.hdf5", {"rewards": [1.0, 2.0]})
    with h5py.File(path, "a") as file:
        del file["rewards"]
        file["rewards"] = h5py.ExternalLink(other.name, "rewards")
    refused(path, UnsupportedError, "rewards is a link into another file")
    with h5py.File(path, "a") as file:
        del file["rewards"]
        layout = h5py.VirtualLayout((2,), np.float64)
        layout[:] = h5py.VirtualSource(other, "rewards", (2,))
        file.create_virtual_dataset("rewards", layout)
    refused(path, UnsupportedError, "rewards lies in another file")


def test_memory_that_the_file_cannot_fill_is_not_asked_for(tmp_path):
    path = files.d4rl(tmp_path, files.known((2,)))
    with h5py.File(path, "a") as file:
        del file["actions"]
        file.create_dataset("actions", (1 << 40, 2), "f4", chunks=(1 << 10, 2))
    refused(path, CorruptError, "actions is said to have 8796093022208 bytes, but the file stores")


@pytest.mark.parametrize("kind", WRITERS)
def test_a_file_that_was_cut_off_is_refused_by_name(kind, tmp_path):
    (folder := tmp_path / "demos").mkdir()
    path = written(kind, folder, files.known((30, 30), seed=1))
    inside = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in inside:
        content = file.read_bytes()
        for length in (0, 1, len(content) // 2, len(content) - 1):
            file.write_bytes(content[:length])
            into = buffer(kind)
            with pytest.raises(ReliveError, match=path.name) as raised:
                load(into, path, **SAID.get(kind, {}))
            assert isinstance(raised.value, CorruptError | InputError)
            assert len(into) == 0
        file.write_bytes(content)


@pytest.mark.parametrize("kind", WRITERS)
def test_bytes_that_changed_give_a_typed_error_or_other_numbers(kind, tmp_path):
    (folder := tmp_path / "demos").mkdir()
    path = written(kind, folder, files.known((3, 3)))
    inside = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    rng = np.random.default_rng(0)
    for _ in range(60):
        file = inside[rng.integers(len(inside))]
        content = file.read_bytes()
        changed = bytearray(content)
        changed[rng.integers(len(changed))] ^= int(rng.integers(1, 256))
        file.write_bytes(changed)
        into, rows = buffer(kind), 0
        with suppress(ReliveError):
            rows = load(into, path, **SAID.get(kind, {})).rows
        assert len(into) == rows
        file.write_bytes(content)


@pytest.mark.parametrize("name", ["actions", "rewards", "observations", "terminals"])
def test_fields_of_other_lengths_are_refused(name, tmp_path):
    tree = files.flat(files.known())
    tree[name] = tree[name][:-1]
    refused(files.hdf5(tmp_path / "a.hdf5", tree), CorruptError, "rewards, but")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("observations", "observations is missing"),
        ("rewards", "rewards is missing"),
        ("terminations", "terminations is missing"),
    ],
)
def test_a_missing_dataset_is_named(name, said, tmp_path):
    path = files.minari_hdf5(tmp_path, files.known())
    with h5py.File(path, "a") as file:
        del file["episode_1"][name]
    refused(path, CorruptError, f"main_data.hdf5: episode_1: {said}")


FLAGS = {
    "minari": ["episode_0/terminations", "episode_0/truncations", "episode_0/infos/success"],
    "minari arrow": ["terminations", "truncations", "infos/success"],
    "d4rl": ["terminals", "timeouts", "infos/goal_achieved"],
    "robomimic": ["data/demo_0/dones"],
    "lerobot": ["next.done", "next.success"],
}


def with_flags(kind, folder, name, values):
    """A file of one episode that has these flags."""
    (known,) = files.known((len(values),))
    path = written(kind, folder / "demos" if kind in ("minari arrow", "lerobot") else folder,
                   [known])  # fmt: skip
    if kind in ("minari", "d4rl", "robomimic"):
        with h5py.File(path, "a") as file:
            if name in file:
                del file[name]
            file[name] = values
        return path
    if kind == "lerobot":
        file = path / "data/chunk-000/file-000.parquet"
        table = pq.read_table(file)
    else:
        file = path / "0/part-0.arrow"
        with pa.OSFile(str(file), "rb") as source:
            table = pa.ipc.open_file(source).read_all()
        values = np.append(values, 0)  # the row of padding
    name, *inner = name.split("/")
    column = pa.array(values)
    if inner:
        column = pa.StructArray.from_arrays([column], inner)
    if name in table.column_names:
        table = table.drop_columns(name)
    table = table.append_column(name, column)
    if kind == "lerobot":
        pq.write_table(table, file)
    else:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
    return path


@pytest.mark.parametrize(("kind", "name"), [(k, name) for k in FLAGS for name in FLAGS[k]])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_flags_that_are_no_numbers_are_neither_true_nor_false(kind, name, value, dtype, tmp_path):
    path = with_flags(kind, tmp_path, name, np.array([0, value, 1], dtype))
    said = rf"{name.split('/')[-1]} of step 1 is {value}, neither true nor false; mend the file"
    refused(path, CorruptError, said, **SAID.get(kind, {}))


@pytest.mark.parametrize(("kind", "name"), [(k, name) for k in FLAGS for name in FLAGS[k]])
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int64, np.float32, np.float64])
def test_flags_may_be_numbers_of_any_dtype(kind, name, dtype, tmp_path):
    path = with_flags(kind, tmp_path, name, np.array([0, 0, 1], dtype))
    (episode,) = read(path, **SAID.get(kind, {}))
    if "success" in name or "achieved" in name:
        assert episode.success is True
    else:
        ended = episode.terminated | episode.truncated
        assert ended.tolist() == [False, False, True]


def test_the_row_of_padding_may_have_any_flags(tmp_path):
    path = with_flags("minari arrow", tmp_path, "terminations", np.array([0, 0, 1], np.float32))
    file = path / "0/part-0.arrow"
    with pa.OSFile(str(file), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    for name in ("terminations", "truncations", "rewards"):
        values = np.append(np.zeros(3, np.float32), np.nan)
        table = table.drop_columns(name).append_column(name, pa.array(values))
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    (episode,) = read(path)
    assert episode.ended == "unfinished"
    assert episode.reward.tolist() == [0, 0, 0]


ONE_SHORT = {"the first is missing": slice(1, None), "the last is missing": slice(None, -1)}


@pytest.mark.parametrize("part", ONE_SHORT.values(), ids=ONE_SHORT)
@pytest.mark.parametrize("ended", ["terminated", "truncated", "unfinished"])
@pytest.mark.parametrize("grouped", [False, True])
def test_minari_without_an_observation_behind_the_last_step_is_not_whole(
    part, ended, grouped, tmp_path
):
    (known,) = files.known((4,))
    path = files.minari_hdf5(tmp_path, [known])
    with h5py.File(path, "a") as file:
        group = file["episode_0"]
        del group["observations"], group["terminations"], group["truncations"]
        group["observations/hand" if grouped else "observations"] = known.obs[part]
        group["terminations"] = known.ends & (ended == "terminated")
        group["truncations"] = known.ends & (ended == "truncated")
    said = r"episode_0: 4 rewards, but observations \[4\], expected 5: .* copy the file again"
    refused(path, CorruptError, said)


@pytest.mark.parametrize("part", ONE_SHORT.values(), ids=ONE_SHORT)
@pytest.mark.parametrize("kind", ["arrow", "parquet"])
@pytest.mark.parametrize("terminated", [True, False])
def test_tables_of_minari_without_the_row_behind_the_last_step_are_not_whole(
    kind, part, terminated, tmp_path
):
    (known,) = files.known((4,))
    path = files.minari_arrow(tmp_path / "demos", [known._replace(terminated=terminated)])
    with pa.OSFile(str(path / "0/part-0.arrow"), "rb") as source:
        table = pa.ipc.open_file(source).read_all()
    short = table.slice(part.start or 0, 4)
    told = json.loads((path / "metadata.json").read_text())
    (path / "metadata.json").write_text(json.dumps(told | {"data_format": kind}))
    if kind == "parquet":
        pq.write_table(short, path / "0/part-0.parquet")
    else:
        with pa.ipc.new_file(path / "0/part-0.arrow", short.schema) as writer:
            writer.write_table(short)
    refused(path, CorruptError, rf"0/part-0.{kind}: 4 rows, expected 5")


@pytest.mark.parametrize("kind", ["d4rl", "robomimic", "lerobot"])
def test_one_observation_too_few_is_refused_by_formats_with_one_a_step(kind, tmp_path):
    (known,) = files.known((4,))
    path = written(kind, tmp_path / "demos" if kind == "lerobot" else tmp_path, [known])
    if kind == "lerobot":
        file = path / "data/chunk-000/file-000.parquet"
        pq.write_table(pq.read_table(file).slice(0, 3), file)
    else:
        names = ["observations"] if kind == "d4rl" else ["hand", "cube"]
        with h5py.File(path, "a") as file:
            group = file if kind == "d4rl" else file["data/demo_0/obs"]
            for name in names:
                values = group[name][1:]
                del group[name]
                group[name] = values
    with pytest.raises(CorruptError, match=r"4 rewards, but .*3|3 frames, expected 4"):
        list(read(path, **SAID.get(kind, {})))


def test_counts_that_do_not_fit_are_noticed(tmp_path):
    path = files.robomimic(tmp_path, files.known((3, 2)))
    with h5py.File(path, "a") as file:
        del file["data/demo_1"]
    refused(path, CorruptError, "3 steps, but total is 5", done_means="truncated")
    with h5py.File(path, "a") as file:
        file["data"].attrs["total"] = file["data/demo_0"].attrs["num_samples"] = 7
    refused(path, CorruptError, "demo_0: 3 steps, but num_samples is 7", done_means="truncated")


def test_counts_of_robomimic_are_compared_where_episodes_do_not_tell_theirs(tmp_path):
    path = files.robomimic(tmp_path, files.known((3, 2)))
    with h5py.File(path, "a") as file:
        del file["data/demo_1"].attrs["num_samples"]
        assert file["data"].attrs["total"] == 5
    assert load(buffer("robomimic"), path, done_means="truncated").rows == 5
    with h5py.File(path, "a") as file:
        file["data"].attrs["total"] = 500
    refused(path, CorruptError, "5 steps, but total is 500", done_means="truncated")


@pytest.mark.parametrize("kind", ["hdf5", "arrow"])
@pytest.mark.parametrize("told", [999, 4, -5, 5.5, "5", True])
def test_minari_has_as_many_steps_as_its_metadata_tells(kind, told, tmp_path):
    writer = files.minari_arrow if kind == "arrow" else files.minari_hdf5
    (tmp_path / "demos").mkdir()
    writer(tmp_path / "demos", files.known((3, 2)))
    path = tmp_path / "demos"
    metadata = path / "metadata.json"
    known = json.loads(metadata.read_text()) if metadata.exists() else {}
    metadata.write_text(json.dumps(known | {"total_steps": told}))
    refused(path, CorruptError, rf"5 steps, but metadata.json has total_steps {told}$")
    assert load(buffer(), path, limit=2).rows == 5  # nothing is read behind the last
    metadata.write_text(json.dumps(known | {"total_steps": 5}))
    assert load(buffer(), path).rows == 5


def test_missing_files_of_a_dataset_are_noticed(tmp_path):
    path = files.lerobot(tmp_path / "robot", files.known((3, 2)), files=2)
    (path / "data/chunk-000/file-001.parquet").unlink()
    refused(path, CorruptError, r"episode 1, data/chunk-000/file-001.parquet", **SAID["lerobot"])
    info = json.loads((path / "meta/info.json").read_text())
    (path / "meta/info.json").write_text(json.dumps(info | {"total_frames": 6}))
    refused(path, CorruptError, "total_frames 6, meta/episodes 5", **SAID["lerobot"])
    path = files.minari_arrow(tmp_path / "arrow", files.known((3, 2)))
    shutil.rmtree(path / "1")
    refused(path, CorruptError, r"1/part-0.arrow: metadata.json cannot be read")


INDEX_TABLES = [
    ({"episode_index": [0, 0, 2]}, "episode 0 where 1 should be"),
    ({"episode_index": [0, 1, 3]}, "episode 3 where 2 should be"),
    ({"episode_index": [-1, 0, 1]}, "episode -1 where 0 should be"),
    ({"length": [2.9, 3.0, 1.0]}, "length has float64 of shape (3,), expected a whole number"),
    ({"data/file_index": [False] * 3}, "data/file_index has bool of shape (3,)"),
    ({"episode_index": [[0], [1], [2]]}, "episode_index has int64 of shape (3, 1)"),
]


@pytest.mark.parametrize(("columns", "said"), INDEX_TABLES)
def test_an_index_names_each_episode_once_in_whole_numbers(columns, said, tmp_path):
    path = files.lerobot(tmp_path / "robot", files.known((2, 3, 1)))
    file = path / "meta/episodes/chunk-000/file-000.parquet"
    table = pq.read_table(file).to_pydict()
    pq.write_table(pa.table(table | columns), file)
    refused(path, CorruptError, re.escape(said), **SAID["lerobot"])


@pytest.mark.parametrize("whole_file", [False, True])
def test_frames_of_episodes_that_the_index_does_not_name_are_noticed(whole_file, tmp_path):
    path = files.lerobot(tmp_path / "robot", files.known((2, 3, 1)), files=3 if whole_file else 1)
    index, info = path / "meta/episodes/chunk-000/file-000.parquet", path / "meta/info.json"
    pq.write_table(pq.read_table(index).slice(0, 2), index)
    told = json.loads(info.read_text()) | {"total_episodes": 2, "total_frames": 5}
    info.write_text(json.dumps(told))
    said = "file-002.parquet: 1 frames, but meta/episodes 0"
    if not whole_file:
        said = "file-000.parquet: 6 frames, but meta/episodes 5"
    refused(path, CorruptError, said, **SAID["lerobot"])
    loaded = load(buffer(), path, limit=2, **SAID["lerobot"])  # looks no further
    assert loaded.rows == 5


def test_frames_out_of_order_and_of_other_counts_are_noticed(tmp_path):
    path = files.lerobot(tmp_path / "robot", files.known((3, 2)))
    file = path / "data/chunk-000/file-000.parquet"
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)
    refused(path, CorruptError, "2 frames, expected 3 side by side", **SAID["lerobot"])
    pq.write_table(table.take([1, 0, 2, 3, 4]), file)
    refused(path, CorruptError, "frame_index does not count from 0", **SAID["lerobot"])
    nothing = pa.nulls(5, pa.float32())
    place = table.column_names.index("next.reward")
    pq.write_table(table.set_column(place, "next.reward", nothing), file)
    refused(path, CorruptError, r"next.reward: 3 values are missing", **SAID["lerobot"])
    pq.write_table(table.drop_columns("next.reward"), file)
    refused(path, InputError, r"there is no next.reward", **SAID["lerobot"])


def test_videos_are_refused_and_what_to_do_is_said(tmp_path):
    path = files.lerobot(tmp_path / "robot", files.known((3,)))
    info = json.loads((path / "meta/info.json").read_text())
    info["features"]["observation.images.top"] = {"dtype": "video", "shape": [64, 64, 3]}
    (path / "meta/info.json").write_text(json.dumps(info))
    with pytest.raises(UnsupportedError, match=r"observation.images.top is a video"):
        list(read(path, **SAID["lerobot"]))
    (episode,) = read(path, keys=["state"], **SAID["lerobot"])
    assert list(episode.obs) == ["state"] or episode.obs.shape == (3, 3)
    with pytest.raises(InputError, match="none of the observations asked for"):
        list(read(path, keys=["wrist"], **SAID["lerobot"]))


def test_what_is_no_dataset_is_refused_with_the_formats_there_are(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    (tmp_path / "empty").mkdir()
    files.hdf5(tmp_path / "other.hdf5", {"x": [1.0]})
    for name in ("notes.txt", "table.parquet", "empty", "other.hdf5"):
        refused(tmp_path / name, InputError, "is none of the known formats .*lerobot: LeRobot")
    (tmp_path / "nothing.hdf5").touch()
    refused(tmp_path / "nothing.hdf5", InputError, "nothing.hdf5 is empty: 0 bytes")
    refused(
        tmp_path / "nowhere",
        InputError,
        "there is no file or folder .*nowhere to read demonstrations from",
    )
    with pytest.raises(InputError, match="path is the name of a file or folder; given 3"):
        read(3)


def test_a_file_of_robomimic_in_which_nothing_was_recorded_has_no_episodes(tmp_path):
    path = tmp_path / "demo.hdf5"
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["env_args"] = "{}"
    assert list(read(path)) == []
    buffer = ReplayBuffer(10, {"obs": Field((2,)), "action": Field((1,))})
    with pytest.raises(InputError, match="hdf5: no episodes in it"):
        load(buffer, path)


@pytest.mark.parametrize(
    ("package", "kind"), [("h5py", "minari"), ("pyarrow", "lerobot"), ("pyarrow", "minari arrow")]
)
def test_a_package_that_is_not_installed_is_named(package, kind, tmp_path, monkeypatch):
    path = written(kind, tmp_path / "demos" if kind != "minari" else tmp_path, files.known((2,)))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"{package} is not installed: .*relive\[demos\]"):
        list(read(path, **SAID.get(kind, {})))
