"""A run directory read as it grows."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from relive.errors import InputError
from relive.report import follow
from relive.report.follow import Follower, is_written_to, newest_run
from tests.unit.report.conftest import ENDED, EPISODES, STARTED, WHOLE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.report.conftest import MakeRun

    Record = dict[str, Any]


def text_of(*records: Record) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def append(run: Path, text: str) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(text)


def test_what_is_added_is_read_once(make_run: MakeRun) -> None:
    run = make_run([STARTED])
    follower = Follower(run)
    assert follower.read() == ([STARTED], False, False)
    assert follower.read() == ([], False, False)
    append(run, text_of(*EPISODES))
    assert follower.read() == (EPISODES, False, False)


def test_half_a_line_is_read_when_it_is_whole(make_run: MakeRun) -> None:
    run = make_run([STARTED])
    follower = Follower(run)
    follower.read()
    line = text_of({**ENDED, "note": "é"}).encode()
    for cut in (1, 20, len(line) - 3):
        append(run, line[:cut].decode())
        assert follower.read().records == []
        append(run, line[cut:].decode())
        assert follower.read().records == [{**ENDED, "note": "é"}]


def test_a_character_cut_in_half_is_read_when_it_is_whole(make_run: MakeRun) -> None:
    run = make_run([STARTED])
    follower = Follower(run)
    line = json.dumps({**ENDED, "note": "é"}, ensure_ascii=False).encode() + b"\n"
    half = line.index(b"\xc3") + 1
    for piece in (line[:half], line[half:]):
        with (run / "metrics.jsonl").open("ab") as file:
            file.write(piece)
        news = follower.read()
    assert news.records[-1]["note"] == "é"


def test_a_run_that_does_not_exist_yet_has_no_news(tmp_path: Path) -> None:
    run = tmp_path / "run"
    follower = Follower(run)
    assert follower.read() == ([], False, False)
    assert follower.quiet_for(0.0) is None
    run.mkdir()
    assert follower.read() == ([], False, False)
    append(run, text_of(STARTED))
    assert follower.read() == ([STARTED], False, False)


def test_a_long_file_is_read_in_pieces(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "CHUNK", 100)
    follower = Follower(make_run())
    found, pieces, more = [], 0, True
    while more:
        records, _, more = follower.read()
        found += records
        pieces += 1
    assert found == WHOLE
    assert pieces > 50


@pytest.mark.parametrize("count", [1, 30, 60])
def test_a_run_written_anew_is_told_from_one_that_goes_on(make_run: MakeRun, count: int) -> None:
    run = make_run([STARTED, *EPISODES[:30]])
    follower = Follower(run)
    follower.read()
    others = [{**record, "env": 1} for record in EPISODES[:count]]
    (run / "metrics.jsonl").write_text(text_of(STARTED, *others))
    assert follower.read() == ([STARTED, *others], True, False)


def test_a_run_that_was_removed_and_made_again_is_a_new_one(make_run: MakeRun) -> None:
    run = make_run([STARTED, *EPISODES])
    follower = Follower(run)
    follower.read()
    (run / "metrics.jsonl").unlink()
    assert follower.read() == ([], True, False)
    append(run, text_of(STARTED))
    assert follower.read() == ([STARTED], False, False)


def test_a_broken_line_is_refused_by_its_number(make_run: MakeRun) -> None:
    run = make_run([STARTED])
    follower = Follower(run)
    follower.read()
    append(run, "{oops\n" + text_of(ENDED))
    with pytest.raises(InputError, match="line 2 is no record"):
        follower.read()


def test_a_file_is_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with pytest.raises(InputError, match="not a run directory but a file"):
        Follower(tmp_path / "run").read()


def test_the_newest_run_is_the_one_written_to_last(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no run below"):
        newest_run(tmp_path)
    for name, time in (("a", 100), ("b", 300), ("c", 200)):
        (tmp_path / name).mkdir()
        metrics = tmp_path / name / "metrics.jsonl"
        metrics.touch()
        os.utime(metrics, (time, time))
    assert newest_run(tmp_path) == tmp_path / "b"
    assert Follower(tmp_path / "b").quiet_for(310.0) == 10.0


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no /proc here")  # noqa: PTH112
def test_a_file_is_written_to_while_a_process_has_it_open(make_run: MakeRun) -> None:
    metrics = make_run() / "metrics.jsonl"
    assert is_written_to(metrics) is False
    with metrics.open("a"):
        assert is_written_to(metrics) is True
