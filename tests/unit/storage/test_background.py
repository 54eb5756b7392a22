"""A save in the background writes the buffer as it was when the save was asked for."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from relive import InputError, ReplayBuffer
from relive.storage import files
from tests.properties.calls import Calls
from tests.unit.storage.test_saving import (
    FOREIGN,
    SPECS,
    advance,
    assert_same_where_held,
    numbered,
    write,
)


@pytest.mark.parametrize("calls_meanwhile", [1, 30, 300])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_what_happens_meanwhile_is_not_in_it(spec, calls_meanwhile, tmp_path, disk):
    buffer = spec.buffer()
    calls = Calls(spec, buffer, seed=calls_meanwhile)
    for number in range(3):
        disk.set()
        advance(calls, 50, buffer)
        disk.clear()
        then = pickle.loads(pickle.dumps(buffer))
        saving = buffer.save(tmp_path, background=True)
        later = calls.take(calls_meanwhile)
        cleared = any(name == "clear" for name, _ in later)
        if cleared:  # waits for the save
            disk.set()
        for name, arguments in later:
            with suppress(*FOREIGN):
                getattr(buffer, name)(**arguments)
        assert cleared or not saving.done()
        disk.set()
        saving.result(60)
        loaded = ReplayBuffer.load(tmp_path)
        loaded.check()
        assert_same_where_held(then, loaded)
        buffer.check()
        assert number == 0 or spec.capacity < 100 or len(list(tmp_path.iterdir())) > 2


def test_rows_that_the_ring_overtakes_are_copied_first(tmp_path, disk):
    buffer = numbered(900)
    then = pickle.loads(pickle.dumps(buffer))
    saving = buffer.save(tmp_path, background=True)
    for count in (50, 1, 700, 3000):  # three laps
        write(buffer, count)
    buffer.update_priorities(buffer.live_ids(), torch.rand(1000))
    disk.set()
    saving.result(60)
    assert_same_where_held(then, ReplayBuffer.load(tmp_path))
    buffer.save(tmp_path)
    assert_same_where_held(buffer, ReplayBuffer.load(tmp_path))


def test_clear_and_the_next_save_wait_for_it(tmp_path, disk):
    buffer = numbered(100)
    then = pickle.loads(pickle.dumps(buffer))
    saving = buffer.save(tmp_path / "a", background=True)
    waiting = threading.Thread(target=buffer.clear)
    waiting.start()
    assert len(buffer) == 100
    disk.set()
    waiting.join(60)
    assert len(buffer) == 0
    assert saving.done()
    assert_same_where_held(then, ReplayBuffer.load(tmp_path / "a"))
    first = buffer.save(tmp_path / "a", background=True)
    buffer.save(tmp_path / "b")
    assert first.done()


def test_a_failure_is_told_by_the_future_and_the_save_before_stays(tmp_path, monkeypatch):
    buffer = numbered(100)
    buffer.save(tmp_path)
    then = pickle.loads(pickle.dumps(buffer))
    write(buffer, 10)
    with monkeypatch.context() as patched:
        patched.setattr(files, "write_all", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        saving = buffer.save(tmp_path, background=True)
        with pytest.raises(OSError, match="disk full"):
            saving.result(60)
    assert_same_where_held(then, ReplayBuffer.load(tmp_path))
    buffer.save(tmp_path, background=True).result(60)
    assert_same_where_held(buffer, ReplayBuffer.load(tmp_path))
    assert len(list(tmp_path.iterdir())) == 4  # nothing is left of the one that failed


class Lost:
    """The lock of a buffer whose device is lost after some calls."""

    def __init__(self, calls):
        self.calls = calls

    def __enter__(self):
        self.calls -= 1
        if self.calls < 0:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def __exit__(self, *_):
        pass


def test_who_waits_for_it_hears_of_a_device_that_is_lost(tmp_path):
    buffer = numbered(10)
    buffer._saver._lock = Lost(calls=1)
    saving = buffer.save(tmp_path, background=True)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        saving.result(60)
    assert not buffer._saver.active


def test_it_cannot_be_called_off(tmp_path):
    buffer = numbered(10)
    saving = buffer.save(tmp_path, background=True)
    assert not saving.cancel()
    saving.result(60)


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[3],
    )


def test_a_program_that_ends_waits_for_it(tmp_path):
    code = (
        "import sys; from tests.unit.storage.test_saving import numbered; "
        "b = numbered(300_000, 300_000); b.save(sys.argv[1], background=True)"
    )
    done = run(code, str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(ReplayBuffer.load(tmp_path)) == 300_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_meanwhile_has_no_save_to_wait_for(tmp_path):
    code = """
