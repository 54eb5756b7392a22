"""A buffer and its twin: one call goes to both, then they are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import InputError, NotReadyError
from relive.ops import words as w
from tests.properties.twin import Row, Step, Twin, count, float32

if TYPE_CHECKING:
    from relive import ReplayBuffer
    from tests.properties.calls import Spec

ONE_ULP = 1.2e-7  # of a float32, relative


class Pair:
    """Calls go to both, which are compared after each; the buffer checks itself after some."""

    def __init__(self, spec: Spec, kernels: str = "cpu", *, check_every: int = 1) -> None:
        self.spec = spec
        self.buffer: ReplayBuffer = spec.buffer(kernels)
        self.twin: Twin = spec.twin()
        self.check_every = check_every
        self.calls = 0

    def call(self, name: str, arguments: dict[str, Any]) -> None:
        getattr(self, name)(**arguments)
        self.compare()
        self.calls += 1
        if self.calls % self.check_every == 0:
            self.buffer.check()

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

    def sample(self, batch_size: int, train: bool) -> None:
        assert self.buffer.ready(batch_size) == (
            self.twin.can_be_drawn() and len(self.twin.rows) >= batch_size
        )
        if not self.twin.can_be_drawn():
            with pytest.raises(NotReadyError):
                self.buffer.sample(batch_size, train=train)
            return
        batch = self.buffer.sample(batch_size, train=train)
        scale = self.buffer._state.word(w.SCALE)
        ids, weights = self.twin.sample(batch_size, train=train, scale=scale)
        assert batch.ids.tolist() == ids
        np.testing.assert_allclose(batch.weights.numpy(), weights, rtol=2e-6)
        assert_rows_equal(batch, [self.twin.rows[row_id] for row_id in ids])

    def update_priorities(self, ids: np.ndarray, **values: np.ndarray) -> None:
        ((kind, numbers),) = values.items()
        as_leaves = kind == "priorities"
        before = self.buffer._state.leaves.clone()
        if self.twin.update(ids.tolist(), numbers.tolist(), as_leaves=as_leaves):
            self.buffer.update_priorities(ids, **values)
        else:
            with pytest.raises(InputError):
                self.buffer.update_priorities(ids, **values)
            assert torch.equal(self.buffer._state.leaves, before)

    def reseed(self, seed: int) -> None:
        self.buffer.reseed(seed)
        self.twin.seed = seed
        self.twin.counters = {"train": 0, "eval": 0}

    def set_progress(self, t: int) -> None:
        self.buffer.set_progress(t)
        self.twin.progress = t

    # And the comparison

    def compare(self) -> None:
        buffer, twin = self.buffer, self.twin
        ids = buffer.live_ids()
        assert ids.tolist() == twin.live_ids
        assert len(buffer) == len(twin.rows)
        if len(ids):
            assert_rows_equal(buffer.rows(ids), list(twin.rows.values()))
            slots = [twin.slot(row_id) for row_id in twin.live_ids]
            links = buffer._state.rows[slots, :12].contiguous().view(torch.int32)
            expected = [(row.lane, row.prev, row.next) for row in twin.rows.values()]
            assert list(map(tuple, links.tolist())) == expected
        waiting = buffer._state.lanes[:, w.LANE_COUNT].tolist()
        assert waiting == [len(lane.waiting) for lane in twin.lanes]
        self.compare_stats()
        if buffer.prioritized and len(ids):
            leaves = buffer.priorities(ids).tolist()
            for leaf, expected in zip(leaves, twin.leaves.values(), strict=True):
                assert abs(leaf - expected) <= ONE_ULP * expected
            twin.leaves = dict(zip(twin.live_ids, leaves, strict=True))  # so that no error adds up

    def compare_stats(self) -> None:
        twin, stats = self.twin, self.buffer.stats()
        assert {name: stats[name] for name in twin.counts} == twin.counts
        assert (stats["size"], stats["added"]) == (len(twin.rows), twin.next_id)
        assert (stats["capacity"], stats["progress"]) == (twin.capacity, twin.progress)
        largest = stats["max_priority"] or 0.0
        assert abs(largest - twin.max_leaf) <= ONE_ULP * twin.max_leaf
        twin.max_leaf = largest
        if twin.sampler is not None:
            assert abs(stats["beta"] - twin.beta) <= 1e-12
        if self.spec.track_reuse:
            assert nonzero(stats["age_counts"]) == twin.ages
            reuses = dict(twin.reuses)
            for row_id in twin.rows:
                count(reuses, twin.uses[row_id])
            assert nonzero(stats["reuse_counts"]) == reuses


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
