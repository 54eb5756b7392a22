"""The ring as a plain list of dicts, and a buffer that must hold the same.

The seam is where the newest row meets the oldest. `cross` moves it over every slot and looks at
everything that could go wrong there. Numbers are small and gamma is 1/2, so all is exact. A leaf is
1 or, once an update has said so, 0: of n rows that can be drawn, a stratified batch of n holds each
exactly once.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relive import Field, InputError, Proportional, Recent, ReplayBuffer

FIELDS = {"obs": Field((2,)), "action": Field((), torch.int64)}
GAMMA = 0.5
WINDOW = 3
PINNED = 2  # steps of each lane
COLUMNS = ("obs", "action", "reward", "next_obs", "discount", "terminated", "truncated")


class Ring:
    """Every row ever written, a dict each, at the place of its id."""

    def __init__(self, capacity: int, n_step: int, lanes: int) -> None:
        self.capacity, self.n_step, self.pinned, self.stale = capacity, n_step, 0, 0
        self.rows: list[dict[str, Any]] = []
        self.waiting: list[list[dict[str, Any]]] = [[] for _ in range(lanes)]
        self.last: list[int | None] = [None] * lanes

    @property
    def size(self) -> int:
        return self.capacity - self.pinned

    @property
    def oldest(self) -> int:
        return max(self.pinned, len(self.rows) - self.size)

    def held(self) -> list[int]:
        return [*range(self.pinned), *range(self.oldest, len(self.rows))]

    def slot(self, row: int) -> int:
        return row if row < self.pinned else self.pinned + (row - self.pinned) % self.size

    def drawable(self, first: int, stop: int) -> list[int]:
        return [i for i in self.held() if first <= i < stop and self.rows[i]["leaf"]]

    def take(self, lane: int, step: dict[str, Any]) -> None:
        self.waiting[lane].append(dict(step))
        over = step["terminated"] or step["truncated"]
        if over or len(self.waiting[lane]) == self.n_step:
            self.emit(lane)
        if over:
            self.end(lane)

    def end(self, lane: int) -> None:
        while self.waiting[lane]:
            self.emit(lane)
        self.last[lane] = None

    def close(self, lane: int) -> None:
        if self.waiting[lane]:
            self.waiting[lane][-1]["truncated"] = True
        if self.last[lane] is not None:  # its window ends with the same step
            self.rows[self.last[lane]]["truncated"] = True
        self.end(lane)

    def emit(self, lane: int) -> None:
        window, row, before = self.waiting[lane], len(self.rows), self.last[lane]
        first, last = window[0], window[-1]
        distance = 0 if before is None else row - before
        if before is not None:
            self.rows[before]["next"] = distance
        self.rows.append(
            {
                **{name: last[name] for name in ("next_obs", "terminated", "truncated")},
                **{name: first[name] for name in ("obs", "action")},
                "reward": sum(GAMMA**k * step["reward"] for k, step in enumerate(window)),
                "discount": 0.0 if last["terminated"] else GAMMA ** len(window),
                "leaf": 1.0,
                "lane": lane,
                "prev": distance,
                "next": 0,
            }
        )
        self.last[lane] = row
        del window[0]

    def pin(self) -> None:
        self.pinned, self.last = len(self.rows), [None] * len(self.last)

    def update(self, rows: list[int], leaves: list[float]) -> None:
        for row, leaf in zip(rows, leaves, strict=True):
            if row in self.held():
                self.rows[row]["leaf"] = leaf
            else:
                self.stale += 1


def step(number: int) -> dict[str, Any]:
    return {
        "obs": [float(number), -float(number)],
        "action": number,
        "reward": float(number % 16),
        "next_obs": [number + 0.5, -number - 0.5],
        "terminated": number % 7 == 6,
        "truncated": number % 11 == 10 and number % 7 != 6,
    }


def columns(steps: list[Any]) -> dict[str, Any]:
    """Steps, or lists of them, as arguments of `add` and `extend`."""
    if isinstance(steps[0], list):
        parts = [columns(part) for part in steps]
        return {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    kinds = {"action": np.int64, "terminated": np.bool_, "truncated": np.bool_}
    return {n: np.array([s[n] for s in steps], kinds.get(n, np.float32)) for n in steps[0]}


class Pair:
    """A buffer and the list, and what is done with both."""

    def __init__(
        self, size: int, n_step: int, lanes: int, pinned: bool, place: dict[str, Any]
    ) -> None:
        capacity = size + PINNED * lanes * pinned
        self.lanes, self.written, self.drawn = lanes, 0, 0
        self.ring = Ring(capacity, n_step, lanes)
        self.buffer = ReplayBuffer(
            capacity,
            FIELDS,
            sampler=Proportional(alpha=1.0, eps=0.0),
            window=Recent(WINDOW),
            demo_fraction=0.0,
            n_step=n_step,
            gamma=GAMMA,
            num_envs=lanes,
            autoreset="disabled",
            **place,
        )
        if pinned:
            self.extend(PINNED)
            self.buffer.pin_demonstrations(PINNED * lanes)
            self.ring.pin()

    def steps(self, times: int) -> list[list[dict[str, Any]]]:
        first, self.written = self.written, self.written + times * self.lanes
        numbers = range(first, self.written)
        return [[step(n) for n in numbers[t :: self.lanes]] for t in range(self.lanes)]

    def add(self) -> None:
        now = [steps[0] for steps in self.steps(1)]
        self.buffer.add(**columns(now))
        for lane, given in enumerate(now):
            self.ring.take(lane, given)

    def extend(self, times: int) -> None:
        """Steps of all lanes in one call, which closes them."""
        streams = self.steps(times)
        together = [list(at_once) for at_once in zip(*streams, strict=True)]
        self.buffer.extend(**columns(together), env=None)
        for now in together:
            for lane, given in enumerate(now):
                self.ring.take(lane, given)
        for lane in range(self.lanes):
            self.ring.close(lane)

    def compare(self) -> None:
        """Which rows are held, where, what they hold and how they are linked."""
        ring, held = self.ring, self.ring.held()
        assert len(self.buffer) == len(held)
        if not held:
            return
        found = self.buffer.all()
        assert found.ids.tolist() == held
        for name in COLUMNS:
            assert found[name].tolist() == [ring.rows[row][name] for row in held], name
        slots = torch.tensor([ring.slot(row) for row in held])
        links = self.buffer._state.rows.cpu()[slots][:, :12].contiguous().view(torch.int32)
        wanted = [[ring.rows[row][name] for name in ("lane", "prev", "next")] for row in held]
        assert links.tolist() == wanted
        assert self.buffer.priorities(held).tolist() == [ring.rows[row]["leaf"] for row in held]
        assert self.buffer.stats(wait=True)["stale_updates"] == ring.stale

    def draw(self) -> None:
        """The window of the newest rows, and a range that begins before the oldest."""
        ring, stop = self.ring, len(self.ring.rows)
        newest = ring.drawable(max(ring.oldest, stop - WINDOW), stop)
        if newest:
            assert sorted(self.buffer.sample(len(newest)).ids.tolist()) == newest
            self.drawn += 1
        first = max(ring.pinned, ring.oldest - 2)
        wanted = ring.drawable(first, stop - 1)
        if wanted:
            batch = self.buffer.sample_range(len(wanted), first, stop - 1)
            assert sorted(batch.ids.tolist()) == wanted
            self.drawn += 1

    def update(self) -> None:
        """Late errors of overwritten rows, and errors of the oldest and the newest."""
        oldest, newest = self.ring.oldest, len(self.ring.rows) - 1
        if newest < oldest:
            return
        late = list(range(max(self.ring.pinned, oldest - 2), oldest))
        rows, errors = [*late, oldest, newest], [1.0] * len(late) + [0.0, 1.0]
        self.buffer.update_priorities(np.array(rows), np.array(errors, np.float32))
        self.ring.update(rows, errors)


def cross(pair: Pair, *, longest: int) -> None:
    """Move the seam over every slot, a step at a time and by writes of more than fits."""
    seen = set()
    while len(seen) < pair.ring.size:
        pair.add()
        slot = (len(pair.ring.rows) - pair.ring.pinned) % pair.ring.size
        if slot in seen:
            continue
        seen.add(slot)
        pair.draw()
        pair.update()
        pair.compare()
    for times in (*range(1, longest + 1), 2 * pair.ring.size + 1):
        pair.extend(times)
        pair.compare()
    pair.draw()
    pair.buffer.check()
    assert pair.drawn >= pair.ring.size  # there was something to draw at nearly every place


def require_refusals(pair: Pair) -> None:
    """A row that has been overwritten cannot be asked for, nor a range of such rows be drawn.

    A GPU cannot refuse the range without a wait: it gives a batch of nothing.
    """
    buffer, gone = pair.buffer, pair.ring.oldest - 1
    assert pair.ring.pinned <= gone
    for call in (buffer.rows, buffer.priorities):
        with pytest.raises(InputError, match="given"):
            call([gone])
    if buffer.device.type == "cpu":
        with pytest.raises(InputError, match="no row has an id in"):
            buffer.sample_range(1, gone, gone + 1)
        return
    batch = buffer.sample_range(1, gone, gone + 1)
    assert (batch.ids.tolist(), batch.weights.tolist()) == ([-1], [0.0])
