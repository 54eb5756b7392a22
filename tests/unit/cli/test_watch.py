"""`relive watch`: what it shows, at any width, of a run in any state."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from relive.cli import watch
from relive.cli.main import main
from relive.cli.watch import Watcher
from relive.cli.watch_view import state_of, view
from relive.errors import InputError
from relive.report.standing import Standing
from relive.storage.writer_lock import Lock
from tests.unit.report.conftest import (
    CONFIG,
    ENDED,
    EPISODES,
    EVALUATED,
    MEASURED,
    POLICY,
    PROGRESS,
    STARTED,
    SUMMARIES,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Record = dict[str, Any]

SETTINGS = {**CONFIG, "total_steps": 2400}
BEGUN = {**STARTED, "config": SETTINGS}
HALF = [BEGUN, *EPISODES, *PROGRESS]
DONE = [*HALF, MEASURED, EVALUATED, ENDED]


def write(run: Path, records: list[Record], mode: str = "a") -> None:
    run.mkdir(exist_ok=True)
    with (run / "metrics.jsonl").open(mode) as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def once(run: Path, width: int = 80) -> list[str]:
    file = io.StringIO()
    Watcher(run, Console(file=file, width=width)).show_once()
    return file.getvalue().splitlines()


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40])
def test_a_view_fits_the_terminal_and_shows_everything(run: Path, width: int) -> None:
    write(run, DONE)
    lines = once(run, width)
    assert max(map(len, lines)) <= width
    words = re.sub(r"\s+", " ", " ".join(lines))
    for expected in (
        "dqn on CartPole-v1, proportional replay, seed 3 · finished",
        "1,200/2,400 steps · 200/s",
        "return, mean of 3 episodes · dotted: reference 500 · mark: greedy",
        "last returns",
        "120",
        "loss",
        "0.04545",
        "TD error",
        "grad norm",
        "epsilon",
        "beta 0.95" if width == 40 else "0.95",
        "buffer",
        "110%",
        "greedy return over 3 episodes: 490.3 ± 7.8 (reference 500)",
        "buffer size 1,000 · capacity 1,000 · stale updates 7",
        "done: 1,200 steps and 550 updates in 6.0 s (200 steps/s)",
    ):
        assert re.sub(r"[▁▂▃▄▅▆▇█]+ *", "", expected) in re.sub(r"[▁▂▃▄▅▆▇█]+ *", "", words)
    assert any("◆" in line for line in lines)


def test_means_of_episodes_are_shown_as_returns() -> None:
    standing = Standing()
    for record in [STARTED, *SUMMARIES, *PROGRESS]:
        standing.take(record)
    assert (standing.episodes, standing.returns_told) == (55, 11)
    assert list(standing.last_returns)[-2:] == [100.0, 110.0]


def test_numbers_of_a_policy_are_shown_where_there_are_some(run: Path) -> None:
    write(run, [BEGUN, *EPISODES, *POLICY])
    words = " ".join(once(run))
    for name, value in (("policy loss", "-11"), ("temperature", "0.09091"), ("entropy", "-0.60")):
        assert re.search(rf"{name} +[▁▂▃▄▅▆▇█]+ +{value}", words)
    write(run, HALF, "w")
    assert not re.search("policy|temperature|entropy", " ".join(once(run)))


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("records", [[BEGUN, *EPISODES, *PROGRESS], [BEGUN, *EPISODES, *POLICY]])
def test_a_view_is_no_higher_than_the_terminal(
    run: Path, width: int, records: list[Record]
) -> None:
    standing = Standing()
    for record in [*records, MEASURED, EVALUATED, ENDED]:
        standing.take(record)
    state = state_of(standing, 0.0, is_long=False, written_to=None)
    text = io.StringIO()
    seen = view(standing, state, path=run, width=width, height=30)
    Console(file=text, width=width).print(seen)
    assert len(text.getvalue().splitlines()) <= 30


def test_a_terminal_that_knows_ascii_only_gets_ascii(run: Path) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="strict")
    standing = Standing()
    for record in DONE:
        standing.take(record)
    state = state_of(standing, 0.0, is_long=False, written_to=None)
    seen = view(standing, state, path=run, width=80, ascii_only=True)
    text = io.StringIO()
    Console(file=text, width=80).print(seen)
    drawn = [line for line in text.getvalue().splitlines() if "|" in line or "loss" in line]
    assert drawn
    assert all(ord(letter) < 128 for line in drawn for letter in line)
    file.close()


PARTIAL: dict[str, tuple[list[Record], str]] = {
    "only the first record": ([BEGUN], "running"),
    "no settings": ([EPISODES[0]], "run · running"),
    "no episode yet": ([BEGUN, PROGRESS[0]], "100/2,400 steps"),
    "one episode": ([BEGUN, EPISODES[0]], "return of each episode"),
    "interrupted": ([*HALF, {**ENDED, "interrupted": True}], "interrupted"),
    "resumed": (
        [*HALF, {**BEGUN, "record": "run_resumed", "step": 1200}],
        "running",
    ),
    "returns that are not finite": ([BEGUN, {**EPISODES[0], "episode_return": None}], "running"),
    "an evaluation of nothing": (
        [*HALF, {**EVALUATED, "mean": None, "std": None, "returns": [None]}],
        "over 1 episode: - ± -",
    ),
    "an environment nobody knows": (
        [{**BEGUN, "config": {**SETTINGS, "env": "[bold]My-v0"}}, *EPISODES],
        "dqn on [bold]My-v0",
    ),
}


@pytest.mark.parametrize("case", PARTIAL)
def test_a_partial_run_has_a_view_of_what_there_is(run: Path, case: str) -> None:
    records, expected = PARTIAL[case]
    write(run, records)
    assert expected in " ".join(once(run, width=100))


@pytest.mark.parametrize(
    ("quiet", "is_long", "written_to", "ended", "words"),
    [
        (None, False, None, None, "waiting: nothing has been written yet"),
        (2.0, False, None, None, "running"),
        (70.0, True, True, None, "seems stalled: nothing for 1 min 10 s"),
        (70.0, True, None, None, "seems stalled: nothing for 1 min 10 s"),
        (70.0, True, False, None, "killed? nothing for 1 min 10 s, and no process here"),
        (2.0, False, False, None, "killed? nothing for 2 s, and no process here"),
        (9e9, True, False, ENDED, "finished"),
        (9e9, True, False, {**ENDED, "interrupted": True}, "interrupted"),
    ],
)
def test_what_a_run_is_doing_is_told_from_what_is_known(
    quiet: float | None, is_long: bool, written_to: bool | None, ended: Record | None, words: str
) -> None:
    standing = Standing()
    standing.ended = ended
    state = state_of(standing, quiet, is_long=is_long, written_to=written_to)
    assert state.words.startswith(words)


def test_a_run_that_nobody_writes_to_any_more_was_killed(run: Path) -> None:
    write(run, HALF)
    long_ago = time.time() - 100
    os.utime(run / "metrics.jsonl", (long_ago, long_ago))
    words = " ".join(once(run, width=120))
    assert "nothing for 1 min 40 s" in words
    if os.path.isdir("/proc/self/fd"):  # noqa: PTH112
        assert "killed?" in words
        with (run / "metrics.jsonl").open("a"):
            assert "seems stalled" in " ".join(once(run))


def test_a_run_whose_lock_is_let_go_was_killed_however_short_ago(run: Path) -> None:
    write(run, HALF)
    held = Lock(run, "")
    assert "running" in " ".join(once(run))
    held.release()
    assert "killed?" in " ".join(once(run, width=120))


BROKEN_OFF = {
    "interrupted": {**ENDED, "interrupted": True},
    "failed": {**ENDED, "interrupted": True, "error": "ValueError: the arm has gone"},
}


@pytest.mark.parametrize("how", [*BROKEN_OFF, "killed"])
def test_of_a_run_that_has_broken_off_the_command_that_goes_on_is_told(
    tmp_path: Path, how: str
) -> None:
    run = tmp_path / "a long name" / ("x" * 90)
    run.parent.mkdir()
    write(run, [*HALF, *filter(None, [BROKEN_OFF.get(how)])])
    os.utime(run / "metrics.jsonl", (time.time() - 1000,) * 2)
    command = f"go on   relive train --resume '{run}'"
    assert "go on " not in "\n".join(once(run))  # it was never saved
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "manifest.json").write_text("{}")
    assert once(run)[-1] == command
    write(run, [ENDED])
    assert "go on " not in "\n".join(once(run))


@pytest.mark.parametrize("is_terminal", [True, False])
def test_it_is_told_too_when_a_run_breaks_off_while_it_is_followed(
    run: Path, is_terminal: bool
) -> None:
    write(run, [*HALF, BROKEN_OFF["interrupted"]])
    (run / "checkpoint").mkdir()
    (run / "checkpoint" / "manifest.json").write_text("{}")
    file = io.StringIO()
    out = Console(file=file, force_terminal=is_terminal, width=80, color_system=None)
    Watcher(run, out).follow(0.25)
    assert file.getvalue().endswith(f"go on   relive train --resume {run}\n")


class Training:
    """Stands in for time that passes: each time it is asked to wait, something happens."""

    def __init__(self, *happenings: Callable[[], None]) -> None:
        self.happenings = list(happenings)
        self.waits: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.happenings.pop(0)()


def test_a_run_that_grows_though_its_lock_is_free_is_trained_where_locks_are_not_seen(
    run: Path,
) -> None:
    write(run, HALF[:-1])
    Lock(run, "").release()  # that of the other machine is not seen here
    file, seen = io.StringIO(), [""]

    def told() -> str:
        seen.append(file.getvalue())
        return seen[-1].removeprefix(seen[-2])

    def goes_on(record: Record, words: str) -> Callable[[], None]:
        def happens() -> None:
            assert words in told()
            write(run, [record])

        return happens

    training = Training(
        goes_on(HALF[-1], "killed?"), goes_on(MEASURED, "running"), goes_on(ENDED, "running")
    )
    console = Console(file=file, force_terminal=True, width=120, color_system=None)
    Watcher(run, console, training).follow(1)
    assert "finished" in told()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_it_follows_a_run_from_before_its_beginning_to_its_end(
    run: Path, is_terminal: bool
) -> None:
    training = Training(
        lambda: None,
        lambda: write(run, HALF[:40]),
        lambda: write(run, HALF[40:]),
        lambda: write(run, [EVALUATED, ENDED]),
    )
    file = io.StringIO()
    out = Console(file=file, force_terminal=is_terminal, width=80, height=30, color_system=None)
    Watcher(run, out, training).follow(0.25)
    assert training.waits == [0.25] * 4
    text = file.getvalue()
    assert "done: 1,200 steps and 550 updates" in text
    assert ("nothing has been written yet" in text) is is_terminal
    assert (text.count("step   ") == 1) is not is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
def test_what_is_waited_for_is_said_at_once(run: Path, is_terminal: bool) -> None:
    write(run.with_name("other"), [BEGUN])
    file = io.StringIO()
    out = Console(file=file, force_terminal=is_terminal, width=80, color_system=None)
    waiting = (
        f"waiting for a run to begin in {run} (Ctrl-C leaves); these are: {run.with_name('other')}"
    )

    def while_waiting(_: float) -> None:
        assert waiting in file.getvalue()
        write(run, [BEGUN, ENDED])

    Watcher(run, out, while_waiting).follow(1)
    assert file.getvalue().count("waiting for a run") == 1


def test_a_folder_of_runs_is_refused_and_they_are_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(run, [BEGUN])
    assert main(["watch", str(run.parent)]) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert f"{run.parent} is not a run directory: it has no metrics.jsonl; these are: {run}" in said


def test_a_run_made_anew_is_shown_from_its_beginning(run: Path) -> None:
    other = {**BEGUN, "config": {**SETTINGS, "seed": 77}}
    training = Training(
        lambda: write(run, HALF),
        lambda: write(run, [other, *EPISODES[:2]], mode="w"),
        lambda: write(run, [{**ENDED, "step": 40}]),
    )
    file = io.StringIO()
    Watcher(run, Console(file=file, width=80), training).follow(1)
    assert "seed 77" in file.getvalue()
    assert "seed 3" not in file.getvalue()


def test_something_wrong_ends_it_with_a_word(run: Path) -> None:
    training = Training(lambda: write(run, [{**PROGRESS[0], "loss": "x"}]))
    with pytest.raises(InputError, match="loss should be a number"):
        Watcher(run, Console(file=io.StringIO(), force_terminal=True), training).follow(1)


def test_ctrl_c_leaves_quietly(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch.Watcher, "follow", interrupt)
    assert main(["watch", str(run)]) == 0
    assert capsys.readouterr() == ("", "")


def test_without_a_name_it_is_the_newest_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["watch", "--once"]) == 2
    assert "there is no run below runs/" in capsys.readouterr().err
    (tmp_path / "runs").mkdir()
    for age, seed in ((50, 1), (5, 2)):
        path = tmp_path / "runs" / f"s{seed}"
        write(path, [{**BEGUN, "config": {**SETTINGS, "seed": seed}}])
        os.utime(path / "metrics.jsonl", (time.time() - age,) * 2)
    assert main(["watch", "--once"]) == 0
    assert "seed 2" in capsys.readouterr().out


def test_one_view_of_nothing_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", str(run), "--once"]) == 2
    assert f"{run} is not a run directory" in capsys.readouterr().err


def test_it_waits_for_nothing_that_trains() -> None:
    program = (
        "import sys; import relive.cli.watch; "
        "print(*sorted({'torch', 'gymnasium', 'matplotlib'} & set(sys.modules)), 'end')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "end\n"
