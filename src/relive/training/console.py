"""What a run looks like in a terminal."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console as Terminal
from rich.console import Group
from rich.live import Live
from rich.markup import escape

from relive.runs import is_saved, resume_command
from relive.terminal.output import write_nowhere
from relive.terminal.pieces import (
    cells,
    ending,
    evaluation,
    failing,
    headline,
    last_returns,
    line_of,
    progress,
    table_of,
)
from relive.training.records import (
    LAST,
    DemonstrationsLoaded,
    DeviceFailed,
    EpisodeEnded,
    EpisodesEnded,
    Evaluated,
    Record,
    RunEnded,
    RunResumed,
    RunStarted,
    TrainingProgress,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

PLAIN_LINES = 20  # lines of progress in a run that is not watched, at least
PLAIN_SECONDS = 60.0  # and one in so many
NOT_FINITE = (
    "[yellow]the loss is not finite at step {step:,}[/]: observations may not be, or the step size "
    "is too large; what is learned from here on is nothing"
)


NO_UPDATE = (
    "[bold red]nothing was learned: the run has made no update[/]; more --total-steps, or fewer "
    "--learning-starts or --train-every"
)


class Stdout(Terminal):
    """Standard output; where nobody reads it any more nothing is written, and nothing ends."""

    def on_broken_pipe(self) -> None:
        """Writes nowhere from now on, as does whoever else prints; rich would end the program."""
        self.quiet = True
        write_nowhere()


class Console:
    """A live view in a terminal; where nobody watches, plain lines now and then.

    Args:
        terminal: Where to write; standard output if None.
    """

    def __init__(self, terminal: Terminal | None = None) -> None:
        self._terminal = terminal or Stdout(highlight=False)
        self._terminal.soft_wrap = not self._terminal.is_terminal  # whoever reads it breaks lines
        self._env, self._total_steps = "", 0
        self._out: str | None = None
        self._live: Live | None = None
        self._forget()

    def _forget(self) -> None:
        """What was told before; a run begins, or goes on."""
        self._returns: deque[float] = deque(maxlen=LAST)
        self._episodes = 0
        self._last: TrainingProgress | None = None
        self._is_sound = True
        self._made = 0  # steps
        self._next_line = self._next_time = 0.0

    def record(self, record: Record) -> None:
        """Shows the record, if it is one that is shown, and the terminal is still there."""
        try:
            self._show(record)
        except OSError:
            self._terminal.quiet = True

    def _show(self, record: Record) -> None:
        match record:
            case RunStarted():
                self._begin(record)
                for name, words in record.chosen.items():
                    self._terminal.print(f"{name} {words}", style="dim")
                self._watch()
            case RunResumed():
                self._resumed(record)
            case DemonstrationsLoaded():
                self._terminal.print(demonstrations(record, self._env))
            case DeviceFailed():
                self._terminal.print(failing(record.part, record.reason, record.outcome))
            case EpisodeEnded() | EpisodesEnded():
                self._ended(record)
            case TrainingProgress():
                self._progress(record)
            case Evaluated():
                self._say(evaluation(record.returns, record.mean, record.std, record.reference))
            case RunEnded():
                self._end(record)
            case _:
                pass

    def steps_made(self, step: int) -> None:
        """As `FollowsSteps`: that a slow run goes on."""
        self._made = step
        try:
            if self._live:
                self._live.update(self._view())
            else:
                self._terminal.print(line_of(step, self._cells()))
        except OSError:
            self._terminal.quiet = True

    def close(self) -> None:
        """Gives the terminal back."""
        self._stop_live()

    def _ended(self, record: EpisodeEnded | EpisodesEnded) -> None:
        if isinstance(record, EpisodeEnded):
            self._returns.append(record.episode_return)
            self._episodes += 1
        else:
            self._returns.append(record.mean_return)
            self._episodes += record.episodes

    def _end(self, record: RunEnded) -> None:
        end = record.step, record.updates, record.seconds
        self._say(ending(*end, interrupted=record.interrupted, error=record.error))
        if not record.updates and not record.interrupted:
            self._terminal.print(NO_UPDATE)
        if record.interrupted and self._out is not None and is_saved(Path(self._out)):
            words = f"go on   {resume_command(self._out)}"
            self._terminal.print(words, markup=False, soft_wrap=True)

    def _resumed(self, record: RunResumed) -> None:
        self._begin(record)
        self._episodes, self._made = record.episodes, record.step
        self._returns.extend(record.last_returns)
        self._terminal.print(f"going on after step {record.step:,}")
        for name, how in record.changed.items():
            self._terminal.print(f"[yellow]not as it was:[/] {name} {how}; numbers may differ")
        self._watch()

    def _begin(self, record: RunStarted | RunResumed) -> None:
        self._stop_live()
        self._forget()
        self._env, self._total_steps = record.config["env"], record.config["total_steps"]
        self._out = record.config["out"]
        self._terminal.print(headline(record.config, record.versions))

    def _watch(self) -> None:
        """Begin the live view."""
        if self._terminal.is_terminal:
            self._live = Live(self._view(), console=self._terminal, refresh_per_second=8)
            self._live.start()

    def _progress(self, record: TrainingProgress) -> None:
        if self._is_sound and record.loss is not None and not math.isfinite(record.loss):
            self._is_sound = False
            self._terminal.print(NOT_FINITE.format(step=record.step))
        self._last, self._made = record, record.step
        if self._live:
            self._live.update(self._view())
        elif record.step >= self._next_line or record.seconds >= self._next_time:
            self._next_line = record.step + self._total_steps / PLAIN_LINES
            self._next_time = record.seconds + PLAIN_SECONDS
            self._terminal.print(line_of(record.step, self._cells()))

    def _cells(self) -> dict[str, str]:
        """The numbers of the moment, as words."""
        numbers = asdict(self._last) if self._last else None
        return cells(episodes=self._episodes, returns=self._returns, numbers=numbers)

    def _view(self) -> RenderableType:
        last = self._last
        speed = last.steps_per_second if last else None
        return Group(
            progress(self._made, self._total_steps, speed, width=self._terminal.width),
            table_of(self._cells(), width=self._terminal.width),
            f"  last returns  {last_returns(self._returns)}",
        )

    def _say(self, line: str) -> None:
        self._stop_live()
        self._terminal.print(line)

    def _stop_live(self) -> None:
        if self._live:
            self._live.stop()
            self._live = None


def demonstrations(record: DemonstrationsLoaded, env: str) -> str:
    """What was loaded for a run of an environment, in a line, with markup."""
    elsewhere = record.env is not None and record.env != env
    return escape(
        f"demonstrations  {record.rows:,} rows of {record.episodes:,} episodes, mean return "
        f"{record.mean_return:g}, from {record.path}"
        + (f" · {record.skipped:,} episodes not taken" if record.skipped else "")
        + (f" · {record.dropped_steps:,} last steps left out" if record.dropped_steps else "")
    ) + (f" · [yellow]recorded in {escape(str(record.env))}[/]" if elsewhere else "")
