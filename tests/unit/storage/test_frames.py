"""Frames that are kept once are saved, loaded, copied, checked and pinned as their rows are."""

from __future__ import annotations

import copy
import io
import pickle
import shutil
import subprocess
import sys
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import (
    ConfigError,
    CorruptError,
    Field,
    InputError,
    Proportional,
    RankBased,
    ReplayBuffer,
    Uniform,
    plan,
)
from relive.frames import STEPS_AT_ONCE, room_of_rows
from relive.ops import words as w
from relive.storage import evacuation, saving
from relive.storage.files import read_manifest, write_manifest
from relive.storage.saving import Saver
from tests.unit.storage.stacks import (
    FRAME,
    STACK,
    Both,
    assert_same_draws,
    assert_same_rows,
    fields,
    num_frames,
)
from tests.unit.unchanged import refused

if TYPE_CHECKING:
    import threading

    from relive.home import Home

SETTINGS: dict[str, dict[str, Any]] = {
    "one": {"capacity": 60},
    "three lanes, n = 3": {"capacity": 100, "num_envs": 3, "n_step": 3, "autoreset": "next_step"},
    "priorities": {"sampler": Proportional(), "track_reuse": True, "n_step": 2},
    "ranks": {"sampler": RankBased(resort_every=4), "capacity": 80},
}
SHORT: dict[str, Any] = {"capacity": 1000, "length": 1}  # frames run out before rows do
FRAME_BYTES = 64


@pytest.fixture(params=SETTINGS.values(), ids=SETTINGS)
def both(request: pytest.FixtureRequest, kernels: str) -> Both:
    return Both(**request.param, kernels=kernels)


def short(**settings: Any) -> Both:
    """Rows have been dropped, since frames of theirs are gone."""
    both = Both(**SHORT, sampler=Proportional(), track_reuse=True, whole=2000, **settings)
    both.extend(1400)
    assert both.once.stats()["evicted_rows"] > 100
    assert len(both.once) < 900
    return both


def reloaded(buffer: ReplayBuffer, folder: Path, **where: Any) -> ReplayBuffer:
    buffer.save(folder)
    return ReplayBuffer.load(folder, **where)


# Saves


def test_a_loaded_buffer_has_all_rows_and_goes_on_alike(both: Both, tmp_path: Path) -> None:
    for times in (7, 30, 120):
        both.add(times)
        kernels = both.once._home.settings.kernels
        loaded = reloaded(both.once, tmp_path, kernels=kernels)
        assert loaded.stats() == both.once.stats()
        assert_same_rows(loaded, both.whole)
        both.once = loaded
        both.add(5)
        assert_same_rows(loaded, both.whole)
        assert_same_draws(loaded, both.whole)


def test_waiting_steps_and_last_frames_of_lanes_are_saved(kernels: str, tmp_path: Path) -> None:
    both = Both(num_envs=2, n_step=4, length=1000, kernels=kernels).add(10)
    before = both.once._state.frame_word(w.NEXT_FRAME)
    both.once = reloaded(both.once, tmp_path, kernels=kernels)
    both.add(1)
    assert both.once._state.frame_word(w.NEXT_FRAME) == before + 2  # one of each environment
    both.call("end_episode")
    assert_same_rows(both.once, both.whole)


@pytest.mark.parametrize("kernels", ["cpu", "reference"])
def test_what_was_dropped_early_stays_dropped(kernels: str, tmp_path: Path) -> None:
    both = short()
    loaded = reloaded(both.once, tmp_path, kernels=kernels)
    assert torch.equal(loaded.live_ids(), both.once.live_ids())
    assert loaded.stats() == both.once.stats()
    assert_same_rows(loaded, both.whole)
    both.once = loaded
    both.extend(20)
    assert_same_rows(loaded, both.whole)


def bytes_of_frames(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("frames-*.bin"))


