"""A buffer that is saved and loaded goes on as if nothing had happened."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from relive import (
    ConfigError,
    CorruptError,
    Field,
    InputError,
    Linear,
    NotReadyError,
    Proportional,
    RankBased,
    Recent,
    ReplayBuffer,
    Uniform,
    UnsupportedError,
)
from relive.ops.window.reference import slots_of
from relive.storage import files
from relive.storage.saving import save_note
from tests.equivalence.states import assert_same_batch, comparable, same_bits
from tests.properties.calls import Calls, Spec
from tests.unit.forks import answer_of

SPECS = {
    "uniform, three lanes, n = 3": Spec(num_envs=3, n_step=3, autoreset="next_step", capacity=40),
    "proportional, reuse": Spec(
        sampler=Proportional(beta=Linear(0.4, 1.0, 50), new_priority="max_current"),
        track_reuse=True,
        capacity=150,
    ),
    "rank in a window, pins": Spec(
        sampler=RankBased(resort_every=5), window=Recent(eta=0.5, c_min=2, updates=7), pins=True
    ),
    "pins, n = 2": Spec(
        sampler=Proportional(uniform_share=0.2), pins=True, n_step=2, capacity=30, num_envs=2
    ),
}
FOREIGN = (InputError, NotReadyError, UnsupportedError)


def assert_same_where_held(a: ReplayBuffer, b: ReplayBuffer) -> None:
    """All that counts is equal, bit for bit; slots that hold no row may differ."""
    assert torch.equal(a.live_ids(), b.live_ids())
    held = slots_of(a._state, a.live_ids())
    for name, tensor in comparable(a._state).items():
        other = comparable(b._state)[name]
        if name in ("rows", "errors", "uses") and len(tensor):
            tensor, other = tensor[held], other[held]
        assert same_bits(tensor, other), name


def advance(calls: Calls, number: int, *buffers: ReplayBuffer) -> None:
    """The same random calls on each."""
    for name, arguments in calls.take(number):
        outcomes = []
        for buffer in buffers:
            try:
                outcomes.append(getattr(buffer, name)(**arguments))
            except FOREIGN as refusal:
                outcomes.append(str(refusal))
        if name in ("sample", "sample_range") and not isinstance(outcomes[0], str):
            for other in outcomes[1:]:
                assert_same_batch(outcomes[0], other)


@pytest.mark.parametrize("kernels", ["cpu", "reference"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_loaded_buffer_is_in_the_same_state_and_goes_on_alike(spec, kernels, tmp_path):
    buffer = spec.buffer(kernels)
    calls = Calls(spec, buffer, seed=4)
    for _ in range(6):  # into the same folder: later saves add to the first
        advance(calls, 60, buffer)
        buffer.save(tmp_path / "saved")
        loaded = ReplayBuffer.load(tmp_path / "saved", kernels=kernels)
        loaded.check()
        assert_same_where_held(buffer, loaded)
        assert loaded.stats() == buffer.stats()
        assert repr(loaded) == repr(buffer)
        advance(calls, 20, buffer, loaded)
        assert_same_where_held(buffer, loaded)


def test_a_buffer_that_was_loaded_adds_to_what_is_there(tmp_path):
    spec = SPECS["proportional, reuse"]
    buffer = spec.buffer()
    advance(Calls(spec, buffer, seed=1), 200, buffer)
    buffer.save(tmp_path)
    for seed in range(4):
        buffer = ReplayBuffer.load(tmp_path)
        advance(Calls(spec, buffer, seed), 30, buffer)
        buffer.save(tmp_path)
        assert_same_where_held(buffer, ReplayBuffer.load(tmp_path))
    assert len(list(tmp_path.glob("rows-*.bin"))) > 1


def rows_written(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("rows-*.bin"))


def numbered(count, capacity=1000, **settings):
    fields = {"obs": Field((2,)), "action": Field()}
    buffer = ReplayBuffer(capacity, fields, **{"sampler": Proportional(), **settings})
    write(buffer, count)
    return buffer


def write(buffer, count):
    numbers = np.arange(count, dtype=np.float32) + buffer.stats()["added"]
    pairs = np.stack([numbers, -numbers], 1)
    buffer.extend(
        obs=pairs, action=numbers, reward=numbers, next_obs=pairs, terminated=np.zeros(count, bool)
    )


def test_only_new_rows_are_written_to_a_folder_that_holds_the_others(tmp_path):
    buffer = numbered(500)
    buffer.save(tmp_path)
    first = {path: path.stat().st_mtime_ns for path in tmp_path.glob("rows-*.bin")}
    write(buffer, 10)
    buffer.save(tmp_path)
    row_bytes = buffer.memory().row_bytes
    assert {path: path.stat().st_mtime_ns for path in first} == first
    assert rows_written(tmp_path) == 510 * row_bytes
    write(buffer, 1000)  # all that was saved is gone
    buffer.save(tmp_path)
    assert rows_written(tmp_path) == 1000 * row_bytes
    assert_same_where_held(buffer, ReplayBuffer.load(tmp_path))


def test_a_folder_that_another_buffer_has_written_is_written_anew(tmp_path):
    one, other = numbered(50), numbered(70)
    one.save(tmp_path)
    other.save(tmp_path)
    write(one, 5)
    one.save(tmp_path)
    assert_same_where_held(one, ReplayBuffer.load(tmp_path))


@pytest.mark.parametrize("capacity", [3, 100, 700, 1000, 5000])
def test_another_capacity_keeps_the_newest_rows_with_their_priorities(tmp_path, capacity):
    buffer = numbered(1300)
    ids = buffer.live_ids()
    buffer.update_priorities(ids, torch.linspace(0.1, 5, len(ids)))
    buffer.save(tmp_path)
    loaded = ReplayBuffer.load(tmp_path, capacity=capacity)
    loaded.check()
    kept = ids[-capacity:]
    assert torch.equal(loaded.live_ids(), kept)
    assert torch.equal(loaded.priorities(kept), buffer.priorities(kept))
    assert torch.equal(loaded.rows(kept).obs, buffer.rows(kept).obs)
    write(loaded, 10)
    loaded.check()


def test_demonstrations_need_room(tmp_path):
    buffer = numbered(20)
    buffer.pin_demonstrations(20, reserve=5)
    write(buffer, 30)
    buffer.pin([25])
    buffer.save(tmp_path)
    assert_same_where_held(buffer, ReplayBuffer.load(tmp_path))
    with pytest.raises(ConfigError, match="25 rows are kept for demonstrations"):
        ReplayBuffer.load(tmp_path, capacity=25)
    loaded = ReplayBuffer.load(tmp_path, capacity=30)
    loaded.check()
    assert len(loaded) == 20 + 1 + 5


@pytest.fixture
def saved(tmp_path):
    buffer = numbered(40, n_step=2)
    buffer.save(tmp_path / "saved")
    write(buffer, 5)
    buffer.save(tmp_path / "saved")
    return tmp_path / "saved"


def test_every_changed_byte_is_noticed(saved):
    rng = np.random.default_rng(0)
    for path in sorted(saved.iterdir()):
        whole = path.read_bytes()
        for position in {0, len(whole) - 1, *rng.integers(0, len(whole), 60).tolist()}:
            changed = bytearray(whole)
            changed[position] ^= 1 << int(rng.integers(8))
            path.write_bytes(changed)
            try:
                ReplayBuffer.load(saved)
            except (CorruptError, InputError):
                continue
            # white space, or another way to write the same
            assert json.loads(bytes(changed)) == json.loads(whole)
        path.write_bytes(whole)
    ReplayBuffer.load(saved).check()


@pytest.mark.parametrize("length", [0, 1, 0.5, -1])
def test_a_file_that_is_cut_or_longer_is_refused(saved, length):
    for path in sorted(saved.iterdir()):
        whole = path.read_bytes()
        cut = (
            whole + b"x"
            if length == -1
            else whole[: int(length if length > 0.5 else length * len(whole))]
        )
        path.write_bytes(cut)
        with pytest.raises(CorruptError, match=path.name):
            ReplayBuffer.load(saved)
        path.write_bytes(whole)


def test_a_missing_file_is_named(saved):
    for path in sorted(saved.iterdir()):
        whole = path.read_bytes()
        path.unlink()
        with pytest.raises((CorruptError, InputError), match=path.name):
            ReplayBuffer.load(saved)
        path.write_bytes(whole)


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"holds no saved buffer: there is no manifest\.json"):
        ReplayBuffer.load(tmp_path)
    numbered(3).save(tmp_path / "run" / "checkpoint")
    with pytest.raises(InputError, match=r"manifest\.json; .*checkpoint has one$"):
        ReplayBuffer.load(tmp_path / "run")
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    with pytest.raises(CorruptError, match="not what save"):
        ReplayBuffer.load(tmp_path)


def test_a_newer_format_is_refused(saved):
    manifest = files.read_manifest(saved, "manifest.json")
    files.write_manifest(saved, "manifest.json", {**manifest, "format": 2})
    with pytest.raises(InputError, match="saved in format 2, this version of relive reads 1"):
        ReplayBuffer.load(saved)


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    others = ["rows-of-mine.bin", "state-old.bin", "rows-7.bin.txt", "notes.txt"]
    for name in others:
        (tmp_path / name).write_text(name)
    buffer = numbered(20)
    for _ in range(3):
        buffer.save(tmp_path)
        write(buffer, 1000)
    assert [(tmp_path / name).read_text() for name in others] == others
    assert len(list(tmp_path.iterdir())) == len(others) + 3


def test_what_a_save_leaves_is_named_by_its_manifest(saved):
    manifest = files.read_manifest(saved, "manifest.json")
    named = {segment["file"] for segment in manifest["segments"]} | {manifest["state"]["file"]}
    assert {path.name for path in saved.iterdir()} == named | {"manifest.json"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


FAILURES = {  # what fails, after how many calls
    "the first byte": (files, "write_all", 0),
    "part of the rows": (files, "write_all", 1),
    "rows on the disk": (files.os, "fsync", 0),
    "the state": (files.os, "fsync", 1),
    "the manifest": (files.os, "fsync", 2),
    "its place": (Path, "replace", 0),
}


@pytest.mark.parametrize("error", [OSError("No space left"), KeyboardInterrupt(), MemoryError()])
@pytest.mark.parametrize("how", ["first", "added", "anew", "background", "note"])
@pytest.mark.parametrize("fails", FAILURES.values(), ids=FAILURES)
def test_a_save_that_fails_leaves_the_folder_as_it_was(tmp_path, monkeypatch, fails, how, error):
    buffer, other = numbered(30), numbered(60)
    if how != "first":
        buffer.save(tmp_path, note=np.ones(3))
    write(buffer, 10)
    owner, name, calls = fails
    if how == "note":
        calls = min(calls, 1)  # it has no rows
    before, real, count = contents(tmp_path), getattr(owner, name), iter(range(100))

    def failing(*what):
        if next(count) >= calls:
            if name == "write_all":
                real(what[0], what[1][:5])
            raise error
        return real(*what)

    monkeypatch.setattr(owner, name, failing)
    save = {
        "background": lambda: buffer.save(tmp_path, background=True).result(60),
        "note": lambda: save_note(tmp_path, [np.ones(3), np.ones(2)]),
        "anew": lambda: other.save(tmp_path),
    }.get(how, lambda: buffer.save(tmp_path))
    for _ in range(3):
        with pytest.raises(type(error)):
            save()
        assert contents(tmp_path) == before
    monkeypatch.undo()
    buffer.save(tmp_path)
    assert_same_where_held(buffer, ReplayBuffer.load(tmp_path))


def test_a_save_that_fails_once_its_manifest_is_in_place_is_there(tmp_path, monkeypatch):
    buffer = numbered(30)
    buffer.save(tmp_path)
    write(buffer, 10)

    def sync_folder(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "sync_folder", sync_folder)
    with pytest.raises(KeyboardInterrupt):
        buffer.save(tmp_path)
    monkeypatch.undo()
    assert_same_where_held(buffer, ReplayBuffer.load(tmp_path))
    buffer.save(tmp_path)
    assert_same_where_held(buffer, ReplayBuffer.load(tmp_path))


def test_a_note_that_is_too_large_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST_MANIFEST", 5000)
    with pytest.raises(InputError, match=r"manifest\.json would have"):
        numbered(3).save(tmp_path, note=[*range(1000)])
    assert contents(tmp_path) == {}


def killed_saves(folder: Path, kills: int, seed: int) -> int:
    """Kills children while they save, loads what they leave; returns rows found.

    In a process of its own: children are forked from it, ready to save at once.
    """
    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    rng = np.random.default_rng(seed)
    found = 0
    for number in range(kills):
        path = folder / str(number)
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            save_for_ever(path, np.random.default_rng((seed, number)), writable)
        os.read(readable, int(rng.integers(1, 4)))  # waits for a save; there may be more
        time.sleep(float(rng.uniform(0, 0.03)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(readable), os.close(writable)
        buffer = ReplayBuffer.load(path)
        buffer.check()
        rows = buffer.all()
        assert torch.equal(rows.obs, rows.reward[:, None].expand(-1, 40))
        assert torch.equal(rows.ids.float(), rows.reward)
        write_wide(buffer, 1)
        buffer.check()
        buffer.save(path)
        assert_same_where_held(buffer, ReplayBuffer.load(path))
        shutil.rmtree(path)
        found += len(buffer)
    return found


def save_for_ever(path: Path, rng: np.random.Generator, writable: int) -> None:
    """Writes rows that tell their id, and saves, until killed; a byte for each save."""
    fields = {"obs": Field((40,)), "action": Field()}
    buffer = ReplayBuffer(3000, fields, sampler=Proportional())
    while True:
        write_wide(buffer, int(rng.integers(1, 2000)))
        buffer.update_priorities(buffer.live_ids()[-1:], rng.normal(size=1))
        buffer.save(path)
        os.write(writable, b".")


def write_wide(buffer: ReplayBuffer, count: int) -> None:
    tags = np.arange(count, dtype=np.float32) + buffer.stats()["added"]
    obs = np.repeat(tags[:, None], 40, 1)
    buffer.extend(obs=obs, action=tags, reward=tags, next_obs=obs, terminated=tags < 0)


@pytest.mark.parametrize("kills", [25, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_save_that_is_killed_leaves_the_one_before_whole(tmp_path, kills):
    seed = int.from_bytes(os.urandom(4))  # moments differ from run to run anyhow
    call = f"killed_saves(folder, {kills}, {seed})"
    assert answer_of("storage.test_saving", call, tmp_path, 4 * kills) > kills


def test_settings_come_back_as_they_were(tmp_path):
    fields = {
        "obs": {"a": Field((2,), store=torch.uint8), "b": {"c": Field((), torch.int16)}},
        "action": Field(),
    }
    made = [
        {"sampler": Uniform(), "window": Recent(7), "demo_fraction": None},
        {"sampler": RankBased(beta=0.3), "demo_fraction": Linear(0.5, 0.1, 9), "gamma": 0.5},
        {"sampler": Proportional(normalize=None), "num_envs": 2, "autoreset": "same_step"},
    ]
    for number, settings in enumerate(made):
        buffer = ReplayBuffer(9, fields, **settings)
        buffer.save(tmp_path / str(number))
        loaded = ReplayBuffer.load(tmp_path / str(number))
        assert loaded._home.settings == buffer._home.settings
        assert loaded._home.layout.fields == fields


def paying(first, count, buffer=None):
    """A buffer, or this one, with rows whose rewards are first, first + 1, ..."""
    if buffer is None:
        buffer = ReplayBuffer(100, {"obs": Field(()), "action": Field(())})
    rewards = np.arange(first, first + count, dtype=np.float32)
    zeros = np.zeros(count, np.float32)
    buffer.extend(
        obs=zeros, action=zeros, reward=rewards, next_obs=zeros, terminated=np.ones(count, bool)
    )
    return buffer


def test_after_another_state_has_been_taken_over_a_save_is_of_that(tmp_path):
    buffer = paying(0, 10)
    buffer.save(tmp_path)
    buffer.load_state_dict(paying(1000, 10).state_dict())
    buffer.save(tmp_path)
    assert ReplayBuffer.load(tmp_path).all().reward.tolist() == [*range(1000, 1010)]


def test_a_buffer_that_went_back_is_saved_as_it_goes_on(tmp_path):
    buffer = paying(0, 5)
    state = buffer.state_dict()
    paying(5, 5, buffer).save(tmp_path)
    buffer.load_state_dict(state)
    for more in (0, 3):
        if more:
            paying(500, more, buffer)
        buffer.save(tmp_path)
        expected = [0, 1, 2, 3, 4, *range(500, 500 + more)]
        assert ReplayBuffer.load(tmp_path).all().reward.tolist() == expected


def test_the_state_of_rows_in_pinned_memory_is_taken_elsewhere_too():
    state = paying(0, 3).state_dict()
    state["settings"]["rows_on"] = "host"
    buffer = paying(7, 1)
    buffer.load_state_dict(state)
    assert buffer.all().reward.tolist() == [0, 1, 2]
