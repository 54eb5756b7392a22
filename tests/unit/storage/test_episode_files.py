"""Files that are damaged, cut, foreign or half made are refused or left out, and said to be."""

from __future__ import annotations

import gc
import json
import os
import shutil
import struct

import numpy as np
import pytest
import torch

from relive import (
    CorruptError,
    Episode,
    Field,
    InputError,
    ReplayBuffer,
    TrajectoryStore,
    UnsupportedError,
)
from relive.storage import episode_files, episode_writer, files, writer_lock
from relive.storage.episode_index import ENTRY, OPEN, TERMINATED, UNFINISHED, Index, Run
from relive.storage.episode_writer import Writer

FIELDS = {"obs": Field((2,)), "action": Field((), torch.int16)}
TYPED = (CorruptError, InputError)


def steps(length: int, first: int = 0, *, gaps: bool = False) -> dict[str, np.ndarray]:
    numbers = np.arange(first, first + length + 1, dtype=np.float32)
    obs = np.stack([numbers, -numbers], 1)
    return {
        "obs": obs[:-1] + 0.5 * gaps,
        "action": np.arange(first, first + length, dtype=np.int16),
        "reward": numbers[:-1],
        "next_obs": obs[1:],
        "terminated": np.arange(length) == length - 1,
    }


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A small store with everything in it: runs, gaps, several lanes, an unfinished episode."""
    monkeypatch.setattr("relive.writing.episodes.RUN", 90)
    with TrajectoryStore(tmp_path / "store", FIELDS) as store:
        store.append(**steps(3))
        store.append(**steps(9, 10), env=2)
        store.append(**steps(4, 30, gaps=True), env=1)
        buffer = ReplayBuffer(9, FIELDS)
        buffer.tee(store)
        for i in range(2):
            step = {name: values[i] for name, values in steps(5, 50).items()}
            buffer.add(**step, truncated=False)
        store.flush()
        buffer.end_episode()
        buffer.add(**step, truncated=False)
    return tmp_path / "store"


def content(episode: Episode) -> tuple[object, ...]:
    values = (episode[name].tolist() for name in episode.keys())  # noqa: SIM118 - it is no dict
    return episode.ended, episode.env, episode.episode_return, *values


def contents(store: TrajectoryStore) -> list[object]:
    return [content(episode) for episode in store]


def read_one_by_one(store: TrajectoryStore) -> list[object]:
    """Every episode, None for one that is damaged."""
    found = []
    for number in range(len(store)):
        try:
            found.append(content(store.episode(number)))
        except CorruptError:
            found.append(None)
    return found


@pytest.mark.parametrize("name", ["store.json", "index.bin", "data.bin"])
def test_every_changed_byte_is_noticed(made, name):
    whole = (made / name).read_bytes()
    expected = contents(TrajectoryStore(made, mode="r"))
    assert len(expected) == 5
    rng = np.random.default_rng(0)
    for position in range(len(whole)):
        changed = bytearray(whole)
        changed[position] ^= 1 << int(rng.integers(8))
        (made / name).write_bytes(changed)
        try:
            found = read_one_by_one(TrajectoryStore(made, mode="r"))
        except TYPED:
            continue
        if found == expected:  # white space, or another way to write the same
            assert json.loads(bytes(changed)) == json.loads(whole)
        else:
            assert name == "data.bin"
            assert [a for a in found if a is not None] == [
                b for a, b in zip(found, expected, strict=True) if a is not None
            ]


@pytest.mark.parametrize("name", ["store.json", "index.bin"])
def test_a_writer_touches_nothing_that_is_damaged(made, name):
    whole = (made / name).read_bytes()
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(whole), 40):
        changed = bytearray(whole)
        changed[position] ^= 1 << int(rng.integers(8))
        (made / name).write_bytes(changed)
        before = {path: path.read_bytes() for path in made.glob("*.*")}
        try:
            TrajectoryStore(made).close()
        except TYPED:
            assert {path: path.read_bytes() for path in made.glob("*.*")} == before
        else:
            assert name == "store.json"
    (made / name).write_bytes(whole)
    TrajectoryStore(made).close()


def test_an_index_that_is_cut_anywhere_gives_the_episodes_before(made):
    whole = (made / "index.bin").read_bytes()
    expected = contents(TrajectoryStore(made, mode="r"))
    for length in range(len(whole)):
        (made / "index.bin").write_bytes(whole[:length])
        if length < 64:
            with pytest.raises(CorruptError, match=r"index\.bin is damaged at its start"):
                TrajectoryStore(made, mode="r")
        else:
            store = TrajectoryStore(made, mode="r")
            found = contents(store)
            assert found == expected[: len(found)]
            assert store.stats()["bytes_left_out"] == length % 64
    assert len(found) == len(expected) - 1


@pytest.mark.parametrize("cut", range(1, 700, 23))
def test_a_store_that_is_cut_can_be_written_on(made, cut):
    size = (made / "index.bin").stat().st_size
    expected = contents(TrajectoryStore(made, mode="r"))
    os.truncate(made / "index.bin", max(64, size - cut))
    with TrajectoryStore(made) as store:
        assert store.stats()["bytes_left_out"] > 0
        kept = len(store) - store.stats()["unfinished"]
        assert store.stats()["open"] == 0
        store.append(**steps(6, 70))
        store.check()
    with TrajectoryStore(made) as store:
        found = contents(store)
        assert store.stats()["bytes_left_out"] == 0
    assert found[:kept] == expected[:kept]
    assert found[-1][4] == list(range(70, 76))


def test_data_that_is_cut_anywhere_is_noticed(made):
    whole = (made / "data.bin").read_bytes()
    expected = contents(TrajectoryStore(made, mode="r"))
    for length in range(len(whole)):
        (made / "data.bin").write_bytes(whole[:length])
        if length < 64:
            with pytest.raises(CorruptError, match=r"data\.bin is damaged at its start"):
                TrajectoryStore(made, mode="r")
            continue
        found = read_one_by_one(TrajectoryStore(made, mode="r"))
        assert None in found
        assert all(a in (None, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("taken", [1, 100])
def test_data_that_is_cut_is_not_written_on_and_can_be_brought_back(made, taken):
    whole = (made / "data.bin").read_bytes()
    expected = contents(TrajectoryStore(made, mode="r"))
    cut = whole[:-taken]
    (made / "data.bin").write_bytes(cut)
    with pytest.raises(CorruptError, match=r"bring the whole file back; or read it with mode='r'"):
        TrajectoryStore(made)
    assert (made / "data.bin").read_bytes() == cut
    (made / "data.bin").write_bytes(whole)
    with TrajectoryStore(made) as store:  # the lock was let go
        assert contents(store) == expected


def test_a_store_that_is_removed_while_it_is_written_says_so_and_lets_go(tmp_path):
    store, buffer = TrajectoryStore(tmp_path / "store", FIELDS), ReplayBuffer(9, FIELDS)
    store.append(**steps(3))
    buffer.tee(store)
    shutil.rmtree(tmp_path / "store")
    for call in (store.flush, store.stats, lambda: store.append(**steps(3)), lambda: len(store)):
        with pytest.raises(CorruptError, match=r"has been removed while the store was open"):
            call()
    with pytest.raises(CorruptError, match="has been removed"):
        store.close()
    store.close()  # it is
    with pytest.raises(InputError, match="is closed"):
        store.flush()
    with TrajectoryStore(tmp_path / "store", FIELDS) as other:
        other.append(**steps(3))


def test_a_reader_of_a_removed_store_is_told(made):
    store = TrajectoryStore(made, mode="r")
    shutil.rmtree(made)
    for call in (store.refresh, store.stats, store.check):
        with pytest.raises(CorruptError, match="cannot be read"):
            call()


def test_what_is_lost_when_nobody_can_be_told_is_warned_of(tmp_path, monkeypatch):
    store, buffer = TrajectoryStore(tmp_path, FIELDS), ReplayBuffer(9, FIELDS)
    buffer.tee(store)
    buffer.add(**{name: values[0] for name, values in steps(5).items()}, truncated=False)
    with monkeypatch.context() as full:
        full.setattr(episode_writer, "write_all", _is_full)
        del store, buffer  # which hold each other
        with pytest.warns(RuntimeWarning, match=r"what waited for the store in .* is lost: no sp"):
            gc.collect()
    TrajectoryStore(tmp_path).close()  # files and lock were let go


def test_what_a_tee_was_given_is_written_when_all_is_garbage(tmp_path):
    for number in range(5):  # the collector takes a cycle in an order of its own
        store, buffer = TrajectoryStore(tmp_path / "store", FIELDS), ReplayBuffer(9, FIELDS)
        buffer.tee(store)
        buffer.add(**{name: values[0] for name, values in steps(5).items()}, truncated=True)
        del store, buffer
        gc.collect()
        assert len(TrajectoryStore(tmp_path / "store", mode="r")) == number + 1


def _is_full(file, chunk):
    raise OSError("no space")


def test_a_buffer_is_not_saved_into_what_is_something_else(made, tmp_path):
    buffer = ReplayBuffer(5, FIELDS)
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "manifest.json").write_text('{"name": "a web page"}')
    for place, said in (
        (made, "holds a trajectory store"),
        (tmp_path / "page", "that of something else"),
        (tmp_path / "page" / "manifest.json", "is a file; a buffer is saved into a folder"),
    ):
        before = sorted(tmp_path.rglob("*"))
        for background in (False, True):
            with pytest.raises(InputError, match=said):
                buffer.save(place, background=background)
        assert sorted(tmp_path.rglob("*")) == before
    buffer.save(tmp_path / "saved")
    buffer.save(tmp_path / "saved")
    ReplayBuffer(5, FIELDS).save(tmp_path / "saved")


def test_zeros_behind_the_index_are_left_out(made):
    expected = contents(TrajectoryStore(made, mode="r"))
    with (made / "index.bin").open("ab") as file:
        file.write(bytes(64 * 3 + 7))
    assert contents(TrajectoryStore(made, mode="r")) == expected
    with TrajectoryStore(made) as store:
        assert store.stats()["bytes_left_out"] == 64 * 3 + 7
        store.append(**steps(2))
    assert len(TrajectoryStore(made, mode="r")) == len(expected) + 1


def test_entries_in_another_order_are_noticed(made):
    whole = (made / "index.bin").read_bytes()
    turned = whole[:64] + whole[128:192] + whole[64:128] + whole[192:]
    (made / "index.bin").write_bytes(turned)
    with pytest.raises(CorruptError, match="entry 0 of the index is damaged"):
        TrajectoryStore(made, mode="r")


@pytest.mark.parametrize("name", ["index.bin", "data.bin"])
def test_files_of_another_store_are_refused(made, tmp_path, name):
    with TrajectoryStore(tmp_path / "other", FIELDS) as other:
        other.append(**steps(3))
    shutil.copy(tmp_path / "other" / name, made / name)
    with pytest.raises(CorruptError, match=f"{name} is damaged at its start, or of another store"):
        TrajectoryStore(made)


@pytest.mark.parametrize("name", ["index.bin", "data.bin"])
def test_a_missing_file_is_named(made, name):
    (made / name).unlink()
    with pytest.raises(CorruptError, match=f"{name} cannot be read"):
        TrajectoryStore(made, mode="r")


def test_episodes_without_their_settings_are_not_written_over(made):
    (made / "store.json").unlink()
    with pytest.raises(CorruptError, match=r"holds episodes, but store\.json is missing"):
        TrajectoryStore(made, FIELDS)


@pytest.mark.parametrize("present", [[], ["lock"], ["lock", "index.bin"], ["store.json.part"]])
def test_what_a_killed_process_left_before_it_was_made_is_made_anew(tmp_path, present):
    for name in present:
        (tmp_path / name).write_bytes(b"x" * 64)
    with TrajectoryStore(tmp_path, FIELDS) as store:
        store.append(**steps(3))
        store.check()


def test_a_folder_or_file_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds other files \(notes\.txt\) and no store"):
        TrajectoryStore(tmp_path, FIELDS)
    with pytest.raises(InputError, match=r"notes\.txt is a file; a store is a folder"):
        TrajectoryStore(tmp_path / "notes.txt", FIELDS)
    ReplayBuffer(5, FIELDS).save(tmp_path / "saved")
    with pytest.raises(InputError, match=r"holds other files \(manifest\.json"):
        TrajectoryStore(tmp_path / "saved", FIELDS)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"format": 2}, InputError, "of format 2, this version of relive reads 1"),
        ({"kind": "a web page"}, InputError, "holds 'a web page', expected 'relive traj"),
        ({"fields": {"kind": "Nonsense"}}, CorruptError, "damaged"),
        ({"fields": None}, CorruptError, "damaged"),
        ({"fields": 3}, CorruptError, "damaged"),
        ({"id": None}, CorruptError, "damaged at its start"),
    ],
)
def test_settings_that_this_version_does_not_know_are_refused(made, change, error, match):
    settings = files.read_manifest(made, "store.json")
    files.write_manifest(made, "store.json", {**settings, **change})
    with pytest.raises(error, match=match):
        TrajectoryStore(made)


# Entries that have the right checksum and make no sense: made by no version of this library.

FIRST = Run(-1, 0, 3, 1, 0.0, 0, OPEN, 64, 10, 0)
NONSENSE = {
    "names itself": Run(1, 3, 2, 0, 0.0, 0, TERMINATED),
    "names a later one": Run(7, 3, 2, 0, 0.0, 0, TERMINATED),
    "names none": Run(-2, 3, 2, 0, 0.0, 0, TERMINATED),
    "leaves steps out": Run(0, 4, 2, 0, 0.0, 0, TERMINATED),
    "is of another lane": Run(0, 3, 2, 0, 0.0, 1, TERMINATED),
    "begins in the middle": Run(-1, 3, 2, 1, 0.0, 0, TERMINATED),
    "begins without an observation": Run(-1, 0, 2, 0, 0.0, 0, TERMINATED),
    "has more observations than steps": Run(0, 3, 2, 3, 0.0, 0, TERMINATED),
    "ends in an unknown way": Run(0, 3, 2, 0, 0.0, 0, UNFINISHED + 1),
    "says nothing": Run(0, 3, 0, 0, 0.0, 0, OPEN),
}


@pytest.mark.parametrize("entry", NONSENSE.values(), ids=NONSENSE)
def test_an_entry_that_contradicts_the_others_is_refused(entry):
    index = Index()
    index.add(FIRST.packed(0))
    with pytest.raises(CorruptError, match="entry 1 of the index is damaged"):
        index.add(entry.packed(1))
    assert (index.num_entries, index.num_episodes) == (1, 0)
    index.add(Run(0, 3, 2, 1, 5.0, 0, TERMINATED).packed(1))
    assert (index.num_entries, index.num_episodes, index.num_steps) == (2, 1, 5)


def test_an_entry_has_64_bytes_and_packs_what_it_says():
    raw = FIRST.packed(3)
    assert len(raw) == ENTRY.itemsize == 64
    entry = np.frombuffer(raw, ENTRY)[0]
    assert all(entry[name] == value for name, value in FIRST._asdict().items())


@pytest.mark.parametrize(
    ("positions", "match"),
    [([1], "out of order"), ([0, 0], "out of order"), ([0, 9], "out of range")],
)
def test_places_of_observations_that_make_no_sense_are_refused(tmp_path, positions, match):
    with TrajectoryStore(tmp_path, FIELDS) as store:
        store.append(**steps(3))
        runs, entries = store._runs, store._index.episode(0)
        payload = episode_files.read_payloads(tmp_path, entries)[0]
        entries["starts"] = len(positions)
        obs = b"\0" * 8 * len(positions)
        body = payload[: 3 * 8].tobytes() + obs + payload[3 * 8 + 8 : -4].tobytes()
        body += struct.pack(f"<{len(positions)}I", *positions)
        with pytest.raises(CorruptError, match=match):
            runs.join(entries, [np.frombuffer(body, np.uint8)])
        with pytest.raises(CorruptError, match="are no run of 3 steps"):
            runs.join(entries, [np.frombuffer(body[:-1], np.uint8)])


@pytest.mark.skipif(os.name == "nt", reason="files that are open cannot be removed there")
@pytest.mark.parametrize("how", ["removed", "moved", "another"])
def test_a_store_whose_lock_is_gone_lets_a_second_writer_be_the_only_one(made, how):
    first = TrajectoryStore(made)
    first.append(**steps(2))
    if how == "removed":
        (made / "lock").unlink()
    elif how == "moved":
        (made / "lock").rename(made.parent / "stale")
    else:
        (made / "new").write_bytes(b"")
        (made / "new").replace(made / "lock")
    with TrajectoryStore(made) as second:
        second.append(**steps(5))
        for call in (lambda: first.append(**steps(3)), first.flush, first.close):
            with pytest.raises(CorruptError, match=r"lock has been removed while .* open it again"):
                call()
        second.append(**steps(4))
        expected = contents(second)
    with TrajectoryStore(made) as again:
        assert contents(again) == expected
        assert [len(episode) for episode in again][-3:] == [2, 5, 4]


@pytest.mark.skipif(os.name == "nt", reason="files that are open cannot be removed there")
def test_an_append_that_loses_the_lock_on_its_way_leaves_the_second_writer_alone(made, monkeypatch):
    first = TrajectoryStore(made)
    real = Writer.put

    def put(*what):
        monkeypatch.undo()
        (made / "lock").unlink()
        with TrajectoryStore(made) as second:
            second.append(**steps(5))
        return real(*what)

    monkeypatch.setattr(Writer, "put", put)
    for call in (lambda: first.append(**steps(3)), first.close):
        with pytest.raises(CorruptError, match="lock has been removed"):
            call()
    last = list(TrajectoryStore(made, mode="r"))[-1]
    assert len(last) == 5
    last.obs  # noqa: B018 - is read, and its checksum compared


@pytest.mark.skipif(os.name == "nt", reason="files that are open cannot be removed there")
def test_a_lock_that_is_removed_while_it_is_taken_is_taken_again(made, monkeypatch):
    real = writer_lock._lock

    def taken(file):
        monkeypatch.undo()
        (made / "lock").unlink()
        return real(file)

    monkeypatch.setattr(writer_lock, "_lock", taken)
    with TrajectoryStore(made) as store:
        store.append(**steps(3))
        with pytest.raises(UnsupportedError, match="is being written by process"):
            TrajectoryStore(made)


@pytest.mark.skipif(os.name == "nt", reason="files that are open cannot be moved there")
def test_a_store_whose_folder_is_moved_loses_nothing(made, tmp_path):
    store = TrajectoryStore(made)
    before = len(store)
    made.rename(tmp_path / "elsewhere")
    store.append(**steps(3))
    store.close()
    assert len(TrajectoryStore(tmp_path / "elsewhere", mode="r")) == before + 1
