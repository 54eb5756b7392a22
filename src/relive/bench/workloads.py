"""What is measured: rings of rows, and operations on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from relive.bench.worker import Operation

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS, FLOORS, ENVS = "relive", "floors", "envs"
QUICK_CAPACITY = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A full ring of rows.

    Attributes:
        samplers: "uniform" and "per"; sides are set up for one at a time.
        writes, draws: rows of one `add`, and of one `sample` or `update`.
        scaled: batches of k/255 as float32 are measured too, where bytes k are stored.
    """

    name: str
    title: str
    capacity: int
    obs_shape: tuple[int, ...]
    obs_dtype: str = "float32"
    action_shape: tuple[int, ...] = (1,)
    samplers: tuple[str, ...] = ("uniform", "per")
    writes: tuple[int, ...] = (1, 64, 1024)
    draws: tuple[int, ...] = (32, 256, 4096)
    scaled: bool = False

    @property
    def bytes(self) -> int:
        """About what a ring of one side takes."""
        element = 1 if self.obs_dtype == "uint8" else 4
        row = 2 * element * math.prod(self.obs_shape) + 4 * math.prod(self.action_shape)
        return self.capacity * (row + 32)

    def task(self) -> dict[str, Any]:
        """What a worker is told."""
        return {
            "capacity": self.capacity,
            "obs_shape": list(self.obs_shape),
            "obs_dtype": self.obs_dtype,
            "action_shape": list(self.action_shape),
        }

    def quick(self) -> Workload:
        """The same on a small ring, with few rows."""
        size = max(1, math.prod(self.obs_shape) // 64)
        capacity = min(self.capacity, max(128, QUICK_CAPACITY // size))
        writes = tuple(rows for rows in self.writes if rows <= 64)
        return replace(self, capacity=capacity, writes=writes, draws=(32,))

    def cases(self, sampler: str) -> Iterator[Case]:
        """The operations on a ring with this sampler."""
        for kind, sizes in (
            ("sample", self.draws),
            ("update", self.draws if sampler == "per" else ()),
            ("add", self.writes),
            ("step", tuple(rows for rows in self.draws if rows == 256) or self.draws[:1]),
        ):
            if kind != "step" or sampler == "per":
                yield from (Case(sampler=sampler, kind=kind, rows=rows) for rows in sizes)
        if self.scaled and sampler == "uniform":
            yield from (Case(sampler=sampler, kind="scaled", rows=rows) for rows in self.draws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One operation as every side does it; all that is compared directly.

    Attributes:
        columns: name -> side and what it is asked for.
    """

    sampler: str
    kind: str
    rows: int
    columns: dict[str, tuple[str, Operation]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "columns", dict(self._columns()))

    @property
    def name(self) -> str:
        """As it stands in tables, results and targets: "per sample 256"."""
        return f"{self.sampler} {self.kind} {self.rows}"

    def _columns(self) -> Iterator[tuple[str, tuple[str, Operation]]]:
        for variant in VARIANTS[self.sampler]:
            yield column(variant), (OURS, Operation(self.kind, self.rows, variant))
            if self.kind in {"sample", "scaled", "step"}:
                into = Operation(f"{self.kind}_out", self.rows, variant)
                yield column(variant, out=True), (OURS, into)
        if self.kind == "add" and self.rows > 1 and self.sampler == "uniform":
            yield column(ENVS), (OURS, Operation("add_envs", self.rows, f"{self.rows} {ENVS}"))
        for floor in FLOORS_OF.get((self.sampler, self.kind), ()):
            yield floor, (FLOORS, Operation(floor, self.rows))

    def of_peer(self) -> Operation | None:
        """What a peer is asked for; None where it is not part of the comparison."""
        return None if self.kind == "scaled" else Operation(self.kind, self.rows)


VARIANTS = {"uniform": ("",), "per": ("batch", "buffer")}
FLOORS_OF = {
    ("uniform", "sample"): ("copy", "take"),
    ("uniform", "scaled"): ("convert",),
    ("per", "sample"): ("copy", "search"),
}


def column(variant: str, *, out: bool = False) -> str:
    """Name of a column of ours.

    >>> column(""), column("batch", out=True)
    ('relive', 'relive batch out')
    """
    return " ".join(word for word in (OURS, variant, "out" if out else "") if word)


_SMALLEST = Workload(
    name="W4",
    title="tree alone: rows of one byte, 10M leaves",
    capacity=10_000_000,
    obs_shape=(1,),
    obs_dtype="uint8",
    samplers=("per",),
    writes=(1,),
)
WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload(
            name="W1",
            title="17 + 17 + 6 floats, 1M rows",
            capacity=1_000_000,
            obs_shape=(17,),
            action_shape=(6,),
        ),
        Workload(name="W2", title="4 + 4 + 1 floats, 100k rows", capacity=100_000, obs_shape=(4,)),
        Workload(
            name="W3",
            title="4x84x84 bytes, 20k rows",
            capacity=20_000,
            obs_shape=(4, 84, 84),
            obs_dtype="uint8",
            writes=(1, 64),
            draws=(32, 256),
            scaled=True,
        ),
        _SMALLEST,
        replace(_SMALLEST, name="W4-100k", title="the same, 100k leaves", capacity=100_000),
    )
}
