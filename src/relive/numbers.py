"""Numbers and times as a reader likes them."""

from __future__ import annotations

import math

NARROW_SPACE = "\u202f"


def number(value: float) -> str:
    """A number in full: thousands apart by a narrow space, four digits of a fraction.

    >>> number(50_000), number(498.65), number(0.00025), number(3.0)
    ('50\u202f000', '498.6', '0.00025', '3')
    """
    if isinstance(value, int):
        return f"{value:,}".replace(",", NARROW_SPACE)
    if not math.isfinite(value):
        return str(value)
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}".replace(",", NARROW_SPACE)
    return f"{value:.4g}"


def tenths(value: float | None) -> str:
    """A number to the tenth; nothing as a dash.

    >>> tenths(490.333), tenths(-76.0), tenths(None)
    ('490.3', '-76', '–')
    """
    return "–" if value is None else number(round(value, 1))


def short(value: float) -> str:
    """A number for an axis.

    >>> short(0.25), short(1500), short(16384), short(2_000_000)
    ('0.25', '1.5k', '16k', '2M')
    """
    for unit, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= factor:
            digits = 1 if abs(value) < 10 * factor else 0
            return f"{value / factor:.{digits}f}".removesuffix(".0") + unit
    return f"{value:.4g}"


def duration(seconds: float) -> str:
    """A time in its two largest units.

    >>> duration(7.4), duration(75), duration(3_725)
    ('7 s', '1 min 15 s', '1 h 2 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def size(count: int) -> str:
    """Bytes in decimal units.

    >>> size(512), size(45_512_345), size(4_700_000_000)
    ('512 B', '45.5 MB', '4.70 GB')
    """
    for unit, factor, digits in (("TB", 1e12, 2), ("GB", 1e9, 2), ("MB", 1e6, 1), ("KB", 1e3, 1)):
        if count >= factor:
            return f"{count / factor:.{digits}f} {unit}"
    return f"{count} B"


def shown(value: object) -> str:
    """A setting or a counter: numbers by `number`, nothing as a dash.

    >>> shown(None), shown(True), shown([256, 256]), shown("hard")
    ('–', 'yes', '256, 256', 'hard')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value)
    if isinstance(value, list | tuple):
        return ", ".join(shown(item) for item in value)
    return str(value)