def test_only_new_frames_are_written_to_a_folder_that_holds_the_others(tmp_path: Path) -> None:
    both = Both(1000).extend(400)
    both.once.save(tmp_path)
    first = num_frames(both.once)
    assert bytes_of_frames(tmp_path) == first * FRAME_BYTES
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("frames-*.bin")}
    for _ in range(2):  # the second time by a buffer that was loaded
        both.extend(10)
        both.once.save(tmp_path)
        assert {path: path.stat().st_mtime_ns for path in times} == times
        assert bytes_of_frames(tmp_path) == num_frames(both.once) * FRAME_BYTES
        both.once = ReplayBuffer.load(tmp_path)
        assert_same_rows(both.once, both.whole)
    both.extend(3000)  # all that was saved is gone
    both.once.save(tmp_path)
    assert len(list(tmp_path.glob("frames-*.bin"))) == 1
    assert bytes_of_frames(tmp_path) == num_frames(both.once) * FRAME_BYTES
    assert_same_rows(ReplayBuffer.load(tmp_path), both.whole)


def test_many_saves_while_the_rings_go_round_and_round(tmp_path: Path) -> None:
    both = Both(200, length=2, num_envs=2, n_step=2)
    for _ in range(12):
        both.extend(37)
        assert_same_rows(reloaded(both.once, tmp_path), both.whole)
    both.call("clear")
    both.add(8)
    assert_same_rows(reloaded(both.once, tmp_path), both.whole)


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_frames_that_are_gone_from_the_folder_are_written_anew(tmp_path: Path, damage: str) -> None:
    both = Both().extend(50)
    both.once.save(tmp_path)
    both.extend(5)
    both.once.save(tmp_path)
    file = min(tmp_path.glob("frames-*.bin"))
    if damage == "removed":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptError, match=file.name):
        ReplayBuffer.load(tmp_path)
    both.once.save(tmp_path)
    assert_same_rows(ReplayBuffer.load(tmp_path), both.whole)


