"""`relive watch RUN`: looks on while another process trains, and after."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.live import Live

from relive.cli.options import console, parse
from relive.cli.watch_view import State, state_of, view
from relive.errors import ConfigError, InputError
from relive.report.follow import Follower, is_written_to, newest_run
from relive.report.read import RUNS, no_run, runs_in
from relive.report.standing import Standing
from relive.runs import is_saved, resume_command
from relive.storage.writer_lock import is_held
from relive.terminal.pieces import cells, line_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console, RenderableType

PLAIN_LINES = 20  # lines of progress where nobody watches
LONG_QUIET = 30.0  # seconds
QUIET_RECORDS = 10  # as often as records of progress come


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Show how a run is going while another process trains it; only reads.

    Ends when the run has ended; Ctrl-C leaves, and the run goes on.
    """

    run: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")] = None
    """The run directory, which need not exist yet; the newest below runs/ if none is named."""
    once: bool = False
    """Print one view and leave."""
    every: float = 1.0
    """Seconds between two looks."""

    def __post_init__(self) -> None:
        """Checks the time."""
        if not 0.05 <= self.every <= 3600:
            raise ConfigError(f"every lies between 0.05 and 3600 seconds, got {self.every:g}")


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive watch`."""
    options = parse(WatchOptions, words, command="relive watch")
    path = newest_run(RUNS) if options.run is None else options.run
    watcher = Watcher(path, console())
    try:
        if options.once:
            watcher.show_once()
        else:
            watcher.follow(options.every)
    except KeyboardInterrupt:
        pass
    return 0


class Watcher:
    """Looks at a run again and again, until it has ended.

    Args:
        path: The run directory.
        out: Where to show it.
        wait: Called between two looks, with the seconds to wait.
    """

    def __init__(
        self, path: Path, out: Console, wait: Callable[[float], None] = time.sleep
    ) -> None:
        self._follower = Follower(path)
        self._standing = Standing()
        self._out, self._wait = out, wait
        self._next_line = 0.0
        self._held: bool | None = None
        self._lock_tells = True  # as far as has been seen
        self._was_idle = False  # at the last look nobody held it, and there was no more to read

    def show_once(self) -> None:
        """Prints one view of all that has been written.

        Raises:
            InputError: There is no run, or something in it is wrong.
        """
        if not self._follower.file.is_file():
            raise InputError(no_run(self._follower.path))
        while self._look():
            pass
        self._out.print(self._view())
        self._say_how_to_go_on()

    def follow(self, every: float) -> None:
        """Shows the run until it has ended.

        Args:
            every: Seconds between two looks.

        Raises:
            InputError: The directory holds runs and is none, or something in it is wrong.
        """
        self._say_what_is_waited_for()
        if self._out.is_terminal:
            self._follow_live(every)
        else:
            self._follow_in_lines(every)
        self._say_how_to_go_on()

    def _follow_live(self, every: float) -> None:
        with Live(self._view(), console=self._out, auto_refresh=False, transient=False) as live:
            while True:
                more = self._look()
                live.update(self._view(), refresh=True)
                if self._standing.ended is not None and not more:
                    return
                if not more:
                    self._wait(every)

    def _say_what_is_waited_for(self) -> None:
        """Where there is no run yet, which may be on its way, or have another name."""
        path = self._follower.path
        if self._follower.file.is_file() or path.is_file():  # a file is refused later
            return
        if runs_in(path):
            raise InputError(no_run(path))
        others = runs_in(path.parent) or runs_in(RUNS)
        words = f"waiting for a run to begin in {path} (Ctrl-C leaves){others}"
        self._out.print(words, markup=False, soft_wrap=True)

    def _say_how_to_go_on(self) -> None:
        """Where a run has broken off and was saved."""
        path = self._follower.path
        if self._state().is_broken_off and is_saved(path):
            self._out.print(f"go on   {resume_command(path)}", markup=False, soft_wrap=True)

    def _follow_in_lines(self, every: float) -> None:
        while True:
            more = self._look()
            if self._standing.ended is not None and not more:
                break
            if not more:
                self._say_line()
                self._wait(every)
        self._out.print(self._view())

    def _say_line(self) -> None:
        standing = self._standing
        if standing.progress is None or standing.step < self._next_line:
            return
        total = standing.config.get("total_steps", 0)
        self._next_line = standing.step + total / PLAIN_LINES
        found = cells(
            episodes=standing.episodes, returns=standing.last_returns, numbers=standing.progress
        )
        self._out.print(line_of(standing.step, found), soft_wrap=True)

    def _look(self) -> bool:
        """Reads what is new; whether there is more."""
        held = is_held(self._follower.path)  # first: who lets go has written all by then
        news = self._follower.read()
        if held or news.anew:
            self._lock_tells = True
        elif self._was_idle and news.records:  # by a machine whose locks are not seen here
            self._lock_tells = False
        self._was_idle = held is False and not news.more
        self._held = held if self._lock_tells else None
        if news.anew:
            self._standing = Standing()
            self._next_line = 0.0
        for record in news.records:
            self._standing.take(record)
        return news.more

    def _view(self) -> RenderableType:
        return view(
            self._standing,
            self._state(),
            path=self._follower.path,
            width=self._out.width,
            height=self._out.height if self._out.is_terminal else None,
            ascii_only=not self._out.encoding.startswith("utf"),
        )

    def _state(self) -> State:
        quiet = self._follower.quiet_for(time.time())
        limit = max(LONG_QUIET, QUIET_RECORDS * self._standing.log_seconds)
        is_long = quiet is not None and quiet > limit
        written_to = self._held
        if written_to is None and is_long:  # trained without `run`, or elsewhere, or copied
            written_to = is_written_to(self._follower.file)
        return state_of(self._standing, quiet, is_long=is_long, written_to=written_to)
