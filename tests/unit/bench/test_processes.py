"""Processes of the sides: answers, and the last words of those that are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from relive.bench import processes
from relive.bench.processes import SideLostError, SideProcess

if TYPE_CHECKING:
    from pathlib import Path


def test_what_a_library_prints_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sides").mkdir()
    (tmp_path / "sides" / "loud.py").write_text(
        "import os\nprint('loaded')\nos.system('echo loaded too')\n"
        "class Side:\n    PACKAGES = ('numpy',)\n"
    )
    (tmp_path / "worker.py").write_text(processes.WORKER.read_text())
    monkeypatch.setattr(processes, "WORKER", tmp_path / "worker.py")
    with SideProcess("loud") as process:
        assert list(process.ask("open")["versions"]) == ["numpy"]


def test_a_side_that_dies_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text("raise SystemExit('out of memory')")
    monkeypatch.setattr(processes, "WORKER", tmp_path / "worker.py")
    with SideProcess("any") as process, pytest.raises(SideLostError, match="out of memory"):
        process.ask("open")


def test_a_side_that_dies_in_silence_gives_its_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text("import os; input(); os._exit(3)")
    monkeypatch.setattr(processes, "WORKER", tmp_path / "worker.py")
    with (
        SideProcess("any") as process,
        pytest.raises(SideLostError, match="exit status 3: it said nothing"),
    ):
        process.ask("open")


def test_a_side_that_does_not_answer_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "worker.py").write_text("import time; time.sleep(60)")
    monkeypatch.setattr(processes, "WORKER", tmp_path / "worker.py")
    monkeypatch.setattr(processes, "PATIENCE", 0.1)
    with SideProcess("any") as process, pytest.raises(SideLostError, match="no answer to 'open'"):
        process.ask("open")
