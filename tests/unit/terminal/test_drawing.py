"""Curves made of characters."""

from __future__ import annotations

import pytest

from relive.terminal.drawing import Canvas, sparkline


def drawn(width: int, height: int, *lines: tuple[list[float], list[float]], **options: bool) -> str:
    canvas = Canvas(width, height, (0.0, 1.0), (0.0, 1.0), **options)
    for xs, ys in lines:
        canvas.line(xs, ys)
    return "\n".join(canvas.rows())


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (([], []), "  \n  "),
        (([0.0], [0.0]), "  \n⡀ "),
        (([1.0], [1.0]), " ⠈\n  "),
        (([0.0, 1.0], [1.0, 1.0]), "⠉⠉\n  "),
        (([0.0, 0.0], [0.0, 1.0]), "⡇ \n⡇ "),
        (([-9.0, 9.0], [1.0, 1.0]), "⠉⠉\n  "),
    ],
)
def test_a_line_is_made_of_dots_within_the_canvas(
    points: tuple[list[float], list[float]], expected: str
) -> None:
    assert drawn(2, 2, points) == expected


def test_a_terminal_without_unicode_gets_stars() -> None:
    found = drawn(3, 3, ([0.0, 1.0], [0.0, 1.0]), ascii_only=True)
    assert found == "  *\n * \n*  "


def test_a_level_is_a_dotted_line() -> None:
    canvas = Canvas(6, 1, (0.0, 1.0), (0.0, 1.0), ascii_only=True)
    canvas.level(0.5)
    assert canvas.rows() == ["*  *  "]


def test_edges_that_coincide_put_everything_in_the_middle() -> None:
    canvas = Canvas(3, 3, (1.0, 1.0), (2.0, 2.0), ascii_only=True)
    canvas.line([1.0], [2.0])
    assert canvas.rows() == ["   ", " * ", "   "]
    assert canvas.cell(1.0, 2.0) == (1, 1)


@pytest.mark.parametrize(
    ("values", "width", "log", "expected"),
    [
        ([], 5, False, ""),
        ([1.0], 5, False, "▄"),
        ([1.0, 10.0, 100.0], 5, True, "▁▅█"),
        ([0.0, 1.0], 2, True, "▁█"),
        ([1.0, 1.0, 2.0, 2.0, 3.0, 3.0], 3, False, "▁▅█"),
        ([-1.0, 0.0], 9, False, "▁█"),
    ],
)
def test_a_sparkline_goes_from_the_least_to_the_most(
    values: list[float], width: int, log: bool, expected: str
) -> None:
    assert sparkline(values, width, log=log) == expected
