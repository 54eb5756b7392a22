"""Tables of a comparison, with one column a group: counters of the buffers, settings."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from relive.numbers import number, shown
from relive.report.groups import differing
from relive.report.markup import card, folded, grid, words_of
from relive.report.pooled import counters

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from relive.report.groups import Group
    from relive.report.read import Run


def counters_of(groups: Sequence[Group], headings: Sequence[str]) -> list[str]:
    """The counters of the buffers, those that count something first."""
    stats = [[counters(run) for run in group.runs] for group in groups]
    names = dict.fromkeys(name for runs in stats for own in runs for name in own)
    rows, silent = [], []
    for name in names:
        values = [[own.get(name) for own in runs] for runs in stats]
        flat = [value for runs in values for value in runs]
        if 0 in flat and not any(flat):
            silent.append(words_of(name))
        else:
            rows.append((escape(words_of(name)), [_cell(runs) for runs in values]))
    if not rows and not silent:
        return []
    body = grid(headings, rows)
    if silent:
        body += folded(f"{len(silent)} counters that are 0 everywhere", _list(silent))
    return [card("Buffers", body, "mean over seeds, least and largest below it")]


def settings_of_groups(groups: Sequence[Group], headings: Sequence[str]) -> list[str]:
    """The settings that differ; those that do not, and the runs, are folded away."""
    settings = [group.settings for group in groups]
    names = differing(settings)
    rows = [
        (escape(words_of(name)), [escape(shown(own.get(name))) for own in settings])
        for name in names
    ]
    body = grid(headings, rows) if rows else "<p>All settings are equal.</p>"
    equal = [
        f"{words_of(name)} {shown(value)}"
        for name, value in settings[0].items()
        if name not in names
    ]
    body += folded(f"{len(equal)} settings that are equal", _list(equal))
    runs = [f"{run.path} ({group.label}, {_state(run)})" for group in groups for run in group.runs]
    body += folded(f"{len(runs)} runs", _list(runs))
    versions = {
        f"{name} {value}"
        for group in groups
        for run in group.runs
        for name, value in run.versions.items()
    }
    body += folded("Versions", _list(sorted(versions)))
    return [card("Settings that differ", body)]


def _cell(values: Iterable[Any]) -> str:
    """The mean over runs; the least and the largest below it, if they differ."""
    values = list(values)
    numbers = [
        value for value in values if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    if len(numbers) < len(values):
        words = dict.fromkeys(shown(value) for value in values)
        return escape(", ".join(words))
    low, high = min(numbers), max(numbers)
    if low == high:
        return number(low)
    mean = number(sum(numbers) / len(numbers))
    return f"{mean}<small>{number(low)} … {number(high)}</small>"


def _state(run: Run) -> str:
    seed = f"seed {run.config.get('seed', '?')}"
    if run.finished:
        return f"{seed}, finished"
    stopped = "interrupted" if run.last("run_ended") else "not finished"
    return f"{seed}, {stopped} at step {number(run.steps)}"


def _list(words: Sequence[str]) -> str:
    return f"<p>{escape(' · '.join(words))}</p>"
