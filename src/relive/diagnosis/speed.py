"""How fast the buffer is, beside what the memory of this machine does at best.

Both are measured in turns, in this process, with one thread; what the buffer does is compared with
its definition first.
"""

from __future__ import annotations

import gc
import statistics
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relive.bench.sides import floors, relive
from relive.bench.worker import Operation, Worker
from relive.storage.memory import free_memory, plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

CAPACITY = 200_000  # 35 MB of rows: more than the caches of a core hold
ROWS = 256
TASK = {
    "capacity": CAPACITY,
    "obs_shape": [17],
    "obs_dtype": "float32",
    "action_shape": [6],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One operation beside its floor.

    Attributes:
        what: The operation.
        microseconds: Of CPU time, the median of some turns.
        floor: Microseconds of the floor.
        floor_is: What that is.
        expected: The ratio lies between these on a machine that is not busy.
    """

    what: str
    microseconds: float
    floor: float
    floor_is: str
    expected: tuple[float, float]

    @property
    def ratio(self) -> float:
        """To the floor."""
        return self.microseconds / self.floor

    @property
    def verdict(self) -> str:
        """The ratio, and whether it is as expected, in a sentence."""
        low, high = self.expected
        words = f"{self.ratio:.1f}x the floor; expected {low:g}-{high:g}x"
        if self.ratio > high:
            return f"{words}: slow here, or the machine is busy"
        return words


class Floors(floors.Side):
    """The floors of the benchmark, and those of a single row."""

    def scatter(self, operation: Operation) -> Callable[[], Any]:
        """Write as many numbers as an update has priorities, at random places."""
        rng = np.random.default_rng(2)
        places = self.task.endless([rng.integers(0, CAPACITY, operation.rows) for _ in range(64)])
        values = np.ones(operation.rows, dtype=np.float32)

        def call() -> None:
            self.leaves[next(places)] = values

        return call

    def assign(self, _: Operation) -> Callable[[], Any]:
        """What a ring of NumPy arrays does with a step: one assignment a field."""
        step = next(self.task.steps(1, dict))
        ring: dict[str, NDArray[Any]] = {
            name: np.zeros((CAPACITY, *np.shape(value)), np.asarray(value).dtype)
            for name, value in step.items()
        }
        steps, place = self.task.steps(1, dict), 0

        def call() -> None:
            nonlocal place
            place = (place + 1) % CAPACITY
            for name, value in next(steps).items():
                ring[name][place] = value

        return call


OURS = {
    "sample": Operation("sample_out", ROWS, "batch"),
    "update": Operation("update", ROWS, "batch"),
    "add": Operation("add", 1, "batch"),
}
FLOORS = {
    "copy": Operation("copy", ROWS),
    "scatter": Operation("scatter", ROWS),
    "assign": Operation("assign", 1),
}


def measure(rounds: int = 9, seconds: float = 0.02) -> list[Speed]:
    """Times prioritized replay on this machine, after checking what it does.

    Args:
        rounds: Turns of each operation; the median counts.
        seconds: Length of a turn.

    Raises:
        ValueError: An operation was not right.
    """
    threads = torch.get_num_threads()
    sides = [(Worker(relive.Side()), OURS), (Worker(Floors()), FLOORS)]
    try:
        for worker, operations in sides:
            worker.setup(dict(TASK), "per")
            for operation in operations.values():
                worker.check(asdict(operation))
        taken: dict[str, list[float]] = {}
        for _ in range(rounds):
            for worker, operations in sides:
                for name, operation in operations.items():
                    spent = worker.time(asdict(operation), seconds)
                    taken.setdefault(name, []).append(1e6 * spent["cpu"] / spent["calls"])
    finally:
        for worker, _ in sides:
            worker.side.close()
        torch.set_num_threads(threads)
        gc.unfreeze()
    return judged({name: statistics.median(times) for name, times in taken.items()})


def judged(times: dict[str, float]) -> list[Speed]:
    """The operations beside their floors, from microseconds a call."""
    return [
        Speed(
            what=f"sample {ROWS} and update their priorities",
            microseconds=times["sample"] + times["update"],
            floor=times["copy"] + times["scatter"],
            floor_is="copying the same rows, writing as many numbers",
            expected=(2.0, 6.0),
        ),
        Speed(
            what="add one step",
            microseconds=times["add"],
            floor=times["assign"],
            floor_is="one NumPy assignment a field",
            expected=(1.0, 4.0),
        ),
    ]


def has_room() -> bool:
    """Whether the rings fit into the memory that is free."""
    from relive.diagnosis.surroundings import STANDARD_ROW

    free = free_memory("cpu")
    return free is None or 6 * plan(CAPACITY, STANDARD_ROW).total < free
