"""What `relive watch` shows of a run, in a terminal of any width."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from relive.numbers import NARROW_SPACE, duration, number, short
from relive.references import REFERENCES
from relive.report.series import moving_average, thinned
from relive.terminal.drawing import Canvas, sparkline
from relive.terminal.pieces import (
    ending,
    evaluation,
    failing,
    fixed,
    headline,
    last_returns,
    progress,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.console import RenderableType

    from relive.report.standing import Standing

WIDEST = 110
ROWS = (4, 10)  # of the learning curve: least, most
OTHER_ROWS = 13  # of all that is neither the curve nor a sparkline
SPARKS = (  # name, key, format, logarithmic
    ("loss", "loss", ".4g", True),
    ("TD error", "td_error", ".4g", True),
    ("mean Q", "q_mean", ".4g", False),
    ("grad norm", "grad_norm", ".4g", True),
    ("policy loss", "actor_loss", ".4g", False),
    ("temperature", "temperature", ".4g", True),
    ("entropy", "entropy", ".2f", False),
    ("epsilon", "epsilon", ".2f", False),
    ("beta", "beta", ".2f", False),
    ("buffer", "fill", ".0%", False),
    ("steps/s", "steps_per_second", ",.0f", False),
)
SPARK_WIDTHS = (6, 36)  # least, most
SPARK_WORDS = 28  # columns of name, value and space beside a sparkline
BESIDE = 76  # columns from which two of them stand side by side


class State(NamedTuple):
    """What a run is doing: in a word or two, how it is coloured, and whether it has broken off."""

    words: str
    style: str
    is_broken_off: bool = False


def state_of(
    standing: Standing, quiet: float | None, *, is_long: bool, written_to: bool | None
) -> State:
    """What a run is doing, as far as its directory tells.

    Args:
        standing: What its records say.
        quiet: Seconds since something was written; None if there is no file.
        is_long: Whether that is long for this run.
        written_to: Whether a process writes to it; None if that is not known.
    """
    if standing.ended is not None:
        if (error := standing.ended.get("error")) is not None:
            return State(f"failed: {error}", "red", is_broken_off=True)
        if standing.ended.get("interrupted"):
            return State("interrupted", "yellow", is_broken_off=True)
        return State("finished", "green")
    if quiet is None:
        return State("waiting: nothing has been written yet", "yellow")
    if written_to is False:
        words = f"killed? nothing for {duration(quiet)}, and no process here writes to it"
        return State(words, "red", is_broken_off=True)
    if not is_long:
        return State("running", "green")
    return State(f"seems stalled: nothing for {duration(quiet)}", "yellow")


def view(
    standing: Standing,
    state: State,
    *,
    path: Path,
    width: int,
    height: int | None = None,
    ascii_only: bool = False,
) -> RenderableType:
    """Everything about a run at this moment.

    Args:
        standing: What its records say.
        state: What it is doing.
        path: Its directory.
        width: Columns of the terminal.
        height: Rows of it; None where it does not matter.
        ascii_only: Whether it knows ASCII only.
    """
    width = min(width, WIDEST)
    parts: list[RenderableType] = [_title(standing, state, path)]
    total = standing.config.get("total_steps")
    if total:
        running = standing.ended is None
        parts.append(progress(standing.step, total, standing.speed, width=width, running=running))
    columns = 2 if width >= BESIDE else 1
    size = min(max(width // columns - SPARK_WORDS, SPARK_WIDTHS[0]), SPARK_WIDTHS[1])
    sparks = list(_sparks(standing, size, ascii_only=ascii_only))
    others = OTHER_ROWS + -(-len(sparks) // columns)
    room = ROWS[1] if height is None else min(max(height - others, ROWS[0]), ROWS[1])
    if standing.episodes:
        parts += ["", *_curve(standing, width, room, ascii_only=ascii_only)]
        returns = Text(last_returns(standing.last_returns, max(3, (width - 14) // 7)))
        parts += [Text.assemble(("last returns  ", "dim"), returns, no_wrap=True)]
    if sparks:
        parts += ["", _side_by_side(sparks, columns)]
    parts += list(_results(standing))
    return Group(*parts)


def _title(standing: Standing, state: State, path: Path) -> Text:
    known = headline(standing.config, {}) if standing.config else escape(str(path))
    return Text.from_markup(f"{known} · [{state.style}]{escape(state.words)}[/]")


def _curve(
    standing: Standing, width: int, height: int, *, ascii_only: bool
) -> tuple[RenderableType, RenderableType]:
    """What is shown; the moving average of returns, reference and evaluations, with axes."""
    steps, returns = standing.returns.points()
    window = max(1, min(standing.window // standing.returns.run, len(returns)))
    x, y = thinned(steps[window - 1 :], moving_average(returns, window))
    env = standing.config.get("env")
    reference = REFERENCES.get(env) if isinstance(env, str) else None
    points = [(one["step"], one["mean"]) for one in standing.evaluations if one["mean"] is not None]
    heights = [*y.tolist(), *(mean for _, mean in points)]
    heights += [] if reference is None else [reference]
    low, high = min(heights), max(heights)
    end = max(standing.config.get("total_steps") or 0, standing.step, 1)
    labels = [short(float(f"{value:.3g}")) for value in (high, low)]
    margin = max(map(len, labels))
    size = max(width - margin - 2, 8), height
    scales = (0.0, float(end)), (low, high)
    curve, line = (Canvas(*size, *scales, ascii_only=ascii_only) for _ in range(2))
    curve.line(x.tolist(), y.tolist())
    if reference is not None:
        line.level(reference)
    marks = {curve.cell(step, mean) for step, mean in points}
    text = Text(no_wrap=True, overflow="crop")
    edge, mark = ("|", "o") if ascii_only else ("│", "◆")
    for row, (front, back) in enumerate(zip(curve.rows(), line.rows(), strict=True)):
        label = labels[0] if row == 0 else labels[1] if row == height - 1 else ""
        text.append(f"{label:>{margin}} {edge}", "dim")
        for column, (one, other) in enumerate(zip(front, back, strict=True)):
            if (row, column) in marks:
                text.append(mark, "magenta")
            elif one != " ":
                text.append(one, "cyan")
            else:
                text.append(other, "green")
        text.append("\n")
    last = short(end)
    text.append(" " * (margin + 2) + "0" + last.rjust(size[0] - 1), "dim")
    return _caption(window * standing.returns.run, reference, points=bool(points)), text


def _caption(window: int, reference: float | None, *, points: bool) -> str:
    words = [f"return, mean of {window} episodes" if window > 1 else "return of each episode"]
    words += [] if reference is None else [f"dotted: reference {reference:g}"]
    words += ["mark: greedy"] if points else []
    return " · ".join(words)


def _sparks(standing: Standing, size: int, *, ascii_only: bool) -> Iterator[tuple[str, str, str]]:
    """Name, line and last value of each number that has one."""
    for name, key, form, log in SPARKS:
        _, values = standing.traces[key].points()
        if len(values):
            last = (standing.progress or {}).get(key)
            line = sparkline(values.tolist(), size, log=log, ascii_only=ascii_only)
            yield name, line, fixed(last, form)


def _side_by_side(sparks: list[tuple[str, str, str]], columns: int) -> Table:
    """So many sparklines a row."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(columns):
        table.add_column(style="dim", no_wrap=True)
        table.add_column(style="cyan", no_wrap=True, overflow="crop")
        table.add_column(justify="right", no_wrap=True)
    half = -(-len(sparks) // columns)
    for row in range(half):
        table.add_row(*(cell for spark in sparks[row::half] for cell in spark))
    return table


def _results(standing: Standing) -> Iterator[RenderableType]:
    """Failures of GPUs, evaluations, what the buffer counted, and the end."""
    for failed in standing.failures:
        said = failing(failed["part"], failed["reason"], failed["outcome"])
        yield Text.from_markup(f"step {failed['step']:,}: {said}")
    if standing.evaluations:
        one = standing.evaluations[-1]
        found = one["returns"], one["mean"], one["std"], one.get("reference")
        yield ""
        yield Text.from_markup(evaluation(*found))
    counted = (standing.measured or {}).get("stats", {})
    numbers = {name: value for name, value in counted.items() if is_counter(value)}
    if numbers:
        words = (
            f"{name.replace('_', ' ')} {number(value).replace(NARROW_SPACE, ',')}"
            for name, value in numbers.items()
        )
        yield Text("buffer  " + " · ".join(words), style="dim")
    if standing.ended is not None:
        end = standing.ended
        yield Text.from_markup(
            ending(
                standing.step,
                end.get("updates", 0),
                standing.seconds,
                interrupted=bool(end.get("interrupted")),
                error=end.get("error"),
            )
        )


def is_counter(value: object) -> bool:
    """Whether a statistic of the buffer is a number that says something."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value != 0
