"""Where a run stands: what its records say, in bounded memory however long it gets."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from relive.report.read import seconds_of
from relive.report.records import PROGRESS
from relive.report.series import Trace, moving_window

if TYPE_CHECKING:
    from collections.abc import Mapping

    from relive.report.records import Record

LAST = 20  # episodes whose returns are kept one by one
NUMBERS = (*PROGRESS, "steps_per_second")


class Standing:
    """Takes the records of a run one by one, in order.

    Attributes:
        config: The settings.
        versions: Package name to version.
        step: Environment steps up to the newest record.
        episodes: How many have ended.
        returns: Return of an episode over steps, or means of those between two records.
        traces: Each number of the progress records over steps.
        progress: The newest record of progress.
        evaluations: Those so far, the last few.
        failures: Of GPUs, those so far, the last few.
        ended: The last record, once the run has ended.
        measured: What is in the buffer, once it was measured.
        seconds: How long it took so far.
        log_seconds: Between the last two records of progress.
        last_returns: Of the last episodes, or such means.
    """

    def __init__(self) -> None:
        self.config: Mapping[str, Any] = {}
        self.versions: Mapping[str, str] = {}
        self.step = 0
        self.episodes = 0
        self.last_returns: deque[float] = deque(maxlen=LAST)
        self.returns = Trace()
        self.traces = {name: Trace(256) for name in NUMBERS}
        self.progress: Record | None = None
        self.evaluations: deque[Record] = deque(maxlen=64)
        self.failures: deque[Record] = deque(maxlen=8)
        self.ended: Record | None = None
        self.measured: Record | None = None
        self.log_seconds = 0.0
        self.seconds = 0.0

    @property
    def returns_told(self) -> int:
        """How many returns, or means of some, there are."""
        return self.returns.count

    @property
    def speed(self) -> float | None:
        """Steps a second: those of the last log intervals, of the whole run once it has ended."""
        if self.ended is not None and self.seconds > 0:
            return self.step / self.seconds
        _, values = self.traces["steps_per_second"].points()
        last = values[-5:][values[-5:] > 0]
        return float(len(last) / (1 / last).sum()) if len(last) else None  # of equal distances

    @property
    def window(self) -> int:
        """Returns in their moving average."""
        return max(self.returns.run, moving_window(self.returns_told))

    def take(self, record: Record) -> None:
        """Takes the next record."""
        self.step = record["step"]
        before = self.seconds
        self.seconds = seconds_of(record, before)
        match record["record"]:
            case "run_started" | "run_resumed":
                self.config = record.get("config", {})
                self.versions = record.get("versions", {})
            case "episode_ended" | "episodes_ended":
                self._take_return(record)
            case "training_progress":
                self.log_seconds = self.seconds - before
                self.progress = record
                for name, trace in self.traces.items():
                    if record.get(name) is not None:
                        trace.add(self.step, record[name])
            case "evaluated":
                self.evaluations.append(record)
            case "device_failed":
                self.failures.append(record)
            case "replay_measured":
                self.measured = record
            case "run_ended":
                self.ended = record

    def _take_return(self, record: Record) -> None:
        """The return of an episode, or the mean of several."""
        value = record.get("episode_return", record.get("mean_return"))
        if value is None:
            return
        self.episodes += record.get("episodes", 1)
        self.last_returns.append(value)
        self.returns.add(self.step, value)