def test_a_save_that_fails_leaves_the_one_before_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Both().extend(50)
    both.once.save(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())
    then = both.whole.live_ids()
    both.extend(30)
    with monkeypatch.context() as patched:
        patched.setattr(saving, "write_manifest", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            both.once.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    loaded = ReplayBuffer.load(tmp_path)
    loaded.check()
    assert torch.equal(loaded.live_ids(), then)
    assert_same_rows(reloaded(both.once, tmp_path), both.whole)


def test_frames_of_a_save_that_was_killed_are_removed_by_the_next(tmp_path: Path) -> None:
    both = Both().extend(50)
    both.once.save(tmp_path)
    orphan = tmp_path / "frames-7.bin"
    orphan.write_bytes(b"half of it")
    both.extend(5)
    both.once.save(tmp_path)
    assert not orphan.exists()
    assert (tmp_path / "frames-8.bin").exists()
    assert_same_rows(ReplayBuffer.load(tmp_path), both.whole)


def test_a_buffer_without_stacks_is_saved_as_ever(tmp_path: Path) -> None:
    both = Both().extend(50)
    both.whole.save(tmp_path)
    manifest = read_manifest(tmp_path, "manifest.json")
    assert list(manifest) == [
        *("format", "settings", "note", "row_bytes", "ring_start"),
        *("stop", "last", "changed", "segments", "state", "arrays"),
    ]
    assert list(manifest["arrays"]) == [
        *("words", "sweep_length", "lanes", "pending", "demonstrations", "changed_ids"),
        *("changed_rows", "age_counts", "reuse_counts", "leaves", "errors", "uses"),
    ]
    assert not list(tmp_path.glob("frames-*"))


# Saves in the background


def test_frames_that_the_ring_overtakes_are_copied_first(
    both: Both, tmp_path: Path, disk: threading.Event
) -> None:
    for times in (40, 150):
        disk.set()
        both.add(times)
        disk.clear()
        then = pickle.loads(pickle.dumps(both.once))
        done = both.once.save(tmp_path, background=True)
        assert done is not None
        both.add(50)
        both.extend(400)
        both.call("end_episode")
        both.add(1)
        assert not done.done()
        disk.set()
        done.result(60)
        loaded = ReplayBuffer.load(tmp_path)
        assert loaded.stats() == then.stats()
        assert_same_rows(loaded, then)
        assert_same_rows(both.once, both.whole)


@pytest.mark.parametrize("is_known", [True, False])
def test_frames_are_copied_where_rows_are_dropped_early(
    tmp_path: Path, disk: threading.Event, monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    if not is_known:  # as on a GPU
        monkeypatch.setattr(Saver, "_next_frame", lambda *_: None)
    both = Both(**SHORT).extend(900)
    then = pickle.loads(pickle.dumps(both.once))
    done = both.once.save(tmp_path, background=True)
    assert done is not None
    for times in (1, 5, 64, 300, 900):
        both.extend(times)
    assert both.once.stats()["evicted_rows"]
    disk.set()
    done.result(60)
    assert_same_rows(ReplayBuffer.load(tmp_path), then)
    assert_same_rows(reloaded(both.once, tmp_path), both.whole)


def test_frames_are_not_copied_before_they_must_be(tmp_path: Path, disk: threading.Event) -> None:
    both = Both(length=1000).extend(400)
    done = both.once.save(tmp_path, background=True)
    assert done is not None
    snapshot, _ = both.once._saver._running
    room = both.once._state.frame_word(w.NUM_FRAMES)
    left = room - num_frames(both.once)
    both.extend(left // (2 * STACK))
    assert not snapshot.frames._taken
    both.extend(room)
    assert sum(map(len, snapshot.frames._taken)) == snapshot.frames.stop - snapshot.frames.start
    disk.set()
    done.result(60)


# Other capacities


@pytest.mark.parametrize("capacity", [3, 60, 299, 300, 301, 700, 1000, 3000])
def test_another_capacity_keeps_the_newest_rows_that_have_their_frames(
    capacity: int, kernels: str, tmp_path: Path
) -> None:
    both = Both(300, whole=2000, length=3, num_envs=2, n_step=2, sampler=Proportional())
    both.extend(130).add(1)
    loaded = reloaded(both.once, tmp_path, capacity=capacity, kernels=kernels)
    assert_same_rows(loaded, both.whole)
    assert len(loaded) == min(capacity, len(both.once))
    both.once = loaded
    both.add(40)
    assert_same_rows(loaded, both.whole)


@pytest.mark.parametrize("capacity", [100, 500, 900, 999, 1001, 1500, 4000])
def test_rows_whose_frames_do_not_fit_are_dropped_and_counted(
    capacity: int, kernels: str, tmp_path: Path
) -> None:
    both = short()
    held, gone = len(both.once), both.once.stats()["evicted_rows"]
    loaded = reloaded(both.once, tmp_path, capacity=capacity, kernels=kernels)
    stats = loaded.stats()
    assert stats["size"] + stats["evicted_rows"] - gone == min(held, capacity)
    assert (stats["evicted_rows"] > gone) == (capacity in (900, 999))
    assert_same_rows(loaded, both.whole)
    assert torch.equal(loaded.priorities(loaded.live_ids()), torch.ones(len(loaded)))
    both.once = loaded
    both.extend(50)
    assert_same_rows(loaded, both.whole)
    assert_same_rows(reloaded(loaded, tmp_path), both.whole)


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("more", [0, 1, 50, 2000])
def test_a_grown_buffer_has_all_frames(settings: dict[str, Any], more: int, kernels: str) -> None:
    both = Both(**settings, kernels=kernels).add(150)
    before = {name: tensor.clone() for name, tensor in both.once._state.tensors().items()}
    larger, whole = (b.grown(b.capacity + more) for b in (both.once, both.whole))
    for name, tensor in both.once._state.tensors().items():
        assert torch.equal(tensor, before[name]), name
    assert_same_rows(larger, whole)
    both.once, both.whole = larger, whole
    both.add(40)
    assert_same_rows(larger, whole)
    assert_same_draws(larger, whole)


@pytest.mark.parametrize("more", [0, 1, 700])
def test_a_grown_buffer_keeps_what_was_not_dropped_early(more: int, kernels: str) -> None:
    both = short(kernels="cpu")
    larger = both.once.grown(1000 + more)
    assert torch.equal(larger.live_ids(), both.once.live_ids())
    both.once = larger
    both.extend(200)
    assert_same_rows(larger, both.whole)
    assert (len(larger) > 900) == (more == 700)


# The state as tensors


def test_another_buffer_takes_over_the_state(both: Both, kernels: str) -> None:
    both.add(130)
    file = io.BytesIO()
    torch.save(both.once.state_dict(), file)
    file.seek(0)
    other = type(both.once)(**both.once._home.settings.arguments())
    other.load_state_dict(torch.load(file, weights_only=True))
    assert_same_rows(other, both.whole)
    both.once = other
    both.add(20)
    assert_same_rows(other, both.whole)


@pytest.mark.parametrize("copied", [copy.copy, lambda b: pickle.loads(pickle.dumps(b))])
def test_a_copy_has_frames_of_its_own(copied: Any) -> None:
    both = short()
    other = copied(both.once)
    both.once.clear()
    both.once.add(**both.game.step())
    assert_same_rows(other, both.whole)


def older(tensors: dict[str, Any]) -> dict[str, Any]:
    """As a version gave them that knew of no frames, nor of words of columns about them."""
    new = ("frames", "frame_words", "stacks")
    kept = {name: tensor for name, tensor in tensors.items() if name not in new}
    return {**kept, "columns": kept["columns"][:, :4]}


def test_a_state_of_an_older_version_is_taken_over() -> None:
    both = Both(sampler=Proportional()).extend(400)
    state = both.whole.state_dict()
    other = ReplayBuffer(**both.whole._home.settings.arguments())
    other.load_state_dict({**state, "tensors": older(state["tensors"])})
    assert_same_rows(other, both.whole)
    unpickled, (kind, settings, arrays) = both.whole.__reduce__()
    assert_same_rows(unpickled(kind, settings, older(arrays)), both.whole)


def test_a_state_without_frames_is_refused_where_they_are_kept() -> None:
    both = Both().extend(20)
    state = both.once.state_dict()
    with refused(both.once, InputError, "frames has shape .* given nothing"):
        both.once.load_state_dict({**state, "tensors": older(state["tensors"])})


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Rows of buffers made from now on are padded as those of no buffer made before."""
    monkeypatch.setattr("relive.storage.memory.ROW_ALIGNMENT", {"cpu": 112})
    monkeypatch.setattr("relive.storage.ring.ROW_ALIGNMENT", {"cpu": 16, "cuda": 112})
    return monkeypatch


@pytest.mark.parametrize("how", ["load", "load_state_dict", "pickle", "evacuate"])
def test_rows_that_another_device_pads_otherwise_have_the_same_frames(
    how: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    both = Both(num_envs=2, n_step=3).add(200)
    both.once.save(tmp_path)
    state, pickled = both.once.state_dict(), pickle.dumps(both.once)
    request.getfixturevalue("wide")
    if how == "load":
        other = ReplayBuffer.load(tmp_path)
    elif how == "pickle":
        other = pickle.loads(pickled)
    else:
        other = ReplayBuffer(**both.once._home.settings.arguments())
        if how == "evacuate":
            evacuation.evacuate(state["tensors"], other._state)
        else:
            other.load_state_dict(state)
    assert other._state.rows.shape != both.once._state.rows.shape
    assert_same_rows(other, both.whole)
    both.once = other
    both.add(30)
    assert_same_rows(other, both.whole)


def test_a_buffer_that_moves_says_how_much_it_has_brought_along() -> None:
    both = Both().extend(40)
    home: Home = both.once._home.moved("it failed", both.once._state.tensors())
    assert home.failure is not None
    frames = num_frames(both.once) * FRAME_BYTES
    assert home.failure.nbytes == 40 * home.row_layout.row_bytes + frames


# Damage


def damage(tensors: dict[str, torch.Tensor], what: str, change: str) -> None:
    """Change one number of a state."""
    words, stacks = tensors["frame_words"], tensors["stacks"]
    row = {"row": (w.ROW_OBS, "rows"), "waiting": (w.ROW_NEXT, "pending")}
    number = {"next": int(words[w.NEXT_FRAME]), "negative": -2, "huge": 2**62, "gone": 0}[change]
    if what in row:
        at, name = row[what]
        begin = int(words[at])
        place = tensors[name][3 if name == "rows" else (0, int(tensors["lanes"][0, w.LANE_START]))]
        place[begin : begin + 8] = torch.tensor([number]).view(torch.uint8)
    elif what == "stacks":
        stacks[0, 1] = number
    elif what == "oldest":
        tensors["words"][w.OLDEST_ID] = number
    elif what == "evicted":
        tensors["words"][w.EVICTED_ROWS] = number
    else:
        words[getattr(w, what)] = number


DAMAGE = [
    *product(("row", "waiting", "stacks"), ("next", "gone", "negative", "huge")),
    *product(("NEXT_FRAME", "FRAME_BASE", "FRAME_START", "DEMO_FIRST_FRAME"), ("negative", "huge")),
    *product(("oldest", "evicted"), ("negative", "huge")),
    *(("NEXT_FRAME", "gone"), ("FRAME_BASE", "next")),
]


@pytest.mark.parametrize(("what", "change"), DAMAGE)
def test_damage_is_noticed(what: str, change: str) -> None:
    both = Both(200, num_envs=2, n_step=3, length=1000).add(600)
    state = both.once.state_dict()
    damage(state["tensors"], what, change)
    with refused(both.once, InputError, "this is the state of no buffer"):
        both.once.load_state_dict(state)
    damage(both.once._state.tensors(), what, change)
    with pytest.raises(CorruptError, match="broken invariant"):
        both.once.check()


def test_where_things_lie_is_not_taken_from_a_state() -> None:
    both = Both().extend(50)
    state = both.once.state_dict()
    words = state["tensors"]["frame_words"]
    words[: w.NEXT_FRAME] = 2**40
    words[w.NUM_MOVES :] = 2**40
    both.once.load_state_dict(state)
    both.extend(50)
    assert_same_rows(both.once, both.whole)


FORGED: list[tuple[tuple[Any, ...], Any]] = [
    (("frames",), None),
    (("frames",), []),
    (("frames",), {}),
    (("frames", "room"), 0),
    (("frames", "room"), -1),
    (("frames", "room"), 2**62),
    (("frames", "room"), 100),
    (("frames", "room"), "9"),
    (("frames", "frame_bytes"), 128),
    (("frames", "frame_bytes"), 0),
    (("frames", "frame_bytes"), 2**50),
    (("frames", "start"), 1),
    (("frames", "start"), 2**61),
    (("frames", "start"), -1),
    (("frames", "stop"), 2**61),
    (("frames", "stop"), 3),
    (("frames", "segments"), None),
    (("frames", "segments"), []),
    (("frames", "segments"), [3]),
    (("frames", "segments", 0, "file"), "../frames-1.bin"),
    (("frames", "segments", 0, "start"), 7),
    (("frames", "segments", 0, "stop"), 7),
    (("frames", "segments", 0, "nbytes"), 640),
    (("frames", "segments", 0, "crc32"), 1),
    (("arrays", "stacks"), ["int64", [3, 1]]),
    (("arrays", "stacks"), ["float64", [1, 3]]),
    (("arrays", "frame_words"), ["int64", [2, 2]]),
    (("arrays", "demonstration_frames"), ["uint8", [1, 0]]),
    (("settings", "fields", "entries", 0, 1, "entries", 0, 1, "stack"), None),
    (("settings", "fields", "entries", 0, 1, "entries", 0, 1, "stack"), 1),
    (("settings", "fields", "entries", 0, 1, "entries", 0, 1, "stack"), 2),
    (("settings", "num_envs"), 2),
]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    both = Both(length=2)
    folder = tmp_path_factory.mktemp("saved")
    for _ in range(2):
        both.extend(250)
        both.once.save(folder)
    return folder


@pytest.mark.parametrize("capacity", [None, 100, 900])
@pytest.mark.parametrize(("where", "value"), FORGED, ids=str)
def test_a_forged_manifest_is_refused(
    saved: Path, tmp_path: Path, where: tuple[Any, ...], value: Any, capacity: int | None
) -> None:
    folder = shutil.copytree(saved, tmp_path / "forged")
    manifest = read_manifest(folder, "manifest.json")
    node = manifest
    for key in where[:-1]:
        node = node[key]
    assert node[where[-1]] != value
    node[where[-1]] = value
    write_manifest(folder, "manifest.json", manifest)
    with pytest.raises((CorruptError, ConfigError)):
        ReplayBuffer.load(folder, capacity=capacity)


@pytest.mark.parametrize("part", ["room", "frame_bytes", "start", "stop", "segments"])
def test_a_manifest_without_a_part_is_refused(saved: Path, tmp_path: Path, part: str) -> None:
    folder = shutil.copytree(saved, tmp_path / "forged")
    manifest = read_manifest(folder, "manifest.json")
    del manifest["frames"][part]
    write_manifest(folder, "manifest.json", manifest)
    with pytest.raises(CorruptError):
        ReplayBuffer.load(folder)


def test_a_manifest_with_frames_is_refused_where_none_are_kept(saved: Path, tmp_path: Path) -> None:
    both = Both().extend(20)
    both.whole.save(tmp_path)
    manifest = read_manifest(tmp_path, "manifest.json")
    manifest["frames"] = read_manifest(saved, "manifest.json")["frames"]
    write_manifest(tmp_path, "manifest.json", manifest)
    with pytest.raises(CorruptError, match="frames"):
        ReplayBuffer.load(tmp_path)


# Demonstrations


def pinned(kernels: str = "cpu", capacity: int = 300, rows: int = 100, **settings: Any) -> Both:
    settings = {"sampler": Proportional(), "length": 8, **settings}
    both = Both(capacity, kernels=kernels, **settings).extend(rows)
    both.call("pin_demonstrations", rows * both.game.num_envs)
    return both


def test_pinned_rows_keep_their_frames_whatever_is_written(kernels: str) -> None:
    both = pinned(kernels)
    assert_same_draws(both.once, both.whole)
    for _ in range(3):
        both.extend(400)
        assert_same_rows(both.once, both.whole)
        assert_same_draws(both.once, both.whole)
    assert both.once.live_ids()[:100].tolist() == list(range(100))


def test_the_first_step_after_pinning_goes_on_from_pinned_frames(kernels: str) -> None:
    both = Both(length=1000, kernels=kernels).add(20)
    both.call("pin_demonstrations", 20)
    before = both.once._state.frame_word(w.NEXT_FRAME)
    both.add(1)
    assert both.once._state.frame_word(w.NEXT_FRAME) == before + 1
    both.extend(900)
    assert_same_rows(both.once, both.whole)


@pytest.mark.parametrize("capacity", [None, 110, 150, 299, 301, 2000])
def test_pinned_frames_are_saved_and_loaded(
    capacity: int | None, kernels: str, tmp_path: Path
) -> None:
    both = pinned()
    for times in (0, 30, 500):
        if times:
            both.extend(times)
        loaded = reloaded(both.once, tmp_path, capacity=capacity, kernels=kernels)
        loaded.check()
        ids = loaded.live_ids()
        assert ids[:100].tolist() == list(range(100))
        assert torch.equal(ids[100:], both.once.live_ids()[100:][len(both.once) - len(loaded) :])
        assert torch.equal(loaded.rows(ids).obs["image"], both.whole.rows(ids).obs["image"])
    both.once = loaded
    both.extend(500)
    loaded.check()
    ids = loaded.live_ids()[:200]
    kept = [i for i in ids.tolist() if i in set(both.whole.live_ids().tolist())]
    assert torch.equal(loaded.rows(kept).obs["image"], both.whole.rows(kept).obs["image"])


def test_pinned_frames_are_in_a_grown_buffer_and_in_copies(kernels: str) -> None:
    both = pinned(kernels).extend(400)
    for other in (both.once.grown(700), copy.deepcopy(both.once)):
        assert_same_rows(other, both.whole)
        other.extend(**both.game.steps(300, 0))
        other.check()
        assert torch.equal(other.rows(range(100)).obs["image"], both.whole.all().obs["image"][:100])


def test_pinned_frames_are_not_lost_to_a_save_under_way(
    tmp_path: Path, disk: threading.Event
) -> None:
    both = Both(length=8).extend(100)
    then = pickle.loads(pickle.dumps(both.once))
    done = both.once.save(tmp_path, background=True)
    assert done is not None
    both.call("pin_demonstrations", 100)
    both.extend(900)
    disk.set()
    done.result(60)
    assert_same_rows(ReplayBuffer.load(tmp_path), then)
    assert_same_rows(reloaded(both.once, tmp_path), both.whole)


def test_clear_drops_pinned_frames(kernels: str) -> None:
    both = pinned(kernels).extend(30)
    both.call("clear")
    both.extend(20)
    both.call("pin_demonstrations", 20)
    both.extend(600)
    assert_same_rows(both.once, both.whole)


def test_a_buffer_loaded_into_another_capacity_can_be_pinned(tmp_path: Path) -> None:
    both = Both().extend(400)
    both.once = reloaded(both.once, tmp_path, capacity=800)
    both.whole = reloaded(both.whole, tmp_path / "whole", capacity=800)
    both.call("pin_demonstrations", 300)
    both.extend(1000)
    assert_same_rows(both.once, both.whole)


def test_copies_of_rows_cannot_be_pinned_later(kernels: str) -> None:
    both = Both(kernels=kernels).extend(20)
    with refused(both.once, InputError, "reserve=3 is room for copies of rows.*without stack="):
        both.once.pin_demonstrations(20, reserve=3)
    both.once.pin_demonstrations(20)
    with refused(both.once, InputError, "1 rows to pin, room for 0: copies .* without"):
        both.once.pin([0])


def test_demonstrations_whose_frames_leave_too_little_room_are_refused(kernels: str) -> None:
    both = Both(length=1, kernels=kernels).extend(200)
    frames = num_frames(both.once)
    room = room_of_rows(300) - frames
    assert -50 < room < 0
    with refused(both.once, InputError, f"{frames} frames of demonstrations leave room for 0 oth"):
        both.once.pin_demonstrations(200)


def test_as_many_frames_as_are_asked_for_fit_beside_pinned_ones(kernels: str) -> None:
    both = Both(length=1, kernels=kernels).extend(130)
    room = room_of_rows(300) - num_frames(both.once)
    assert 1 < room < 170
    with refused(both.once, InputError, f"room for {room} others, fewer than {room + 1}"):
        both.once.pin_demonstrations(130, batch_size=room + 1)
    both.once.pin_demonstrations(130, batch_size=room)
    both.whole.pin_demonstrations(130)
    both.extend(800)
    assert_same_rows(both.once, both.whole)


def test_rows_of_which_some_were_dropped_early_are_not_pinned() -> None:
    both = Both(**SHORT).extend(900)
    held = len(both.once)
    assert held < 900
    with refused(both.once, InputError, "only all rows so far can be pinned"):
        both.once.pin_demonstrations(held)


def test_a_capacity_without_room_for_pinned_frames_is_refused(tmp_path: Path) -> None:
    both = Both(1000, length=1).extend(200)
    both.once.pin_demonstrations(200)
    frames = both.once._state.frame_word(w.FRAME_START)
    both.once.save(tmp_path)
    least = next(n for n in range(1000) if room_of_rows(n) > frames)
    assert least > 300
    with pytest.raises(ConfigError, match=f"{frames} frames are kept for demonstrations"):
        ReplayBuffer.load(tmp_path, capacity=least - 1)
    loaded = ReplayBuffer.load(tmp_path, capacity=least)
    loaded.extend(**both.game.steps(900, 0))
    loaded.check()


# Memory


def test_a_million_stacks_of_four_images_need_8_gigabytes_instead_of_56() -> None:
    image = Field((4, 84, 84), torch.uint8, stack=4)
    action = Field((), torch.int64)
    needed = plan(1_000_000, {"obs": image, "action": action})
    whole = plan(1_000_000, {"obs": Field((4, 84, 84), torch.uint8), "action": action})
    assert needed.total == pytest.approx(8.1e9, rel=0.02)
    assert whole.total == pytest.approx(56.5e9, rel=0.01)
    assert needed.row_bytes < 120


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_frames_count_as_rows_and_are_where_they_are(kind: str) -> None:
    settings: dict[str, Any] = {"device": kind, "num_envs": 4, "n_step": 3}
    needed = plan(1000, fields(STACK), **settings)
    frames = room_of_rows(1000) + (3 + STACK + 2) * 2 * STACK * 4 + 2 * STACK * STEPS_AT_ONCE
    assert needed.rows == 1000 * needed.row_bytes
    assert needed.frames == frames * FRAME_BYTES
    if kind == "cuda":
        hosted = plan(1000, fields(STACK), rows_on="host", **settings)
        assert hosted.host == needed.host + needed.rows + needed.frames


@pytest.mark.parametrize("sampler", [Uniform(), Proportional()])
def test_memory_equals_what_is_allocated(sampler: Any) -> None:
    buffer = Both(500, sampler=sampler, num_envs=2, n_step=2, track_reuse=True).once
    intake = buffer._home.intake
    held = sum(tensor.nbytes for tensor in buffer._state.tensors().values())
    assert buffer.memory().total == held + intake.staging.nbytes + intake._rows.nbytes
    assert buffer._state.frames.shape[1] == FRAME_BYTES >= FRAME[0] * FRAME[1]


# Killed in the middle


def counted(buffer: ReplayBuffer, times: int) -> None:
    """Rows in episodes of three steps; frames say the number of their step."""
    numbers = np.arange(times) + buffer.stats()["added"]
    places = np.arange(1 - STACK, 1)
    stacks = np.maximum(numbers[:, None] + places, (numbers - numbers % 3)[:, None])
    images = np.broadcast_to(stacks[..., None, None], (times, STACK, *FRAME))
    speeds = np.zeros((times, 2), np.float32)
    buffer.extend(
        obs={"image": (images % 256).astype(np.uint8), "speed": speeds},
        action=numbers,
        reward=numbers.astype(np.float32),
        next_obs={"image": ((images + 1) % 256).astype(np.uint8), "speed": speeds},
        terminated=numbers % 3 == 2,
    )


def save_for_ever(folder: str) -> None:
    buffer = ReplayBuffer(700, fields(STACK))
    counted(buffer, 1000)
    while True:
        done = buffer.save(folder, background=True)
        while not done.done():
            counted(buffer, 50)
        sys.stdout.write("\n")
        sys.stdout.flush()


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.long)])
def test_killed_while_frames_go_round_the_save_before_is_whole(tmp_path: Path, kills: int) -> None:
    code = (
        "import sys; from tests.unit.storage.test_frames import save_for_ever; "
        "save_for_ever(sys.argv[1])"
    )
    for number in range(kills):
        folder = tmp_path / str(number)
        with subprocess.Popen(
            [sys.executable, "-c", code, str(folder)],
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
        ) as child:
            assert child.stdout is not None
            for _ in range(1 + number % 3):
                child.stdout.readline()
            time.sleep(0.003 * number)
            child.kill()
        loaded = ReplayBuffer.load(folder)
        loaded.check()
        rows = loaded.all()
        assert torch.equal(rows.ids.float(), rows.reward)
        assert torch.equal(rows.obs["image"][:, -1, 0, 0], (rows.ids % 256).to(torch.uint8))
        assert torch.equal(rows.next_obs["image"][:, -1, 0, 0], ((rows.ids + 1) % 256).byte())
        assert len(loaded) > 500
