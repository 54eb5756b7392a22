"""The run: sides side by side, checked first, then timed in turns."""

from __future__ import annotations

import statistics
import sys
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from relive.bench.processes import SideLostError, SideProcess
from relive.bench.workloads import FLOORS, OURS, Case, Workload
from relive.storage.memory import free_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from relive.bench.worker import Operation

MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How it is measured.

    Attributes:
        rounds: turns of every side in every operation; the median counts.
        seconds: how long a turn takes, about.
        pythons: peer -> its interpreter.
    """

    rounds: int = 9
    seconds: float = 0.03
    pythons: dict[str, str] = field(default_factory=dict)


def compare(
    workloads: Iterable[Workload], plan: Plan, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Measure.

    Args:
        tell: is told how far it is, a line at a time.

    Returns:
        "versions" of each side; "workloads" by name: "title", "capacity", "skipped" (why a side has
        no figure) and "cases": microseconds of one call by case and column.
    """
    sides = _Sides(plan, tell)
    with closing(sides):
        measured = {workload.name: sides.compare(workload) for workload in workloads}
    return {"versions": sides.versions, "workloads": measured}


class _Sides:
    """The workers, and why some of them have no figure."""

    def __init__(self, plan: Plan, tell: Callable[[str], None]) -> None:
        self.plan, self.tell = plan, tell
        self.pythons = {OURS: sys.executable, FLOORS: sys.executable, **plan.pythons}
        self.running: dict[str, SideProcess] = {}
        self.ready: list[str] = []
        self.versions: dict[str, dict[str, str]] = {}
        self.skipped: dict[str, str] = {}
        self.workload = ""

    def close(self) -> None:
        """End every side."""
        for process in self.running.values():
            process.close()

    def compare(self, workload: Workload) -> dict[str, Any]:
        """All cases of a workload."""
        self.workload, self.skipped = workload.name, {}
        cases: dict[str, Any] = {}
        if self._has_room(workload):
            self._open()
            for sampler in workload.samplers:
                self._setup(workload, sampler)
                cases |= {case.name: self.measure(case) for case in workload.cases(sampler)}
        return {
            "title": workload.title,
            "capacity": workload.capacity,
            "cases": cases,
            "skipped": self.skipped,
        }

    def _has_room(self, workload: Workload) -> bool:
        """Whether the rings of all sides, two of ours and one that is being filled fit."""
        needed, free = workload.bytes * (len(self.pythons) + 2), free_memory()
        if free is None or needed < free:
            return True
        self.skipped["relive and all others"] = (
            f"their rings need {needed / 1e9:.1f} GB together, {free / 1e9:.1f} GB are free; "
            "fewer --peers need less"
        )
        return False

    def _open(self) -> None:
        """Start every side that does not run, or not any more."""
        for side in self.pythons.keys() - self.running.keys():
            self.running[side] = SideProcess(side, self.pythons[side])
        for side in self.pythons:
            answer = self._ask(side, "", "open")
            if "versions" in answer:
                self.versions[side] = answer["versions"]

    def _setup(self, workload: Workload, sampler: str) -> None:
        """Fill the rings; a side that cannot is not asked further."""
        self.tell(f"{workload.name}: filling the rings, {sampler}")
        self.ready = []
        for side in self.versions:
            request = {"task": workload.task(), "sampler": sampler}
            if side in self.running and not self._ask(side, sampler, "setup", **request):
                self.ready.append(side)

    def measure(self, case: Case) -> dict[str, Any]:
        """Check every column of a case, then time those that are right, in turns."""
        self.tell(f"{self.workload}: {case.name}")
        columns = dict(case.columns)
        if (of_peer := case.of_peer()) is not None:
            columns |= {peer: (peer, of_peer) for peer in self.plan.pythons}
        right = {
            name: column
            for name, column in columns.items()
            if column[0] in self.ready and self._is_right(name, case, *column)
        }
        rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in right}
        order = list(right)
        for turn in range(self.plan.rounds):
            first = turn % len(order) if order else 0
            for name in [*order[first:], *order[:first]]:
                side, operation = right[name]
                answer = self._ask(
                    side, case.name, "time", operation=asdict(operation), seconds=self.plan.seconds
                )
                if "calls" in answer:
                    rounds[name].append(answer)
        for side in self.ready:
            self._ask(side, "", "forget")
        return {name: figure(taken) for name, taken in rounds.items() if taken}

    def _is_right(self, name: str, case: Case, side: str, operation: Operation) -> bool:
        what = f"{case.name} ({name})" if side == OURS else case.name
        return not self._ask(side, what, "check", operation=asdict(operation))

    def _ask(self, side: str, what: str, action: str, **request: Any) -> dict[str, Any]:
        """An answer; one without a figure is noted, once for each side and reason."""
        if side not in self.running:
            return {"error": "lost"}
        process = self.running[side]
        try:
            answer = process.ask(action, **request)
        except SideLostError as loss:
            answer = {"error": str(loss)}
            self.running.pop(side).close()
        for reason in ("skip", "error"):
            if reason in answer:
                self.skipped[" ".join(f"{side} {what}".split())] = str(answer[reason])
        return answer


def figure(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Microseconds of one call, over the rounds of one column."""
    found: dict[str, Any] = {"calls": rounds[0]["calls"], "rounds": len(rounds)}
    for clock in ("cpu", "wall"):
        calls = [MICROSECONDS * taken[clock] / taken["calls"] for taken in rounds]
        low, middle, high = (
            statistics.quantiles(calls, n=4, method="inclusive") if len(calls) > 1 else calls * 3
        )
        found[clock] = {
            "median": middle,
            "low": min(calls),
            "high": max(calls),
            "quartiles": [low, high],
        }
    return found
