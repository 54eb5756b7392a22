"""A buffer and its twin: one call goes to both, then they are compared."""

from __future__ import annotations

import copy
import pickle
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import ConfigError, InputError, NotReadyError, ReplayBuffer, UnsupportedError
from relive.ops import words as w
from tests.properties import priorities, sampling
from tests.properties.twin import Refused, Row, Step, Twin, count, float32
from tests.unit.unchanged import unchanged

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.properties.calls import Spec

ONE_ULP = 1.2e-7  # of a float32, relative


class Pair:
    """Calls go to both, which are compared after each; the buffer checks itself after some.

    Args:
        folder: where buffers are saved, in folders of their own.
    """

    def __init__(
        self,
        spec: Spec,
        kernels: str = "cpu",
        *,
        folder: Path | None = None,
        check_every: int = 1,
    ) -> None:
        self.spec, self.kernels, self.folder = spec, kernels, folder
        self.buffer: ReplayBuffer = spec.buffer(kernels)
        self.twin: Twin = spec.twin()
        self.saved: dict[int, Twin] = {}  # what is in each folder
        self.under_way: dict[int, Any] = {}
        self.other = spec.buffer(kernels), spec.twin()  # gone on with after a swap
        self.check_every = check_every
        self.calls = self.most_added = 0

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        getattr(self, name)(**arguments)
        self.compare()
        self.calls += 1
        self.most_added = max(self.most_added, self.twin.next_id)
        if self.calls % self.check_every == 0:
            self.buffer.check()

    @property
    def scale(self) -> int:
        return self.buffer._state.word(w.SCALE)

    # One method a call

    def add(self, **values: np.ndarray) -> None:
        self.buffer.add(**values)
        final_obs = values.pop("final_obs", None)
        lanes = list(range(self.spec.num_envs))
        given = [
            step_at(values, () if values["reward"].ndim == 0 else (lane,), final_obs, lane)
            for lane in lanes
        ]
        self.twin.write(lanes, [given])

    def extend(self, env: int | None, **values: np.ndarray) -> None:
        self.buffer.extend(env=env, **values)
        lanes = list(range(self.spec.num_envs)) if env is None else [env]
        discount = values.pop("discount", None)
        places = [
            [(t,) if env is not None else (t, lane) for lane in lanes]
            for t in range(len(values["reward"]))
        ]
        if discount is None:
            self.twin.write(
                lanes, [[step_at(values, at) for at in row] for row in places], close=bool(places)
            )
        else:
            rows = [[row_at(values, at, discount) for at in row] for row in places]
            self.twin.write_rows(lanes, rows)

    def end_episode(self, env: int | None) -> None:
        self.buffer.end_episode(env)
        self.twin.write(list(range(self.spec.num_envs)) if env is None else [env], [], close=True)

    def clear(self) -> None:
        self.buffer.clear()
        self.twin.clear()

    def ready(self, batch_size: int) -> None:
        can = sampling.can_be_drawn(self.twin, self.scale)
        assert self.buffer.ready(batch_size) == (can and len(self.twin.rows) >= batch_size)

    def sample(self, batch_size: int, train: bool) -> None:
        self.ready(batch_size)
        try:
            expected = sampling.sample(self.twin, batch_size, train=train, scale=self.scale)
        except Refused:
            with refused(self.buffer, NotReadyError):
                self.buffer.sample(batch_size, train=train)
            return
        self.compare_batch(self.buffer.sample(batch_size, train=train), *expected)

    def sample_range(self, batch_size: int, start: int, stop: int) -> None:
        try:
            expected = sampling.sample_range(self.twin, batch_size, start, stop, scale=self.scale)
        except Refused:
            with refused(self.buffer, (InputError, NotReadyError)):
                self.buffer.sample_range(batch_size, start, stop)
            return
        self.compare_batch(self.buffer.sample_range(batch_size, start, stop), *expected)

    def compare_batch(self, batch: Any, ids: list[int], weights: list[float]) -> None:
        assert batch.ids.tolist() == ids
        np.testing.assert_allclose(batch.weights.numpy(), weights, rtol=2e-6)
        assert_rows_equal(batch, [self.twin.rows[row_id] for row_id in ids])

    def update_priorities(self, ids: np.ndarray, **values: np.ndarray) -> None:
        ((kind, numbers),) = values.items()
        as_leaves = kind == "priorities"
        try:
            priorities.update(self.twin, ids.tolist(), numbers.tolist(), as_leaves=as_leaves)
        except Refused:
            with refused(self.buffer, InputError):
                self.buffer.update_priorities(ids, **values)
        else:
            self.buffer.update_priorities(ids, **values)

    def pin_demonstrations(self, count: int, reserve: int) -> None:
        try:
            self.twin.pin_demonstrations(count, reserve)
        except Refused:
            with refused(self.buffer, InputError):
                self.buffer.pin_demonstrations(count, reserve=reserve)
        else:
            self.buffer.pin_demonstrations(count, reserve=reserve)

    def pin(self, ids: np.ndarray) -> None:
        try:
            expected = self.twin.pin(ids.tolist())
        except Refused:
            with refused(self.buffer, InputError):
                self.buffer.pin(ids)
        else:
            assert self.buffer.pin(ids).tolist() == expected

    def reseed(self, seed: int) -> None:
        self.buffer.reseed(seed)
        self.twin.seed = seed
        self.twin.counters = {"train": 0, "eval": 0}

    def set_progress(self, t: int) -> None:
        self.buffer.set_progress(t)
        self.twin.progress = t

    def start_sweep(self, updates: int) -> None:
        window = self.spec.window
        if window is None or window.count is not None:
            with refused(self.buffer, UnsupportedError):
                self.buffer.start_sweep(updates)
            return
        self.buffer.start_sweep(updates)
        self.twin.sweep_length, self.twin.sweep = updates, 0

    # Buffers that take the place of this one

    def grown(self, more: int) -> None:
        self.buffer = self.buffer.grown(self.twin.capacity + more)
        self.twin = self.twin.resized(self.twin.capacity + more)

    def copied(self, how: str) -> None:
        ways = {"deepcopy": copy.deepcopy, "copy": copy.copy, "pickle": through_pickle}
        self.buffer = ways[how](self.buffer)

    def save(self, number: int, background: bool) -> None:
        self.finish(number)
        future = self.buffer.save(self.path(number), background=background)
        if background:
            self.under_way[number] = future
        self.saved[number] = self.twin.copy()

    def finish(self, number: int) -> None:
        """Wait for a save in the background."""
        future = self.under_way.pop(number, None)
        if future is not None:
            future.result()

    def load(self, number: int, capacity: int | None, go_on: bool) -> None:
        """Compare what is in a folder; go on with it, or with the buffer there was."""
        self.finish(number)
        saved, path = self.saved[number], self.path(number)
        if capacity is not None and capacity <= saved.room:
            with pytest.raises(ConfigError):
                ReplayBuffer.load(path, capacity=capacity, kernels=self.kernels)
            return
        before = self.buffer, self.twin
        self.buffer = ReplayBuffer.load(path, capacity=capacity, kernels=self.kernels)
        same = capacity in (None, saved.capacity)
        self.twin = saved.copy() if same else saved.resized(capacity)
        self.compare()
        self.buffer.check()
        if go_on:
            self.other = before
        else:
            self.buffer, self.twin = before

    def swap(self) -> None:
        here = self.buffer, self.twin
        (self.buffer, self.twin), self.other = self.other, here

    def path(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / str(number)

    # And the comparison

    def compare(self) -> None:
        buffer, twin = self.buffer, self.twin
        ids, expected = buffer.live_ids(), twin.live_ids
        assert ids.tolist() == expected
        assert len(buffer) == len(expected)
        if expected:
            rows = [twin.rows[row_id] for row_id in expected]
            assert_rows_equal(buffer.rows(ids), rows)
            slots = [twin.slot(row_id) for row_id in expected]
            links = buffer._state.rows[slots, :12].contiguous().view(torch.int32)
            wanted = [(row.lane, row.prev, row.next) for row in rows]
            assert list(map(tuple, links.tolist())) == wanted
            if buffer.prioritized:
                self.compare_priorities(ids, slots)
        waiting = buffer._state.lanes[:, w.LANE_COUNT].tolist()
        assert waiting == [len(lane.waiting) for lane in twin.lanes]
        self.compare_stats()

    def compare_priorities(self, ids: torch.Tensor, slots: list[int]) -> None:
        twin, live = self.twin, ids.tolist()
        leaves = self.buffer._state.leaves[slots].tolist()
        if twin.ranked:
            errors = [twin.errors[row_id] for row_id in live]
            assert self.buffer.priorities(ids).tolist() == errors
        else:
            assert self.buffer.priorities(ids).tolist() == leaves
        for row_id, leaf in zip(live, leaves, strict=True):
            expected = twin.leaves[row_id]
            assert abs(leaf - expected) <= ONE_ULP * expected
            twin.leaves[row_id] = leaf  # so that no error adds up

    def compare_stats(self) -> None:
        twin, stats = self.twin, self.buffer.stats()
        assert {name: stats[name] for name in twin.counts} == twin.counts
        assert (stats["size"], stats["added"]) == (len(twin.rows), twin.next_id)
        assert (stats["capacity"], stats["progress"]) == (twin.capacity, twin.progress)
        assert stats["demonstrations"] == len(twin.pinned)
        largest = stats["max_priority"] or 0.0
        assert abs(largest - twin.max_leaf) <= ONE_ULP * twin.max_leaf
        twin.max_leaf = largest
        if twin.sampler is not None:
            assert abs(stats["beta"] - sampling.beta(twin)) <= 1e-12
        if self.spec.track_reuse:
            assert nonzero(stats["age_counts"]) == twin.ages
            reuses = dict(twin.reuses)
            for row_id in twin.rows:
                count(reuses, twin.uses[row_id])
            assert nonzero(stats["reuse_counts"]) == reuses


@contextmanager
def refused(
    buffer: ReplayBuffer, error: type[Exception] | tuple[type[Exception], ...]
) -> Iterator[None]:
    with unchanged(buffer), pytest.raises(error):
        yield


def through_pickle(buffer: ReplayBuffer) -> ReplayBuffer:
    return pickle.loads(pickle.dumps(buffer))


def nonzero(histogram: list[int]) -> dict[int, int]:
    return {bin_: number for bin_, number in enumerate(histogram) if number}


def step_at(
    values: dict[str, np.ndarray],
    at: tuple[int, ...],
    final_obs: np.ndarray | None = None,
    lane: int = 0,
) -> Step:
    """The step of one environment at one time, out of the arrays of a call."""
    ended = values["terminated"][at] or values["truncated"][at]
    next_obs = values["next_obs"][at] if final_obs is None or not ended else final_obs[lane]
    return Step(
        obs=float32(values["obs"][at][0]),
        action=int(values["action"][at]),
        tag=int(values["tag"][at]),
        reward=float32(values["reward"][at]),
        next_obs=float32(next_obs[0]),
        terminated=bool(values["terminated"][at]),
        truncated=bool(values["truncated"][at]),
    )


def row_at(values: dict[str, np.ndarray], at: tuple[int, ...], discount: np.ndarray) -> Row:
    step = step_at(values, at)
    fields = {name: getattr(step, name) for name in step.__dataclass_fields__}
    return Row(**fields, discount=float32(discount[at]), lane=0)


def assert_rows_equal(batch: Any, rows: list[Row]) -> None:
    for name in ("action", "tag", "reward", "terminated", "truncated", "discount"):
        assert batch[name].tolist() == [getattr(row, name) for row in rows], name
    for name in ("obs", "next_obs"):
        expected = [[getattr(row, name), -getattr(row, name)] for row in rows]
        assert batch[name].tolist() == expected, name
