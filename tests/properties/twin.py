"""A plain-Python twin of the whole buffer: rows in a dict by id, lanes as lists, leaves as floats.

Nothing here is shared with `relive`: the n-step fold, the ring, its demonstrations and, in the
modules beside, draws, weights and priorities are written again, as plainly as possible. What the
twin takes from the buffer is the exponent of the mass scale only, because any exponent in its
documented range would do.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

FIRST_COPY = 2**62  # id of the first demonstration that is pinned by `pin`


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of one environment."""

    obs: float
    action: int
    tag: int
    reward: float
    next_obs: float
    terminated: bool
    truncated: bool

    @property
    def ended(self) -> bool:
        return self.terminated or self.truncated


@dataclass(frozen=True, kw_only=True)
class Row(Step):
    """What one id stands for."""

    discount: float
    lane: int
    prev: int = 0
    next: int = 0


def float32(x: float) -> float:
    return float(np.float32(x))


def count(histogram: dict[int, int], value: int) -> None:
    """Bin 0 counts the value 0, bin k what lies in [2^(k-1), 2^k)."""
    bin_ = value.bit_length()
    histogram[bin_] = histogram.get(bin_, 0) + 1


@dataclass(kw_only=True)
class Lane:
    """Steps of an unfinished episode that are not rows yet."""

    waiting: list[Step]
    last_id: int | None = None
    fake_step_is_next: bool = False


class Refused(Exception):  # noqa: N818 - it is no error of the twin
    """The buffer refuses such a call, and nothing changes."""