import os, sys, threading, torch
from tests.unit.storage.test_saving import numbered, write
from relive.storage import files
torch.set_num_threads(1)
begun, opened, write_all = threading.Event(), threading.Event(), files.write_all
def write_when_opened(*what):
    begun.set()
    assert opened.wait(20), "the fork waits for the save"
    write_all(*what)
files.write_all = write_when_opened
b = numbered(100)
saving = b.save(sys.argv[1] + "/parent", background=True)
assert begun.wait(60)
child = os.fork()
opened.set()
if child == 0:
    assert not b.is_saving
    write(b, 2000)  # no row is kept back for the save
    b.clear()
    assert not b.is_saving
    b.save(sys.argv[1] + "/child", background=True).result(60)
    os._exit(len(b))
assert os.waitpid(child, 0)[1] == 0
saving.result(60)
"""
    done = run(code, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert len(ReplayBuffer.load(tmp_path / "parent")) == 100
    assert len(ReplayBuffer.load(tmp_path / "child")) == 0


def killed_saves(folder: Path, kills: int, seed: int) -> int:
    """Kills children that go on writing rows while they save; returns saves found."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(seed)
    found = 0
    for number in range(kills):
        path = folder / str(number)
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            save_for_ever(path, np.random.default_rng((seed, number)), writable)
        os.read(readable, int(rng.integers(1, 4)))
        threading.Event().wait(float(rng.uniform(0, 0.02)))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(readable), os.close(writable)
        buffer = ReplayBuffer.load(path)
        buffer.check()
        rows, note = buffer.all(), ReplayBuffer.saved_note(path)
        assert torch.equal(rows.ids.float(), rows.reward)
        assert torch.equal(rows.obs[:, 0], rows.reward)
        assert note["added"] == buffer.stats()["added"]
        assert note["array"].tolist() == [note["added"]] * 3
        found += 1
    return found


def save_for_ever(path: Path, rng: np.random.Generator, writable: int) -> None:
    buffer = numbered(500, 600)
    while True:
        added = buffer.stats()["added"]
        note = {"added": added, "array": np.full(3, added)}
        saving = buffer.save(path, note=note, background=True)
        while not saving.done():
            write(buffer, int(rng.integers(1, 40)))
            buffer.update_priorities(buffer.sample(4).ids, rng.normal(size=4))
        os.write(writable, b".")


@pytest.mark.parametrize("kills", [25, pytest.param(300, marks=pytest.mark.long)])
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_killed_while_it_trains_and_saves_the_save_before_is_whole(tmp_path, kills):
    code = (
        "import sys; from pathlib import Path; from tests.unit.storage import test_background as t;"
        "print(t.killed_saves(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))"
    )
    seed = int.from_bytes(os.urandom(4))  # moments differ from run to run anyhow
    done = run(code, str(tmp_path), str(kills), str(seed))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == kills


NOTE = {
    "step": 7,
    "huge": 2**127,
    "name": "α",
    "none": None,
    "flag": True,
    "rate": 0.1,
    "never": float("inf"),
    "pair": (1, [2.5, "x"]),
    "state": {0: {"exp_avg": torch.tensor([[1.0, -0.0], [2.0, 3.0]])}, "steps": torch.tensor(5.0)},
    "half": torch.tensor([1.5], dtype=torch.bfloat16),
    "mask": np.array([True, False]),
    "obs": np.zeros((0, 3), np.float32),
    "scalar": np.int64(3),
}


@pytest.mark.parametrize("background", [False, True])
def test_a_note_comes_back_as_it_was(tmp_path, background):
    buffer = numbered(10)
    saving = buffer.save(tmp_path, note=NOTE, background=background)
    if saving is not None:
        saving.result(60)
    found = ReplayBuffer.saved_note(tmp_path)
    assert list(found) == list(NOTE)
    for name, value in NOTE.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(found[name], value)
            assert found[name].dtype == value.dtype
        elif isinstance(value, np.ndarray):
            np.testing.assert_array_equal(found[name], value, strict=True)
        elif name == "state":
            assert list(found[name]) == [0, "steps"]
            assert torch.equal(found[name][0]["exp_avg"], value[0]["exp_avg"])
            assert found[name]["steps"].shape == ()
        else:
            assert found[name] == value
    assert isinstance(found["scalar"], int)
    assert len(ReplayBuffer.load(tmp_path)) == 10


