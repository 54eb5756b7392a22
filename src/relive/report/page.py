"""The page about a run: one HTML file that needs nothing else, no network, no script."""

from __future__ import annotations

import shlex
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.numbers import duration, number, tenths
from relive.report import plots
from relive.report.canvas import HALF_OF_PAGE, NARROW, THIRD_OF_PAGE
from relive.report.markup import card, either, empty, frame, row, table, tag, tile, write_page
from relive.report.read import Run, read_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REPORT = "report.html"
PRIORITIES = "rows in the buffer at the end, by priority"
AGE = "share of all draws, by age of the row drawn"
REUSE = "share of all rows, by draws of each"


def write_report(path: Path | str, out: Path | None = None) -> Path:
    """Writes a page about a run, over an older one.

    Args:
        path: The run directory.
        out: The file, or a folder for it; None for `report.html` in the run directory.

    Returns:
        The file written.

    Raises:
        InputError: The directory does not hold a run.
        MissingExtraError: matplotlib is not installed (raised when this module is imported).
    """
    run = read_run(path)
    return write_page(run.path if out is None else out, REPORT, page(run))


def page(run: Run) -> str:
    """The text of the page about a run."""
    title = " · ".join(names(run).values())
    rows = (row(cards) for cards in (_learning(run), _training(run), _replay(run)))
    body = (
        f'{_header(run)}\n<div class="tiles">{"".join(_tiles(run))}</div>\n'
        f'{"".join(rows)}<div class="tables">{"".join(_tables(run))}</div>\n{_footer(run)}'
    )
    return frame(title, body)


def names(run: Run) -> dict[str, str]:
    """What a run is called: its name or algorithm, environment, sampler and seed, if known."""
    replay = run.config.get("replay", {})
    known = {
        "name": run.config.get("name") or str(run.config.get("algorithm", "")).upper(),
        "env": run.config.get("env"),
        "sampler": replay.get("sampler") if isinstance(replay, dict) else None,
        "seed": f"seed {run.config['seed']}" if "seed" in run.config else None,
    }
    return {key: str(value) for key, value in known.items() if value} or {"run": run.path.name}


def _header(run: Run) -> str:
    known = names(run)
    heading = " on ".join(known.pop(key) for key in ("name", "env", "run") if key in known)
    tags = [tag(name) for name in known.values()]
    if not run.finished:
        end = run.last("run_ended")
        state = "interrupted" if end else "not finished"
        if end and end.get("error") is not None:
            state = f"failed ({end['error']})"
        tags.append(tag(f"{state} at step {number(run.steps)}", warn=True))
    for failed in run.records.get("device_failed", []):
        where = f"GPU failed at step {number(failed['step'])}"
        words = f"{where}: {failed['part']} on the CPU; {failed['outcome']}"
        tags.append(tag(words, warn=True))
    return f"<header><h1>{escape(heading)}</h1><p>{' '.join(tags)}</p></header>"


def _footer(run: Run) -> str:
    words = escape(shlex.quote(str(run.path)))
    torn = " The last line of metrics.jsonl was cut off and is left out." if run.torn_lines else ""
    return f"<footer>Written by <code>relive report {words}</code>.{torn}</footer>"


def _tiles(run: Run) -> Iterator[str]:
    """The numbers that matter, large: the result beside the reference, the effort."""
    evaluated = run.last("evaluated")
    _, returns = run.returns()
    if evaluated:
        mean, std = (tenths(evaluated[name]) for name in ("mean", "std"))
        note = f"mean of {len(evaluated['returns'])} greedy episodes"
        yield tile("result", f"{mean} <small>± {std}</small>", note)
        if evaluated.get("reference") is not None:
            yield tile("reference", number(evaluated["reference"]), "known result")
    elif len(returns):
        recent = returns[-20:]
        what = "log intervals" if run.tells_means else "training episodes"
        note = f"mean of the last {len(recent)} {what}"
        yield tile("training return", tenths(float(recent.mean())), note)
    end = run.last("run_ended") or run.last("training_progress") or {}
    yield tile("environment steps", number(run.steps), f"{number(end.get('updates', 0))} updates")
    if run.seconds:
        speed = run.steps / run.seconds
        told = tenths(speed) if speed < 10 else number(round(speed))
        yield tile("time", duration(run.seconds), f"{told} steps per second")


