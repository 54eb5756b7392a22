"""A plain-Python twin of the whole buffer: rows in a dict by id, lanes as lists, leaves as floats.

Nothing here is shared with `relive`: Philox, the n-step fold, the order of strata, the importance
weights and the textbook heap (root at 1, leaf i at capacity + i, half-open search) are written
again, as plainly as possible. What the twin takes from the buffer is the exponent of the mass scale
only, because any exponent in its documented range would do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

SMALLEST_LEAF, LARGEST_LEAF = 2.0**-40, 2.0**40


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


def philox(seed: int, counter: int, stream: int, fourth: int = 0) -> list[int]:
    """Philox4x32-10 as in Salmon et al. 2011, section 3.3."""
    word = 2**32
    key = [seed % 2**64 % word, seed % 2**64 // word]
    c = [counter % word, counter // word, stream, fourth]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [b // word ^ c[1] ^ key[0], b % word, a // word ^ c[3] ^ key[1], a % word]
        key = [(key[0] + 0x9E3779B9) % word, (key[1] + 0xBB67AE85) % word]
    return c


def below(bound: int, seed: int, counter: int, stream: int) -> int:
    words = philox(seed, counter, stream)
    return (words[0] * 2**32 + words[1]) * bound // 2**64


def strata_order(batch_size: int) -> list[int]:
    """Which stratum each position draws from: halve while it can be halved, even strata first."""
    if batch_size % 2:
        return list(range(batch_size))
    half = strata_order(batch_size // 2)
    return [2 * stratum for stratum in half] + [2 * stratum + 1 for stratum in half]


class Heap:
    """The textbook sum tree of `capacity` (a power of two) whole numbers."""

    def __init__(self, values: list[int]) -> None:
        self.capacity = 1 << (len(values) - 1).bit_length()
        self.nodes = [0] * self.capacity + values + [0] * (self.capacity - len(values))
        for node in range(self.capacity - 1, 0, -1):
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    @property
    def total(self) -> int:
        return self.nodes[1]

    def find(self, target: int) -> int:
        """The leaf i with sum(leaves[:i]) <= target < sum(leaves[:i + 1])."""
        assert 0 <= target < self.total
        node = 1
        while node < self.capacity:
            node = 2 * node
            if target >= self.nodes[node]:
                target -= self.nodes[node]
                node += 1
        return node - self.capacity


@dataclass(kw_only=True)
class Lane:
    """Steps of an unfinished episode that are not rows yet."""

    waiting: list[Step]
    last_id: int | None = None
    fake_step_is_next: bool = False


@dataclass(kw_only=True)
class Twin:
    """What `relive.ReplayBuffer` promises.

    `sampler` is a `relive.Proportional` (only its settings are read) or None for uniform draws.
    """

    capacity: int
    num_envs: int
    n_step: int
    gamma: float
    autoreset: str
    seed: int
    sampler: object | None

    def __post_init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.leaves: dict[int, float] = {}
        self.uses: dict[int, int] = {}
        self.next_id = self.base = 0
        self.lanes = [Lane(waiting=[]) for _ in range(self.num_envs)]
        self.max_leaf = 0.0
        self.progress = 0
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
            ),
            0,
        )

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
        if at.last_id in self.rows:  # a full window, of which the step just cut is the last
            self.rows[at.last_id] = replace(self.rows[at.last_id], truncated=True)
        self.flush(lane)
        at.fake_step_is_next = False

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
        if previous in self.rows:
            self.rows[previous] = replace(self.rows[previous], next=row.prev)

    def commit(self, row: Row) -> None:
        overwritten = self.next_id - self.capacity
        if overwritten in self.rows:
            del self.rows[overwritten]
            count(self.reuses, self.uses.pop(overwritten))
        self.rows[self.next_id] = row
        self.uses[self.next_id] = 0
        self.next_id += 1

    def admit(self, first: int) -> None:
        """Rows since `first` enter at the priority of new rows."""
        for row_id in self.leaves.keys() - self.rows.keys():
            del self.leaves[row_id]
        leaf = self.new_leaf()
        for row_id in range(max(first, self.next_id - self.capacity), self.next_id):
            self.leaves[row_id] = leaf

    def new_leaf(self) -> float:
        if getattr(self.sampler, "new_priority", None) == "max_current":
            return max(self.leaves.values(), default=0.0) or 1.0
        return self.max_leaf or 1.0

    def clear(self) -> None:
        """Environments go on: a fake step that is due comes still."""
        self.rows, self.leaves, self.uses, self.max_leaf = {}, {}, {}, 0.0
        self.base = self.next_id
        for lane in self.lanes:
            lane.waiting, lane.last_id = [], None

    # Sampling

    @property
    def live_ids(self) -> list[int]:
        return list(self.rows)

    def slot(self, row_id: int) -> int:
        return (row_id - self.base) % self.capacity

    def heap(self, scale: int) -> Heap:
        """Masses by slot: leaf times 2^scale, rounded down, but at least 1 if there is any."""
        masses = [0] * self.capacity
        for row_id, leaf in self.leaves.items():
            masses[self.slot(row_id)] = max(int(leaf > 0), int(leaf * 2.0**scale))
        return Heap(masses)

    def can_be_drawn(self) -> bool:
        return bool(self.rows) and (self.sampler is None or any(self.leaves.values()))

    def sample(self, batch_size: int, *, train: bool, scale: int) -> tuple[list[int], list[float]]:
        """Ids, and weights to float64 precision."""
        stream = "train" if train else "eval"
        start = self.counters[stream]

        def draw(bound: int, position: int) -> int:
            return below(bound, self.seed, start + position, 0 if train else 1)

        if self.sampler is None:
            by_slot = sorted(self.rows, key=self.slot)
            ids = [by_slot[draw(len(self.rows), i)] for i in range(batch_size)]
            weights = [1.0] * batch_size
        else:
            heap = self.heap(scale)
            ids_by_slot = {self.slot(row_id): row_id for row_id in self.rows}
            ids = []
            for position, stratum in enumerate(strata_order(batch_size)):
                low, high = 0, heap.total
                if self.sampler.stratified:
                    low = stratum * heap.total // batch_size
                    high = (stratum + 1) * heap.total // batch_size
                ids.append(ids_by_slot[heap.find(low + draw(high - low, position))])
            weights = self.weights(ids)
        self.counters[stream] += batch_size
        self.counts["samples"] += 1
        self.counts["draws"] += batch_size
        if train:
            self.progress += 1
            for row_id in ids:
                self.uses[row_id] += 1
                count(self.ages, self.next_id - 1 - row_id)
        return ids, weights

    @property
    def beta(self) -> float:
        beta = self.sampler.beta
        if isinstance(beta, float | int):
            return beta
        return beta.start + (beta.end - beta.start) * min(1.0, self.progress / beta.steps)

    def weights(self, ids: list[int]) -> list[float]:
        total = math.fsum(self.leaves.values())
        raw = [(len(self.rows) * self.leaves[i] / total) ** -self.beta for i in ids]
        if self.sampler.normalize == "batch":
            raw = [(self.leaves[i] / min(self.leaves[j] for j in ids)) ** -self.beta for i in ids]
        elif self.sampler.normalize == "buffer":
            smallest = min(leaf for leaf in self.leaves.values() if leaf > 0)
            raw = [(self.leaves[i] / smallest) ** -self.beta for i in ids]
        clip = self.sampler.weight_clip
        self.counts["clipped_weights"] += sum(weight > clip * (1 + 1e-7) for weight in raw)
        return [min(weight, clip) for weight in raw]

    # Priorities

    def is_bad(self, value: float, as_leaves: bool) -> bool:
        return not math.isfinite(value) or (as_leaves and value < 0)

    def update(self, ids: list[int], values: list[float], *, as_leaves: bool) -> bool:
        """Whether the call is accepted; `values` are float32 numbers."""
        if any(not 0 <= row_id < self.next_id for row_id in ids):
            return False
        bad = [self.is_bad(value, as_leaves) for value in values]
        if self.sampler.bad_priority == "raise" and any(bad):
            return False
        self.counts["priority_updates"] += len(ids)
        self.counts["bad_priorities"] += sum(bad)
        substitute = self.max_leaf or 1.0
        decided: dict[int, float] = {}
        placeholders: set[int] = set()  # rows whose last number was bad
        for row_id, value, is_bad in zip(ids, values, bad, strict=True):
            if row_id not in self.rows:
                self.counts["stale_updates"] += 1
            elif not is_bad:
                decided[row_id] = self.leaf(value, as_leaves)
                placeholders.discard(row_id)
            elif self.sampler.bad_priority == "max":
                decided[row_id] = substitute
                placeholders.add(row_id)
            else:
                decided.pop(row_id, None)
        for row_id, leaf in decided.items():
            read_and_written_back = as_leaves and leaf == self.leaves[row_id]
            if row_id not in placeholders and not read_and_written_back:
                self.max_leaf = max(self.max_leaf, leaf)
            self.leaves[row_id] = leaf
        return True

    def leaf(self, value: float, as_leaves: bool) -> float:
        if as_leaves:
            exact, is_zero = value, value == 0
        else:
            magnitude = abs(value) + self.sampler.eps
            exact = magnitude**self.sampler.alpha
            is_zero = magnitude == 0 and self.sampler.alpha > 0
        if is_zero:
            return 0.0
        leaf = float32(min(exact, 1e38))
        held = min(max(leaf, SMALLEST_LEAF), LARGEST_LEAF)
        self.counts["clamped_priorities"] += held != leaf
        return held


def count(histogram: dict[int, int], value: int) -> None:
    """Bin 0 counts the value 0, bin k what lies in [2^(k-1), 2^k)."""
    bin_ = value.bit_length()
    histogram[bin_] = histogram.get(bin_, 0) + 1
