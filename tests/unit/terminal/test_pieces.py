"""The pieces of a view of a run."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from relive.terminal import pieces


@pytest.mark.parametrize(
    ("config", "versions", "expected"),
    [
        ({}, {}, "? on ?"),
        (
            {"algorithm": "dqn", "env": "A-v1", "replay": {"sampler": "rank"}, "seed": 3},
            {"relive": "1.2", "python": "3.11"},
            "dqn on A-v1, rank replay, seed 3, relive 1.2",
        ),
        ({"algorithm": "dqn", "env": "[red]A"}, {}, "dqn on [red]A"),
        ({"algorithm": "c51", "name": "[rainbow]", "env": "A"}, {}, "[rainbow] on A"),
    ],
)
def test_a_run_is_called_by_what_is_known(
    config: dict[str, object], versions: dict[str, str], expected: str
) -> None:
    assert Text.from_markup(pieces.headline(config, versions)).plain == expected


@pytest.mark.parametrize(
    ("steps_per_second", "expected"),
    [(None, "-"), (0.62, "0.6"), (9.94, "9.9"), (10.4, "10"), (1234.5, "1,234")],
)
def test_few_steps_a_second_have_a_tenth(steps_per_second: float | None, expected: str) -> None:
    assert pieces.rate(steps_per_second) == expected


@pytest.mark.parametrize(("width", "rows"), [(120, 1), (80, 1), (50, 2), (40, 2)])
def test_words_go_below_the_bar_where_there_is_no_room(width: int, rows: int) -> None:
    file = io.StringIO()
    out = Console(file=file, width=width, force_terminal=True, color_system=None)
    out.print(pieces.progress(500, 1000, 100.0, width=width))
    found = file.getvalue().splitlines()
    assert len(found) == rows
    assert max(map(len, found)) <= width
    assert found[0].startswith("━")
    assert found[-1].rstrip().endswith("500/1,000 steps · 100/s · 5 s left")


@pytest.mark.parametrize(("width", "rows"), [(100, 1), (60, 2), (40, 2), (5, 7)])
def test_numbers_without_room_go_below_and_are_not_cut(width: int, rows: int) -> None:
    numbers = {"loss": 0.25, "epsilon": 0.5, "beta": 0.4, "fill": 0.1, "steps_per_second": 1e4}
    found = pieces.cells(episodes=12_345, returns=[-1234.5], numbers=numbers)
    file = io.StringIO()
    out = Console(file=file, width=max(width, 20), force_terminal=True, color_system=None)
    out.print(pieces.table_of(found, width=width))
    printed = file.getvalue()
    assert printed.count("───\n") + printed.count("─── \n") == rows
    assert all(printed.count(word) == 1 for pair in found.items() for word in pair)


@pytest.mark.parametrize(
    ("step", "speed", "running", "words"),
    [
        (0, None, True, "0/10 steps · -/s"),
        (5, 2.0, True, "5/10 steps · 2/s · 2 s left"),
        (5, 2.0, False, "5/10 steps · 2/s"),
        (10, 2.0, True, "10/10 steps · 2/s"),
    ],
)
def test_how_long_it_will_take_is_said_while_it_is_known(
    step: int, speed: float | None, running: bool, words: str
) -> None:
    file = io.StringIO()
    Console(file=file, width=80).print(pieces.progress(step, 10, speed, width=80, running=running))
    assert file.getvalue().strip().lstrip("━╸ ") == words


def test_numbers_that_are_not_finite_were_written_as_nothing_and_are_dashes() -> None:
    assert pieces.evaluation([None], None, None, None).count("-") == 2
    found = pieces.cells(episodes=0, returns=[], numbers={"loss": None, "epsilon": 0.5})
    assert (found["mean return"], found["loss"], found["epsilon"]) == ("-", "-", "0.50")
    assert found["steps/s"] == "-"
