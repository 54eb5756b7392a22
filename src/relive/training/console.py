"""What a run looks like in a terminal."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

import rich.box
from rich.console import Console as Terminal
from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from relive.training.records import (
    EpisodeEnded,
    Evaluated,
    Record,
    RunEnded,
    RunResumed,
    RunStarted,
    TrainingProgress,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

LAST = 20  # episodes that the mean return is over
PLAIN_LINES = 20  # lines of progress in a run that is not watched


class Console:
    """A live view in a terminal; where nobody watches, plain lines now and then.

    Args:
        terminal: Where to write; standard output if None.
    """

    def __init__(self, terminal: Terminal | None = None) -> None:
        self._terminal = terminal or Terminal(highlight=False)
        self._returns: deque[float] = deque(maxlen=LAST)
        self._episodes = 0
        self._last: TrainingProgress | None = None
        self._total_steps = 0
        self._next_line = 0.0
        self._bar = Progress(
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("steps · {task.fields[speed]}/s ·"),
            TimeRemainingColumn(compact=True),
            console=self._terminal,
        )
        self._live: Live | None = None

    def record(self, record: Record) -> None:
        """Shows the record, if it is one that is shown."""
        match record:
            case RunStarted():
                self._heading(record)
                self._watch(0)
            case RunResumed():
                self._resumed(record)
            case EpisodeEnded():
                self._returns.append(record.episode_return)
                self._episodes += 1
            case TrainingProgress():
                self._progress(record)
            case Evaluated():
                self._say(_evaluation(record))
            case RunEnded():
                self._say(_end(record))
            case _:
                pass

    def close(self) -> None:
        """Gives the terminal back."""
        self._stop_live()

    def _resumed(self, record: RunResumed) -> None:
        self._episodes = record.episodes
        self._heading(record)
        self._terminal.print(f"going on after step {record.step:,}")
        for name, how in record.changed.items():
            self._terminal.print(f"[yellow]not as it was:[/] {name} {how}; numbers may differ")
        self._watch(record.step)

    def _heading(self, record: RunStarted | RunResumed) -> None:
        config, versions = record.config, record.versions
        self._total_steps = config["total_steps"]
        self._terminal.print(
            f"[bold]{config['algorithm']}[/] on [bold]{config['env']}[/], "
            f"{config['replay']['sampler']} replay, seed {config['seed']}, "
            f"relive {versions['relive']}, torch {versions['torch']}"
        )

    def _watch(self, step: int) -> None:
        """Begin the live view."""
        if self._terminal.is_terminal:
            self._bar.add_task("", total=self._total_steps, completed=step, speed="-")
            self._live = Live(self._view(), console=self._terminal, refresh_per_second=8)
            self._live.start()

    def _progress(self, record: TrainingProgress) -> None:
        self._last = record
        if self._live:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=record.step, speed=f"{record.steps_per_second:,.0f}")
            self._live.update(self._view())
        elif record.step >= self._next_line:
            self._next_line = record.step + self._total_steps / PLAIN_LINES
            cells = "  ".join(f"{name} {value}" for name, value in self._cells().items())
            self._terminal.print(f"step {record.step:>7,}  {cells}", soft_wrap=True)

    def _cells(self) -> dict[str, str]:
        """The numbers of the moment, as words."""
        last = self._last
        mean = sum(self._returns) / len(self._returns) if self._returns else None
        cells = {"episodes": f"{self._episodes:,}", "mean return": _number(mean)}
        if last:
            cells |= {
                "loss": _number(last.loss),
                "epsilon": f"{last.epsilon:.2f}",
                "beta": "-" if last.beta is None else f"{last.beta:.2f}",
                "buffer": f"{last.fill:.0%}",
                "steps/s": f"{last.steps_per_second:,.0f}",
            }
        return cells

    def _view(self) -> RenderableType:
        cells = self._cells()
        table = Table(box=rich.box.SIMPLE, padding=(0, 2, 0, 0))
        for name in cells:
            table.add_column(name, justify="right")
        table.add_row(*cells.values())
        last_returns = "  ".join(f"{value:.0f}" for value in list(self._returns)[-12:])
        return Group(self._bar, table, f"  last returns  {last_returns}")

    def _say(self, line: str) -> None:
        self._stop_live()
        self._terminal.print(line)

    def _stop_live(self) -> None:
        if self._live:
            self._live.stop()
            self._live = None


def _evaluation(record: Evaluated) -> str:
    line = (
        f"greedy return over {len(record.returns)} episodes: "
        f"[bold]{record.mean:.1f}[/] ± {record.std:.1f}"
    )
    return line if record.reference is None else f"{line}  (reference {record.reference:g})"


def _end(record: RunEnded) -> str:
    how = "stopped" if record.interrupted else "done"
    speed = record.step / record.seconds if record.seconds else math.nan
    return (
        f"{how}: {record.step:,} steps and {record.updates:,} updates "
        f"in {record.seconds:.1f} s ({speed:,.0f} steps/s)"
    )


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4g}"