def test_an_optimiser_goes_on_from_a_note(tmp_path):
    layer = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(layer.parameters())
    layer(torch.ones(3)).sum().backward()
    optimiser.step()
    numbered(1).save(tmp_path, note={"o": optimiser.state_dict(), "l": layer.state_dict()})
    other = torch.nn.Linear(3, 2)
    again = torch.optim.Adam(other.parameters())
    note = ReplayBuffer.saved_note(tmp_path)
    other.load_state_dict(note["l"])
    again.load_state_dict(note["o"])
    for module, stepping in ((layer, optimiser), (other, again)):
        module.zero_grad()
        module(torch.ones(3)).square().sum().backward()
        stepping.step()
    assert torch.equal(layer.weight, other.weight)


@pytest.mark.parametrize(
    ("note", "named"),
    [
        ({"a": [1, object()]}, r"note\['a'\]\[1\] is a object"),
        ({1.5: 2}, "note is a dict"),
        ({"a": {"b": {1, 2}}}, r"note\['a'\]\['b'\] is a set"),
        (np.array([None]), "note is an array of object"),
        ({"f": print}, r"note\['f'\] is a builtin_function_or_method"),
    ],
)
def test_what_a_note_cannot_keep_is_named_and_nothing_written(tmp_path, note, named):
    with pytest.raises(InputError, match=named):
        numbered(1).save(tmp_path / "saved", note=note)
    assert not (tmp_path / "saved").exists()


def test_a_note_is_a_copy_of_the_moment(tmp_path, disk):
    weights = torch.zeros(3)
    saving = numbered(1).save(tmp_path, note=weights, background=True)
    weights += 1
    disk.set()
    saving.result(60)
    assert ReplayBuffer.saved_note(tmp_path).tolist() == [0, 0, 0]


def test_without_a_note_there_is_none(tmp_path):
    numbered(1).save(tmp_path)
    assert ReplayBuffer.saved_note(tmp_path) is None


def test_rows_that_another_device_pads_otherwise_are_loaded(tmp_path, monkeypatch):
    spec = SPECS["pins, n = 2"]
    buffer = spec.buffer()
    calls = Calls(spec, buffer, seed=4)
    advance(calls, 100, buffer)
    buffer.save(tmp_path)
    advance(calls, 10, buffer)
    buffer.save(tmp_path)
    monkeypatch.setattr("relive.storage.memory.ROW_ALIGNMENT", {"cpu": 96})
    other = ReplayBuffer.load(tmp_path, device="cpu")
    assert other._home.layout.row_bytes != buffer._home.layout.row_bytes
    other.check()
    ours, theirs = buffer.all(), other.all()
    assert torch.equal(ours.ids, theirs.ids)
    for name in ours.keys():  # noqa: SIM118 - a batch is iterated by nobody
        assert torch.equal(ours[name], theirs[name]), name
    monkeypatch.undo()
    other.save(tmp_path)
    monkeypatch.setattr("relive.storage.memory.ROW_ALIGNMENT", {"cpu": 16})
    assert_same_where_held(buffer, ReplayBuffer.load(tmp_path))


@pytest.mark.parametrize("damage", ["removed", "cut"])
def test_rows_that_are_gone_from_the_folder_are_written_anew(tmp_path, damage):
    buffer = numbered(100)
    buffer.save(tmp_path)
    write(buffer, 10)
    buffer.save(tmp_path)
    file = min(tmp_path.glob("rows-*.bin"))
    if damage == "removed":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    write(buffer, 10)
    buffer.save(tmp_path)
    assert_same_where_held(buffer, ReplayBuffer.load(tmp_path))


def test_two_buffers_that_save_into_one_folder_leave_it_whole(tmp_path):
    one, other = numbered(50), numbered(80)
    for _ in range(20):
        saves = [buffer.save(tmp_path, background=True) for buffer in (one, other)]
        for saving in saves:
            assert saving.exception(60) is None or isinstance(saving.exception(), InputError)
        assert len(ReplayBuffer.load(tmp_path)) in (50, 80)


def test_a_buffer_that_is_saved_again_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    from relive.storage import loading

    buffer = numbered(100)
    buffer.save(tmp_path)
    read, saved = loading._arrays, []

    def later(folder, manifest):
        if not saved:
            write(buffer, 5)
            saved.append(buffer.save(tmp_path))
        return read(folder, manifest)

    monkeypatch.setattr(loading, "_arrays", later)
    assert len(ReplayBuffer.load(tmp_path)) == 105
