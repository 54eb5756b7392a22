"""Curves made of characters: a canvas of dots, and lines of bars."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

BRAILLE = 0x2800
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bit of a dot, by row and column
BARS, ASCII_BARS = "▁▂▃▄▅▆▇█", "_.-=+*%#"


class Canvas:
    """A grid of characters with dots in it: two by four a character, or one without Unicode.

    Args:
        width: Characters.
        height: Characters.
        x: What lies at the left and at the right edge; may be the same.
        y: What lies at the bottom and at the top.
        ascii_only: Whether the terminal knows ASCII only.
    """

    def __init__(
        self,
        width: int,
        height: int,
        x: tuple[float, float],
        y: tuple[float, float],
        *,
        ascii_only: bool = False,
    ) -> None:
        self._ascii = ascii_only
        self._size = width, height
        columns, rows = (1, 1) if ascii_only else (2, 4)
        self._dots = width * columns, height * rows
        self._x, self._y = x, y
        self._set: set[tuple[int, int]] = set()

    def line(self, xs: Sequence[float], ys: Sequence[float]) -> None:
        """Draws a line through points whose x ascends."""
        places = [(self._column(x), self._row(y)) for x, y in zip(xs, ys, strict=True)]
        self._set.update(places)
        for (x0, y0), (x1, y1) in pairwise(places):
            steps = max(abs(x1 - x0), abs(y1 - y0), 1)
            shares = [k / steps for k in range(steps + 1)]
            self._set.update(
                (x0 + round(share * (x1 - x0)), y0 + round(share * (y1 - y0))) for share in shares
            )

    def level(self, y: float) -> None:
        """Draws a dotted horizontal line."""
        row = self._row(y)
        self._set.update((column, row) for column in range(0, self._dots[0], 3))

    def rows(self) -> list[str]:
        """The characters, a row a string, a space where no dot is."""
        width, height = self._size
        if self._ascii:
            places = self._set
            return [
                "".join("*" if (x, y) in places else " " for x in range(width))
                for y in range(height)
            ]
        cells: dict[tuple[int, int], int] = {}
        for x, y in self._set:
            cell = x // 2, y // 4
            cells[cell] = cells.get(cell, 0) | DOTS[y % 4][x % 2]
        return [
            "".join(chr(BRAILLE + cells[x, y]) if (x, y) in cells else " " for x in range(width))
            for y in range(height)
        ]

    def cell(self, x: float, y: float) -> tuple[int, int]:
        """Row and column of the character at a point."""
        width, height = self._size
        columns, rows = self._dots
        return self._row(y) * height // rows, self._column(x) * width // columns

    def _column(self, x: float) -> int:
        return _place(x, self._x, self._dots[0])

    def _row(self, y: float) -> int:
        return self._dots[1] - 1 - _place(y, self._y, self._dots[1])


def sparkline(
    values: Sequence[float], width: int, *, log: bool = False, ascii_only: bool = False
) -> str:
    """Values as a line of at most `width` bars, each the mean of a run of neighbours.

    A value that does not change is a line in the middle.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8)
    '▁▂▃▄▅▆▇█'
    >>> sparkline([1, 1, 3, 3], 2, ascii_only=True)
    '_#'
    >>> sparkline([5, 5], 8)
    '▄▄'
    """
    bars = ASCII_BARS if ascii_only else BARS
    heights = _means([_log(value) for value in values] if log else values, width)
    if not heights:
        return ""
    low, high = min(heights), max(heights)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        return bars[3] * len(heights)
    return "".join(bars[_place(height, (low, high), len(bars))] for height in heights)


def _means(values: Sequence[float], count: int) -> list[float]:
    """At most `count` means of runs of neighbours."""
    if len(values) <= count:
        return list(values)
    ends = [round(k * len(values) / count) for k in range(count + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in pairwise(ends)]


def _log(value: float) -> float:
    return math.log10(max(value, 1e-12))


def _place(value: float, edges: tuple[float, float], count: int) -> int:
    """Which of `count` places between the edges a value is at; the nearest for one beyond them."""
    low, high = edges
    share = (value - low) / (high - low) if high > low else 0.5
    return min(max(math.floor(share * (count - 1) + 0.5), 0), count - 1)
