"""Several processes save into one folder: it is whole at any moment, and holds one of their saves.

Children are forked from a process of its own for each test, since threads do not survive a fork.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from concurrent.futures import TimeoutError as StillRunning
from typing import TYPE_CHECKING

import numpy as np
import pytest

from relive import InputError, ReplayBuffer
from relive.storage import files, writer_lock
from relive.storage.saving import save_note
from tests.unit.forks import answer_of, forked
from tests.unit.storage.test_saving import numbered, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
ROWS = {"add": 50, "anew": 80, "background": 30}


def note_of(how: str) -> dict[str, object]:
    return {"how": how, "weights": np.ones(3)}


def note_in(folder: Path) -> object:
    return ReplayBuffer.saved_note(folder)["how"]


def save_once(folder: Path, how: str, buffer: ReplayBuffer) -> None:
    """One save; another process may have been faster, which is told."""
    if how == "note":
        save_note(folder, note_of(how))
        return
    if how == "anew":
        buffer = numbered(ROWS[how])
    saving = buffer.save(folder, note=note_of(how), background=how == "background")
    if saving is not None:
        saving.result(60)


def assert_whole(folder: Path, hows: tuple[str, ...]) -> None:
    """One of the saves is there, all of it and nothing else."""
    how = note_in(folder)
    assert how in hows
    if how != "note":
        found = ReplayBuffer.load(folder)
        found.check()
        assert len(found) == ROWS[how]
    manifest = files.read_manifest(folder, "manifest.json")
    named = {segment["file"] for segment in manifest["segments"]} | {manifest["state"]["file"]}
    assert {path.name for path in folder.iterdir()} == named | {"manifest.json"}


def save_by_two(folder: Path, hows: tuple[str, str], rounds: int) -> int:
    """Both save `rounds` times at once, while this process reads; returns what it has read."""
    save_once(folder, hows[0], numbered(ROWS.get(hows[0], 1)))

    def child(how: str) -> None:
        buffer = numbered(ROWS.get(how, 1))
        for _ in range(rounds):
            try:
                save_once(folder, how, buffer)
            except InputError as refusal:
                assert "another buffer has been saved into" in str(refusal)  # noqa: PT017

    children, read = [forked(lambda how=how: child(how)) for how in hows], 0
    for number in children:
        while (ended := os.waitpid(number, os.WNOHANG)) == (0, 0):
            assert note_in(folder) in hows
            read += 1
        assert ended[1] == 0
    assert_whole(folder, hows)
    return read


def stopped_in(folder: Path, how: str, then: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """A child whose save stops at its first byte; its number, and the pipe that lets it go on."""
    begun, opened = os.pipe(), os.pipe()

    def child() -> None:
        os.close(opened[1])
        write_all, reached = files.write_all, threading.Event()

        def write_when_told(*what):
            reached.set()
            os.read(opened[0], 1)
            files.write_all = write_all
            write_all(*what)

        files.write_all = write_when_told
        buffer = numbered(ROWS.get(how, 1))
        saving = threading.Thread(target=save_once, args=(folder, how, buffer))
        saving.start()
        assert reached.wait(60)
        then()
        os.write(begun[1], b".")
        saving.join()

    number = forked(child)
    os.close(opened[0]), os.close(begun[1])
    assert os.read(begun[0], 1), "it ended before"
    return number, opened[1]


def wait_for_the_other(folder: Path, how: str) -> int:
    """A save that begins while another process is at its own ends after that."""
    number, release = stopped_in(folder, how)
    buffer = numbered(ROWS["background"])
    saving = buffer.save(folder, note=note_of("background"), background=True)
    with pytest.raises(StillRunning):
        saving.result(0.2)
    os.close(release)
    saving.result(60)
    assert os.waitpid(number, 0)[1] == 0
    assert note_in(folder) == "background"
    assert_whole(folder, ("background",))
    return 1


def kill_in_a_save(folder: Path, how: str, *, with_child: bool) -> int:
    """Nobody waits for a process that is no more, though a child of it lives on."""
    held, released = os.pipe()

    def live_on() -> None:
        os.close(released)
        os.read(held, 1)

    then = (lambda: forked(live_on)) if with_child else (lambda: None)
    number, _ = stopped_in(folder, how, then)
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    save_once(folder, "background", numbered(ROWS["background"]))
    assert_whole(folder, ("background",))
    os.close(released)
    return 1


def run(call: str, folder: Path) -> int:
    """The answer of a function of this module, in a process of its own."""
    return answer_of("storage.test_saving_processes", call, folder, 60)


HOWS = [("add", "anew"), ("anew", "anew"), ("background", "add"), ("anew", "note"), ("note",) * 2]


@needs_fork
@pytest.mark.parametrize("hows", HOWS, ids=" and ".join)
def test_two_processes_that_save_into_one_folder_leave_it_whole(tmp_path, hows):
    assert run(f"save_by_two(folder, {hows}, 25)", tmp_path / "saved") > 0


@needs_fork
@pytest.mark.parametrize("how", ["add", "background", "note"])
def test_a_save_waits_for_that_of_another_process(tmp_path, how):
    assert run(f"wait_for_the_other(folder, {how!r})", tmp_path / "saved") == 1


@needs_fork
@pytest.mark.parametrize(
    ("how", "with_child"),
    # a fork waits for a save that is not in the background
    [("add", False), ("background", False), ("background", True), ("note", False), ("note", True)],
)
def test_a_process_that_was_killed_while_it_saved_keeps_nobody_waiting(tmp_path, how, with_child):
    call = f"kill_in_a_save(folder, {how!r}, with_child={with_child})"
    assert run(call, tmp_path / "saved") == 1


@pytest.mark.skipif(sys.platform == "win32", reason="there are locks everywhere")
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_buffer_is_saved_also_where_the_file_system_has_no_locks(tmp_path, monkeypatch, number):
    def flock(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(writer_lock.fcntl, "flock", flock)
    buffer = numbered(ROWS["add"])
    for _ in range(2):
        buffer.save(tmp_path, note=note_of("add"))
        assert_whole(tmp_path, ("add",))


def test_a_lock_that_was_left_or_copied_is_in_nobodys_way(tmp_path):
    buffer = numbered(ROWS["add"])
    buffer.save(tmp_path / "saved", note=note_of("add"))
    (tmp_path / "saved" / writer_lock.TURN).write_bytes(b"")
    assert len(ReplayBuffer.load(tmp_path / "saved")) == ROWS["add"]
    assert note_in(tmp_path / "saved") == "add"
    (tmp_path / "saved").rename(tmp_path / "moved")
    buffer.save(tmp_path / "moved", note=note_of("add"))
    assert_whole(tmp_path / "moved", ("add",))


def test_a_file_called_lock_in_the_folder_is_not_written_over(tmp_path):
    (tmp_path / "lock").write_text("mine")
    numbered(ROWS["add"]).save(tmp_path, note=note_of("add"))
    assert (tmp_path / "lock").read_text() == "mine"


def test_a_save_that_comes_too_late_says_what_to_do(tmp_path, monkeypatch):
    buffer = numbered(50)
    buffer.save(tmp_path)
    write(buffer, 10)
    saver, before = buffer._saver, type(buffer._saver)._before

    def then_another(folder):
        found = before(saver, folder)
        monkeypatch.undo()
        numbered(70).save(tmp_path)
        return found

    monkeypatch.setattr(saver, "_before", then_another)
    with pytest.raises(InputError, match=r"saved into .* meanwhile; save again"):
        buffer.save(tmp_path)
    assert len(ReplayBuffer.load(tmp_path)) == 70
    buffer.save(tmp_path)
    assert len(ReplayBuffer.load(tmp_path)) == 60
