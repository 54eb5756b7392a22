"""Batches that Triton draws are those of the CPU, bit for bit, and so is what is counted."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from relive import (
    Batch,
    InputError,
    Linear,
    NotReadyError,
    Proportional,
    RankBased,
    Recent,
    Uniform,
    UnsupportedError,
)
from relive.ops import words as w
from relive.ops.launch import launch
from relive.ops.sample import cpu, cuda
from relive.ops.state import State
from relive.ops.window.reference import num_gone
from tests.equivalence.states import comparable, same_bits
from tests.properties.calls import Calls, Spec, errors, steps
from tests.triton.checker import checked

SAMPLERS = [
    Uniform(),
    Proportional(alpha=1.0, eps=0.0, normalize="buffer", beta=Linear(0.4, 1.0, 50)),
    Proportional(uniform_share=0.3, demo_bonus=0.5, normalize="batch", beta=0.7),
    Proportional(stratified=False, normalize=None, mixture_weights=True, uniform_share=0.1),
    Proportional(normalize="buffer", mixture_weights=True, uniform_share=0.2, eps=0.0),
    Proportional(normalize="batch", mixture_weights=True, weight_clip=0.5),
    Proportional(normalize=None, stratified=True, weight_clip=2.0),
    Proportional(normalize="buffer", uniform_share=1.0),
    RankBased(resort_every=3, normalize="buffer", bad_priority="max"),
    RankBased(resort_every=1, normalize="batch", alpha=2.0, uniform_share=0.2),
    RankBased(resort_every=7, normalize=None, mixture_weights=True),
]
WINDOWS = [None, Recent(5), Recent(eta=0.5, c_min=2, updates=7), Recent(eta=0.9, of="capacity")]
SHARES = [0.5, None, Linear(1.0, 0.0, 20), 0.3, 0.0, 1.0]
TWO = [Uniform(), Proportional(normalize="batch")]
CAPACITIES = [1, 5, 13, 150]
SIZES = [1, 2, 6, 7, 12, 64, 300]
SIZE_SHARES = [0.15, 0.15, 0.2, 0.2, 0.15, 0.1, 0.05]


def specs() -> list[Spec]:
    """Every sampler with some windows, shares of demonstrations and capacities."""
    return [
        Spec(
            capacity=CAPACITIES[(i + 2 * k) % 4],
            sampler=sampler,
            window=WINDOWS[(i + k) % 4],
            demo_fraction=SHARES[(i + 3 * k) % 6],
            pins=k > 0,
            track_reuse=(i + k) % 3 == 0,
            seed=i,
        )
        for k in range(4)
        for i, sampler in enumerate(SAMPLERS)
    ]


def label(spec: Spec) -> str:
    window = "all" if spec.window is None else spec.window.count or "ere"
    name = type(spec.sampler).__name__
    return f"{name}-{spec.seed}-{spec.capacity}-{window}-{'pins' if spec.pins else 'ring'}"


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interpreted program takes as long whatever the size of its blocks."""
    monkeypatch.setattr(cuda, "DRAWS_TOGETHER", 64)


class Twin:
    """Draws with Triton what a buffer on the CPU draws, from a copy of its state."""

    def __init__(self, buffer: Any) -> None:
        self.buffer = buffer
        self.state = copy_of(buffer._state)
        self.draws = self.empty = 0

    def sample(
        self, batch_size: int, *, first: int = 0, total: int | None = None, **how: Any
    ) -> None:
        """Both draw; rows, weights, ids and all that is counted must be equal."""
        ids, total = how.pop("ids", None), total or batch_size
        given, expected = self.buffer.empty_batch(total), self.buffer.empty_batch(total)
        given._arena.fill_(7)
        expected._arena.fill_(7)
        state = self.buffer._state
        self.state.take(state.tensors())
        bounds = torch.tensor(ids) if ids is not None and self.draws % 2 else ids
        with checked(shuffle=self.draws):
            cuda.sample(
                self.state, given._arena, batch_size, first=first, total=total, ids=bounds, **how
            )
        outcome = cpu.sample(
            state, expected._arena, batch_size, first=first, total=total, ids=ids, **how
        )
        self.draws += 1
        if outcome == w.NOTHING_TO_DRAW:
            self.empty += 1
            state.words[w.EMPTY_SAMPLES] += 1
            if ids is not None:
                state.words[w.RANGE_ROWS_GONE] += num_gone(state, *ids)
            rows = slice(first, first + batch_size)
            for name in expected.keys():  # noqa: SIM118 - a batch is no dict
                expected[name][rows] = -1 if name == "ids" else 0
        assert_same_rows(given, expected)
        assert_same(self.state, state)


def copy_of(state: State) -> State:
    """A state of its own with the same numbers."""
    return State(**{name: tensor.clone() for name, tensor in state.tensors().items()})


def assert_same(state: State, expected: State) -> None:
    for name, tensor in comparable(expected).items():
        given = comparable(state)[name]
        assert same_bits(given, tensor), (name, (given != tensor).nonzero().flatten().tolist())


def assert_same_rows(given: Batch, expected: Batch) -> None:
    for name in expected.keys():  # noqa: SIM118 - a batch is no dict
        assert same_bits(given[name], expected[name]), name