@dataclass(kw_only=True)
class Twin:
    """What `relive.ReplayBuffer` promises.

    `sampler` is a `relive.Proportional` or `RankBased` (only its settings are read) or None for
    uniform draws; `window` a `relive.Recent` or None.
    """

    capacity: int
    num_envs: int
    n_step: int
    gamma: float
    autoreset: str
    seed: int
    sampler: Any
    window: Any
    demo_fraction: Any

    def __post_init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.leaves: dict[int, float] = {}
        self.errors: dict[int, float] = {}  # by rank only
        self.uses: dict[int, int] = {}
        self.next_id = self.base = 0
        self.pinned: list[int] = []  # ids of demonstrations, by slot
        self.room = 0  # slots in front of the ring
        self.copies = 0  # demonstrations ever pinned by `pin`
        self.lanes = [Lane(waiting=[]) for _ in range(self.num_envs)]
        self.max_leaf = 0.0
        self.progress = self.updates = self.sweep = 0
        self.sweep_length = self.window.updates if self.window else 1
        self.carry = 0.0
        self.counters = {"train": 0, "eval": 0}
        self.ages: dict[int, int] = {}
        self.reuses: dict[int, int] = {}
        self.counts = dict.fromkeys(
            (
                "draws",
                "samples",
                "priority_updates",
                "bad_priorities",
                "stale_updates",
                "clamped_priorities",
                "clipped_weights",
                "dropped_reset_rows",
                "range_rows_gone",
                "sorts",
            ),
            0,
        )

    @property
    def ranked(self) -> bool:
        return getattr(self.sampler, "ranked", False)

    # Where rows are

    @property
    def ring_capacity(self) -> int:
        return self.capacity - self.room

    @property
    def oldest(self) -> int:
        return max(self.base, self.next_id - self.ring_capacity)

    @property
    def live_ids(self) -> list[int]:
        return sorted(self.rows)

    def slot(self, row_id: int) -> int:
        if row_id in self.pinned:
            return self.pinned.index(row_id)
        return self.room + (row_id - self.base) % self.ring_capacity

    def is_known(self, row_id: int) -> bool:
        """Whether the id was ever given out."""
        return 0 <= row_id < self.next_id or FIRST_COPY <= row_id < FIRST_COPY + self.copies

    # Writing

    def write(self, lanes: list[int], steps: list[list[Step]], *, close: bool = False) -> None:
        """Steps [T][len(lanes)]."""
        first = self.next_id
        for step_of_lane in steps:
            for lane, step in zip(lanes, step_of_lane, strict=True):
                self.push(lane, step)
        if close:
            for lane in lanes:
                self.close(lane)
        self.admit(first)

    def write_rows(self, lanes: list[int], rows: list[list[Row]]) -> None:
        """Ready-made rows [T][len(lanes)]."""
        first = self.next_id
        for row_of_lane in rows:
            for lane, row in zip(lanes, row_of_lane, strict=True):
                self.commit(replace(row, lane=lane))
        self.admit(first)

    def push(self, lane: int, step: Step) -> None:
        at = self.lanes[lane]
        if at.fake_step_is_next:
            at.fake_step_is_next = False
            self.counts["dropped_reset_rows"] += 1
            return
        at.waiting.append(step)
        if step.ended:
            self.flush(lane)
            at.fake_step_is_next = self.autoreset == "next_step"
        elif len(at.waiting) == self.n_step:
            self.fold(lane)

    def close(self, lane: int) -> None:
        """The user resets this environment: its episode is over, cut short if it was running."""
        at = self.lanes[lane]
        if at.waiting:
            at.waiting[-1] = replace(at.waiting[-1], truncated=True)
        if self.is_in_ring(at.last_id):  # a full window, of which the step just cut is the last
            self.rows[at.last_id] = replace(self.rows[at.last_id], truncated=True)
        self.flush(lane)
        at.fake_step_is_next = False

    def is_in_ring(self, row_id: int | None) -> bool:
        return row_id is not None and self.oldest <= row_id < self.next_id

    def flush(self, lane: int) -> None:
        while self.lanes[lane].waiting:
            self.fold(lane)
        self.lanes[lane].last_id = None

    def fold(self, lane: int) -> None:
        """The first waiting step becomes a row."""
        at = self.lanes[lane]
        first, last = at.waiting[0], at.waiting[-1]
        reward = 0.0
        for step in reversed(at.waiting):
            reward = step.reward + self.gamma * reward
        row = Row(
            obs=first.obs,
            action=first.action,
            tag=first.tag,
            reward=float32(reward),
            next_obs=last.next_obs,
            terminated=last.terminated,
            truncated=last.truncated,
            discount=0.0 if last.terminated else float32(self.gamma ** len(at.waiting)),
            lane=lane,
            prev=0 if at.last_id is None else self.next_id - at.last_id,
        )
        previous, at.last_id = at.last_id, self.next_id
        del at.waiting[0]
        self.commit(row)
        if self.is_in_ring(previous):
            self.rows[previous] = replace(self.rows[previous], next=row.prev)

    def commit(self, row: Row) -> None:
        overwritten = self.next_id - self.ring_capacity
        if overwritten >= self.base:
            del self.rows[overwritten]
            count(self.reuses, self.uses.pop(overwritten))
        self.rows[self.next_id] = row
        self.uses[self.next_id] = 0
        self.next_id += 1

    def admit(self, first: int) -> None:
        """Rows since `first` enter at the priority of new rows."""
        self.forget(self.leaves.keys() - self.rows.keys())
        leaf = 1.0 if self.ranked else self.new_leaf()
        for row_id in range(max(first, self.oldest), self.next_id):
            self.leaves[row_id] = leaf
            self.errors[row_id] = math.inf

    def new_leaf(self) -> float:
        if getattr(self.sampler, "new_priority", None) == "max_current":
            return max(self.leaves.values(), default=0.0) or 1.0
        return self.max_leaf or 1.0

    def forget(self, ids: set[int]) -> None:
        for row_id in ids:
            del self.leaves[row_id], self.errors[row_id]

    # Demonstrations

    def pin_demonstrations(self, number: int, reserve: int) -> None:
        online = self.next_id - self.oldest
        if (
            number + reserve == 0
            or self.room
            or any(lane.waiting for lane in self.lanes)
            or self.oldest != self.base
            or number != online
            or number + reserve >= self.capacity
        ):
            raise Refused
        self.pinned = list(range(self.oldest, self.next_id))
        self.room = number + reserve
        self.base = self.next_id
        for lane in self.lanes:
            lane.last_id = None

    def pin(self, ids: list[int]) -> list[int]:
        """Copies, each with the priority of its row; returns their ids."""
        if len(self.pinned) + len(ids) > self.room:
            raise Refused
        made = []
        for row_id in ids:
            new_id = FIRST_COPY + self.copies
            self.rows[new_id] = replace(self.rows[row_id], prev=0, next=0)
            self.leaves[new_id] = self.leaves[row_id]
            self.errors[new_id] = self.errors[row_id]
            self.uses[new_id] = 0
            self.pinned.append(new_id)
            self.copies += 1
            made.append(new_id)
        return made

    # As a whole

    def clear(self) -> None:
        """Environments go on: a fake step that is due comes still."""
        self.rows, self.leaves, self.errors, self.uses = {}, {}, {}, {}
        self.max_leaf = 0.0
        self.base = self.next_id
        self.pinned, self.room = [], 0
        for lane in self.lanes:
            lane.waiting, lane.last_id = [], None

    def copy(self) -> Twin:
        """Another with the same contents; rows and steps never change."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | list):
                setattr(other, name, copy.copy(value))
        other.lanes = [replace(lane, waiting=list(lane.waiting)) for lane in self.lanes]
        return other

    def resized(self, capacity: int) -> Twin:
        """With the newest rows that fit, in slots from the first of the ring on."""
        other = self.copy()
        other.capacity = capacity
        other.base = max(self.oldest, self.next_id - other.ring_capacity)
        gone = {row_id for row_id in self.rows if self.oldest <= row_id < other.base}
        for row_id in gone:
            del other.rows[row_id], other.uses[row_id]
        other.forget(gone & other.leaves.keys())
        return other
