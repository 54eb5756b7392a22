"""The HTML that pages about runs are made of: the frame, cards, tiles, tables."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from relive.numbers import shown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


def frame(title: str, body: str) -> str:
    """A whole page; needs nothing else: no network, no script."""
    style = files("relive.report").joinpath("style.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
</body>
</html>
"""


def write_page(out: Path, name: str, text: str) -> Path:
    """Writes a page in one step: a full disk must not cost the one that is there.

    Args:
        out: The file, or a folder for it.
        name: What it is called in a folder.
        text: The page.

    Returns:
        The file.
    """
    target = out / name if out.is_dir() else out
    beside = target.with_name(target.name + ".part")
    beside.write_text(text, encoding="utf-8", errors="replace")
    beside.replace(target)
    return target


def row(cards: list[str]) -> str:
    """Cards side by side; four stand two by two."""
    width = {1: "one", 3: "three"}.get(len(cards), "two")
    return f'<div class="row {width}">{"".join(cards)}</div>\n' if cards else ""


def card(title: str, body: str, note: str = "") -> str:
    """A part of a page with a title; the note stands below it in small letters."""
    noted = f"<p>{note}</p>" if note else ""
    return f'<section class="card"><h2>{escape(title)}</h2>{noted}{body}</section>\n'


def tile(title: str, value: str, note: str) -> str:
    """One number, large."""
    kind = title if title in {"result", "reference"} else ""
    return (
        f'<section class="card tile {kind}"><h3>{title}</h3><strong>{value}</strong>'
        f"<p>{note}</p></section>"
    )


def either(wide: str, narrow: str) -> str:
    """A picture, and the one that stands in its place where there is no room for it."""
    return f'<div class="wide">{wide}</div><div class="narrow">{narrow}</div>'


def tag(words: str, *, warn: bool = False) -> str:
    """A few words in a frame."""
    return f'<span class="tag{" warn" if warn else ""}">{escape(words)}</span>'


def table(title: str, rows: Iterable[tuple[str, Any]]) -> str:
    """Names and values; nothing if there are none."""
    lines = [
        f"<tr><th>{escape(words_of(name))}</th><td>{escape(shown(value))}</td></tr>"
        for name, value in rows
    ]
    return card(title, f"<table>{''.join(lines)}</table>") if lines else ""


def grid(headings: Iterable[str], rows: Iterable[tuple[str, Iterable[str]]]) -> str:
    """A table with a column for each heading, all of it HTML; a wide one can be moved sideways."""
    head = "".join(f"<th>{heading}</th>" for heading in headings)
    lines = "".join(
        f"<tr><th>{name}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        for name, cells in rows
    )
    return f'<div class="grid"><table><tr><th></th>{head}</tr>{lines}</table></div>'


def folded(summary: str, body: str) -> str:
    """Something that is shown when it is asked for."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


def empty(reason: str) -> str:
    """Why there is nothing."""
    return f'<p class="empty">{reason}</p>'


def words_of(name: str) -> str:
    """A name of a setting or counter as words.

    >>> words_of("replay.n_step")
    'replay n step'
    """
    return name.replace("_", " ").replace(".", " ")