def _learning(run: Run) -> list[str]:
    """Row 1: the learning curve."""
    episodes = run.returns()
    evaluated = run.records.get("evaluated", [])
    if not len(episodes[0]) and not evaluated:
        return []
    spread = [
        (float(r["step"]), r["mean"], r["std"] or 0.0) for r in evaluated if r["mean"] is not None
    ]
    reference = evaluated[-1].get("reference") if evaluated else None
    wide = plots.learning(episodes, spread, reference)
    narrow = plots.learning(episodes, spread, reference, name="learning_narrow", size=NARROW)
    return [card("Learning curve", either(wide, narrow))]


def _training(run: Run) -> list[str]:
    """Row 2: what the training loop measured; a number that was never there has no picture."""
    cards = []
    for title, log, wanted in (
        ("Loss and TD error", True, {"loss": "loss", "td_error": "mean |TD error|"}),
        ("Exploration and correction", False, {"epsilon": "epsilon", "beta": "beta"}),
        ("Action values", False, {"q_mean": "mean Q", "actor_loss": "policy loss"}),
        ("Gradient norm", True, {"grad_norm": "before clipping"}),
        ("Temperature", True, {"temperature": "what a nat of entropy is worth"}),
        ("Entropy", False, {"entropy": "of the policy, in nats"}),
    ):
        found = [(label, *run.series("training_progress", key)) for key, label in wanted.items()]
        series = [(label, x, y) for label, x, y in found if len(x) and (not log or y.max() > 0)]
        if series:
            cards.append(card(title, plots.lines(title.split()[0].lower(), series, log=log)))
    return cards


def _replay(run: Run) -> list[str]:
    """Row 3: what the buffer held and what was drawn from it, as measured last."""
    measured = run.last("replay_measured")
    if measured is None:
        return []
    counts = np.asarray(measured.get("priority_counts") or [])
    filled = np.flatnonzero(counts)
    size = THIRD_OF_PAGE if len(filled) else HALF_OF_PAGE
    cards = []
    if len(filled):
        first, last = filled[0], filled[-1] + 1
        edges = np.asarray(measured["priority_edges"], dtype=np.float64)[first : last + 1]
        picture = plots.priorities(edges, counts[first:last], size)
        cards.append(card("Priorities", picture, PRIORITIES))
    for name, title, label, note, nothing in (
        ("age", "Age of what was sampled", "rows written since then", AGE, "No draws."),
        ("reuse", "Reuse of rows", "times drawn", REUSE, "No row has been written."),
    ):
        bins = measured.get(f"{name}_counts") or []
        words = nothing if bins else "Not recorded."
        body = plots.doublings(name, bins, label, size) if sum(bins) else empty(words)
        cards.append(card(title, body, note))
    return cards


def _tables(run: Run) -> Iterator[str]:
    """The settings, one table a group; the counters of the buffer; the versions."""
    config = {name.replace("_", " "): value for name, value in run.config.items()}
    groups = {name: value for name, value in config.items() if isinstance(value, dict) and value}
    single = {name: value for name, value in config.items() if name not in groups}
    measured = run.last("replay_measured") or {}
    stats = measured.get("stats", {}).items()
    counters = [(name, value) for name, value in stats if not isinstance(value, list)]
    yield table("Settings", single.items())
    for name, group in groups.items():
        yield table(f"Settings: {name}", _flat(group))
    yield table("Buffer", counters)
    yield table("Versions", run.versions.items())


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name} ")
        else:
            yield prefix + name, value