def draw_as_calls_go(twin: Twin, spec: Spec, seed: int, calls: int) -> None:
    """A draw after each of some random calls."""
    buffer, rng = twin.buffer, np.random.default_rng(seed)
    for name, arguments in Calls(spec, buffer, seed).take(calls):
        with suppress(InputError, NotReadyError, UnsupportedError):
            getattr(buffer, name)(**arguments)
        how: dict[str, Any] = {"train": bool(rng.random() < 0.8)}
        if rng.random() < 0.15:
            newest = buffer.stats()["added"]
            start = int(rng.integers(0, newest + 2))
            how["ids"] = start, int(rng.choice([start + 5, start + 40, 2**62 + 2]))
        twin.sample(int(rng.choice(SIZES, p=SIZE_SHARES)), **how)


@pytest.mark.parametrize("spec", specs(), ids=label)
def test_draws_are_those_of_the_cpu(spec: Spec) -> None:
    twin = Twin(spec.buffer())
    draw_as_calls_go(twin, spec, seed=3, calls=4)
    rng = np.random.default_rng(5)
    twin.buffer.extend(**steps(rng, spec.capacity))
    draw_as_calls_go(twin, spec, seed=7, calls=16)
    assert twin.draws > twin.empty


def filled(spec: Spec) -> Twin:
    """A twin of a buffer that is full, of priorities of all magnitudes."""
    buffer, rng = spec.buffer(), np.random.default_rng(spec.seed)
    buffer.extend(**steps(rng, spec.capacity + spec.capacity // 3))
    if buffer.prioritized:
        buffer.update_priorities(buffer.live_ids(), errors(rng, spec.capacity))
    return Twin(buffer)


@pytest.mark.parametrize("window", [None, Recent(1234)], ids=["all", "recent"])
def test_draws_from_a_large_tree_are_those_of_the_cpu(window: Recent | None) -> None:
    twin = filled(Spec(capacity=5000, sampler=Proportional(uniform_share=0.1), window=window))
    for batch_size in (300, 64):
        twin.sample(batch_size, train=True)
    twin.sample(64, train=False, ids=(2000, 4500))


def test_programs_of_few_draws_agree_on_the_smallest_weight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda, "DRAWS_TOGETHER", 8)
    monkeypatch.setattr(cuda, "WEIGHED_TOGETHER", 16)
    twin = filled(Spec(capacity=150, sampler=Proportional(normalize="batch")))
    grids: list[Any] = []
    launch.listeners.append(lambda _kernel, grid, *_: grids.append(grid))
    try:
        for _ in range(3):
            twin.sample(50, train=True)
    finally:
        launch.listeners.pop()
    assert all(grid[0] >= 7 for grid in grids[::2])  # programs of 8 draws
    assert twin.draws == 3
    assert twin.empty == 0


def test_programs_of_many_draws_draw_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "MANY_DRAWS", 100)
    twin = filled(Spec(capacity=150, sampler=Proportional()))
    twin.sample(200, train=True)


@pytest.mark.parametrize("sampler", TWO, ids=["uniform", "proportional"])
def test_a_part_of_an_arena_is_filled_and_the_rest_left_alone(sampler: Any) -> None:
    twin = filled(Spec(sampler=sampler, track_reuse=True))
    for first, count in ((0, 3), (3, 7), (9, 1)):
        twin.sample(count, first=first, total=10, train=True)


@pytest.mark.parametrize("sampler", [*TWO, RankBased()], ids=["uniform", "proportional", "rank"])
def test_a_batch_of_nothing_is_counted_and_changes_nothing_else(sampler: Any) -> None:
    twin = Twin(Spec(sampler=sampler, track_reuse=True).buffer())
    twin.sample(5, train=True)
    twin.sample(5, train=False, ids=(3, 9))
    assert twin.empty == 2
    twin.buffer.extend(**steps(np.random.default_rng(0), 20))
    for _ in range(3):
        twin.sample(5, train=True)
    twin.sample(5, train=True, ids=(0, 3))  # overwritten
    assert twin.empty == 3


RANGES = [
    ((7, 12), 0),
    ((2, 9), 3),  # 4, 5, 6
    ((0, 2**63 - 1), 3),  # the copy is held, and no id of its kind is ever gone
    ((4, 7), 3),  # nothing to draw
    ((9, 2), 0),
    ((0, 0), 0),
    ((12, 2**62), 0),
]


@pytest.mark.parametrize("sampler", TWO, ids=["uniform", "proportional"])
def test_rows_of_a_range_that_are_gone_are_counted(sampler: Any) -> None:
    buffer, rng = Spec(sampler=sampler, capacity=10).buffer(), np.random.default_rng(0)
    buffer.extend(**steps(rng, 4))
    buffer.pin_demonstrations(4, reserve=1)
    buffer.pin([1])
    buffer.extend(**steps(rng, 8))  # the ring has room for 5 and holds 7...11
    twin, gone = Twin(buffer), 0
    for ids, expected in RANGES:
        twin.sample(6, train=False, ids=ids)
        gone += expected
        assert twin.state.word(w.RANGE_ROWS_GONE) == gone, ids
    assert twin.empty == 4


@pytest.mark.parametrize("sampler", TWO, ids=["uniform", "proportional"])
def test_a_sample_is_two_launches(sampler: Any) -> None:
    twin = filled(Spec(sampler=sampler))
    launches: list[Any] = []
    launch.listeners.append(lambda kernel, *_: launches.append(kernel))
    try:
        cuda.sample(twin.state, twin.buffer.empty_batch(7)._arena, 7, train=True)
    finally:
        launch.listeners.pop()
    assert len(launches) == 2
