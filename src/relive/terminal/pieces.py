"""The pieces of a view of a run: who it is, how far, numbers of the moment, how it ended."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from relive.numbers import duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

LEAST_BAR = 20  # characters
BETWEEN = 3  # characters between two cells of a table


def headline(config: Mapping[str, Any], versions: Mapping[str, str]) -> str:
    """Which run it is, with markup; what is not known is left out."""
    replay = config.get("replay", {})
    name = config.get("name") or config.get("algorithm", "?")
    words = [f"[bold]{escape(str(name))}[/]"]
    words[0] += f" on [bold]{escape(str(config.get('env', '?')))}[/]"
    if "sampler" in replay:
        words.append(f"{escape(str(replay['sampler']))} replay")
    if "seed" in config:
        words.append(f"seed {config['seed']}")
    known = [name for name in ("relive", "torch") if name in versions]
    words += [f"{name} {escape(versions[name])}" for name in known]
    return ", ".join(words)


def progress(
    step: int, total: int, speed: float | None, *, width: int, running: bool = True
) -> RenderableType:
    """A bar, how many steps of how many, how fast, and how long it will take.

    Args:
        step: Environment steps made.
        total: Of the whole run.
        speed: Steps a second; None if it is not known yet.
        width: Of the terminal; the words go below the bar where there is no room beside it.
        running: Whether to say how long it will take.
    """
    words = [f"{step:,}/{total:,} steps", f"{speed:,.0f}/s" if speed else "-/s"]
    if running and speed and step < total:
        words.append(f"{duration((total - step) / speed)} left")
    text = Text(" · ".join(words))
    room = width - len(text) - 1
    bar = ProgressBar(
        total=max(total, 1), completed=step, width=room if room >= LEAST_BAR else width
    )
    if room >= LEAST_BAR:
        row = Table.grid(padding=(0, 1, 0, 0))
        row.add_row(bar, text)
        return row
    rows = Table.grid()
    rows.add_row(bar)
    rows.add_row(text)
    return rows


def cells(
    *, episodes: int, returns: Sequence[float], numbers: Mapping[str, Any] | None
) -> dict[str, str]:
    """The numbers of the moment, as words.

    Args:
        episodes: So far.
        returns: Of the last ones.
        numbers: Of the last record of progress; None before the first.
    """
    mean = sum(returns) / len(returns) if returns else None
    found = {"episodes": f"{episodes:,}", "mean return": number(mean)}
    if numbers is not None:
        found |= {
            "loss": number(numbers.get("loss")),
            "epsilon": fixed(numbers.get("epsilon"), ".2f"),
            "beta": fixed(numbers.get("beta"), ".2f"),
            "buffer": fixed(numbers.get("fill"), ".0%"),
            "steps/s": rate(numbers.get("steps_per_second")),
        }
    return found


def table_of(found: Mapping[str, str], *, width: int) -> RenderableType:
    """Cells as a table of one row; what a terminal of this width has no room for goes below."""
    rows: list[dict[str, str]] = [{}]
    room = width
    for name, value in found.items():
        room -= (needed := max(len(name), len(value)) + BETWEEN)
        if room < 0 and rows[-1]:
            rows.append({})
            room = width - needed
        rows[-1][name] = value
    return Group(*map(_row_of, rows))


def _row_of(found: Mapping[str, str]) -> Table:
    table = Table(box=box.SIMPLE, padding=(0, 2, 0, 0))
    for name in found:
        table.add_column(name, justify="right")
    table.add_row(*found.values())
    return table


def counted(count: int, what: str) -> str:
    """A number of things, in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def line_of(step: int, found: Mapping[str, str]) -> str:
    """Cells as a plain line."""
    return f"step {step:>7,}  " + "  ".join(f"{name} {value}" for name, value in found.items())


def evaluation(
    returns: Sequence[Any], mean: float | None, std: float | None, reference: float | None
) -> str:
    """How greedy episodes went, beside the reference, with markup."""
    value, deviation = with_deviation(mean, std)
    line = f"greedy return over {counted(len(returns), 'episode')}: [bold]{value}[/] ± {deviation}"
    return line if reference is None else f"{line}  (reference {reference:g})"


def with_deviation(mean: float | None, std: float | None) -> tuple[str, str]:
    """Both as words, with one digit, or three that count where returns are small."""
    digits = ".1f" if max(abs(mean or 0.0), std or 0.0) >= 10.0 else ".3g"
    return fixed(mean, digits), fixed(std, digits)


def failing(part: str, reason: str, outcome: str) -> str:
    """That a GPU failed, and what became of it, with markup."""
    return f"[yellow]the GPU failed[/] ({escape(reason)}): the {escape(part)} is on the CPU; " + (
        escape(outcome)
    )


def ending(
    step: int, updates: int, seconds: float, *, interrupted: bool, error: str | None = None
) -> str:
    """How a run came to its end, with markup."""
    how = "stopped" if interrupted else "done"
    if error is not None:
        how = f"[red]failed[/] ({escape(error)})"
    speed = step / seconds if seconds else math.nan
    return (
        f"{how}: {counted(step, 'step')} and {counted(updates, 'update')} in {seconds:.1f} s "
        f"({rate(speed)} steps/s)"
    )


def last_returns(returns: Iterable[float], most: int = 12) -> str:
    """The returns of the last episodes."""
    return "  ".join(f"{value:.0f}" for value in list(returns)[-most:])


def number(value: float | None) -> str:
    """Four digits, or a dash."""
    return "-" if value is None else f"{value:.4g}"


def rate(value: float | None) -> str:
    """Steps a second, with a tenth where they are few, or a dash."""
    return fixed(value, ".1f" if value is not None and value < 10 else ",.0f")


def fixed(value: float | None, form: str) -> str:
    """A number in a format, or a dash."""
    return "-" if value is None else format(value, form)
