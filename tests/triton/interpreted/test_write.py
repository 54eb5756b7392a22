"""Steps become rows by kernels as they do by definition: all of the state has the same bits."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import (
    Field,
    InputError,
    NotReadyError,
    Proportional,
    RankBased,
    ReplayBuffer,
    Uniform,
    UnsupportedError,
)
from relive.ops import words as w
from relive.ops.dispatch import operations
from relive.ops.launch import launch
from relive.ops.write import cuda
from tests.equivalence.states import assert_same_state, same_bits
from tests.properties.calls import Calls, Spec, steps
from tests.triton.checker import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from relive.ops.state import State

CALLS, MANY_CALLS = 20, 400
WRITES = ("write", "extend", "flush")


def watched(function: Callable[..., None], order: random.Random) -> Callable[..., None]:
    """An operation in which every launch is checked, its columns made tensors."""

    def call(state: State, *args: Any, **settings: Any) -> None:
        given = [tensors_of(arg) if isinstance(arg, list) else arg for arg in args]
        with checked(shuffle=order.randrange(1000)):
            function(state, *given, **settings)

    return call


def tensors_of(columns: list[tuple[int, int, Any]]) -> list[tuple[int, int, torch.Tensor]]:
    return [(offset, size, torch.from_numpy(np.array(values))) for offset, size, values in columns]


def with_kernels(buffer: ReplayBuffer, seed: int = 0) -> ReplayBuffer:
    """The buffer, which writes by the kernels of this module from now on."""
    order = random.Random(seed)
    writes = {name: watched(getattr(cuda, name), order) for name in WRITES}
    buffer._home.intake._ops = operations(buffer.device, "cpu")._replace(**writes)
    return buffer


SAMPLERS = [
    Uniform(),
    Proportional(normalize="buffer", new_priority="max_current", eps=0.0),
    Uniform(),
    RankBased(resort_every=3, normalize="buffer"),
    Uniform(),
    Proportional(normalize=None, alpha=1.0, eps=0.0),
]
LANES = [(1, "disabled"), (3, "next_step"), (40, "same_step"), (40, "next_step")]


def specs() -> Iterator[Spec]:
    """Every number of steps with all lanes; samplers, capacities and pins in turn."""
    for number, n_step in enumerate(n for n in (1, 2, 5) for _ in LANES for _ in range(2)):
        num_envs, autoreset = LANES[number // 2 % len(LANES)]
        yield Spec(
            capacity=max([7, 150, 1200][number % 3], num_envs + 5 * (num_envs > 1)),
            n_step=n_step,
            num_envs=num_envs,
            autoreset=autoreset,
            sampler=SAMPLERS[number % len(SAMPLERS)],
            track_reuse=number % 3 != 0,
            pins=number % 4 == 0,
            seed=number,
        )
    yield Spec(capacity=1)
    yield Spec(capacity=1, n_step=3, sampler=Proportional())
    yield Spec(capacity=5000, n_step=3, num_envs=70, sampler=Proportional(), autoreset="next_step")


SPECS = list(specs())


def label(spec: Spec) -> str:
    lanes = f"{spec.num_envs}-{spec.autoreset}"
    return f"{spec.capacity}-{spec.n_step}-{lanes}-{type(spec.sampler).__name__}"


def run(spec: Spec, calls: int) -> None:
    """Both do the same calls, and are compared after each."""
    ours = with_kernels(spec.buffer("cpu"), spec.seed)
    other = spec.buffer("reference" if spec.num_envs <= 3 and spec.seed % 2 else "cpu")
    for name, arguments in Calls(spec, ours, spec.seed).take(calls):
        for buffer in (ours, other):
            try:
                getattr(buffer, name)(**arguments)
            except (InputError, NotReadyError, UnsupportedError):  # by both: states stay the same
                continue
        assert_same_state(ours, other)
    ours.check()


@pytest.mark.parametrize("spec", SPECS, ids=label)
def test_random_calls_leave_the_state_that_the_definition_leaves(spec: Spec) -> None:
    run(spec, CALLS)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("spec", SPECS, ids=label)
def test_many_random_calls_leave_the_state_that_the_definition_leaves(spec: Spec) -> None:
    run(spec, MANY_CALLS)


def pair(spec: Spec) -> tuple[ReplayBuffer, ReplayBuffer]:
    return with_kernels(spec.buffer("cpu")), spec.buffer("cpu")


def test_lanes_and_times_that_take_more_than_one_tile_of_the_plan() -> None:
    wide = Spec(capacity=2000, num_envs=cuda.LANES_AT_ONCE + 9, autoreset="next_step")
    long = Spec(capacity=900, num_envs=2, n_step=3, autoreset="next_step", sampler=Proportional())
    for spec, times, calls in ((wide, None, 2), (long, cuda.PLANNED_AT_ONCE // 2 + 40, 1)):
        ours, other = pair(spec)
        rng = np.random.default_rng(0)
        for _ in range(calls):
            axes = (spec.num_envs,) if times is None else (times, spec.num_envs)
            call = steps(rng, *axes, end=0.4)  # of many ends in a row, every other one is fake
            for buffer in (ours, other):
                buffer.add(**call) if times is None else buffer.extend(**call, env=None)
        ours.end_episode()
        other.end_episode()
        assert other.stats()["dropped_reset_rows"] > 100
        assert_same_state(ours, other)


@pytest.mark.parametrize(("n_step", "num_envs"), [(1, 1), (1, 2), (3, 1), (3, 2)])
def test_rows_longer_than_what_one_program_copies_at_once(n_step: int, num_envs: int) -> None:
    fields = {"obs": Field((3, 200)), "action": Field((2,)), "tag": Field((3,), torch.uint8)}
    settings = {"n_step": n_step, "num_envs": num_envs, "autoreset": "disabled"}
    ours = with_kernels(ReplayBuffer(9, fields, **settings))
    other = ReplayBuffer(9, fields, **settings)
    assert ours._state.rows.shape[1] // 4 > cuda.TILE_WORDS
    rng = np.random.default_rng(0)
    for axes in [(num_envs,), (num_envs,), (3, num_envs), (num_envs,)]:
        ends = rng.random((2, *axes)) < 0.2
        call = {
            "obs": rng.random((*axes, 3, 200), dtype=np.float32),
            "action": rng.random((*axes, 2), dtype=np.float32),
            "tag": rng.integers(0, 256, (*axes, 3), dtype=np.uint8),
            "reward": rng.random(axes, dtype=np.float32),
            "next_obs": rng.random((*axes, 3, 200), dtype=np.float32),
            "terminated": ends[0],
            "truncated": ends[1],
        }
        for buffer in (ours, other):
            buffer.add(**call) if len(axes) == 1 else buffer.extend(**call, env=None)
        assert_same_state(ours, other)
    ours.end_episode()
    other.end_episode()
    assert_same_state(ours, other)


ODD_REWARDS = np.array([-0.0, np.nan, np.inf, -np.inf, 1e-45, 3e38, 3e38, 1.0], np.float32)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of NumPy, on inf - inf
@pytest.mark.parametrize("n_step", [1, 2, 3])
def test_rewards_that_are_no_ordinary_numbers_are_folded_alike(n_step: int) -> None:
    ours, other = pair(Spec(capacity=20, n_step=n_step, gamma=1.0))
    call = steps(np.random.default_rng(0), len(ODD_REWARDS), end=0.0) | {"reward": ODD_REWARDS}
    for buffer in (ours, other):
        buffer.extend(**call)
    rewards, expected = ours.all()["reward"], other.all()["reward"]
    numbers = (
        ~expected.isnan()
    )  # which NaN comes of infinities differs from one processor to another
    assert torch.equal(rewards.isnan(), ~numbers)
    assert same_bits(rewards[numbers], expected[numbers])
    if n_step == 1:
        assert_same_state(ours, other)  # stored as they were given


@pytest.mark.parametrize("apart", [2**31 - 1, 2**31])
def test_a_link_that_does_not_fit_is_none(apart: int) -> None:
    ours, other = pair(Spec(capacity=5))
    rng = np.random.default_rng(0)
    calls = [steps(rng, end=0.0), steps(rng, end=0.0)]
    for buffer in (ours, other):
        buffer.add(**calls[0])
        buffer._state.words[w.NEXT_ID] += apart - 1
        buffer.add(**calls[1])
    assert_same_state(ours, other)


# Settings, and how many launches `add`, `end_episode` and `extend` of many steps take.
BUDGETS = [
    (Spec(), (1, 1, 2)),
    (Spec(n_step=3), (1, 1, 2)),
    (Spec(sampler=Proportional()), (1, 1, 2)),
    (Spec(num_envs=4, autoreset="next_step"), (1, 1, 2)),
    (Spec(num_envs=7, n_step=3, autoreset="next_step", sampler=RankBased()), (2, 1, 2)),
    (Spec(capacity=40, num_envs=30, n_step=3, autoreset="disabled"), (2, 2, 2)),
]


@pytest.mark.parametrize(("spec", "expected"), BUDGETS)
def test_a_call_takes_few_launches(spec: Spec, expected: tuple[int, int, int]) -> None:
    buffer = with_kernels(spec.buffer("cpu"))
    rng = np.random.default_rng(0)
    one, many = steps(rng, spec.num_envs), steps(rng, 30, spec.num_envs)
    taken = []
    launches: list[Any] = []

    def note(kernel: Any, *_: Any) -> None:
        launches.append(kernel)

    launch.listeners.append(note)
    try:
        for name, call in (("add", one), ("end_episode", {}), ("extend", {**many, "env": None})):
            launches.clear()
            getattr(buffer, name)(**call)
            taken.append(len(launches))
    finally:
        launch.listeners.remove(note)
    assert tuple(taken) == expected


def test_steps_that_wait_after_many_others_take_one_launch_more() -> None:
    buffer = Spec(capacity=40, n_step=3).buffer("cpu")
    launches: list[Any] = []
    columns: list[Any] = []

    def note(kernel: Any, *_: Any) -> None:
        launches.append(kernel)

    launch.listeners.append(note)
    try:
        cuda.extend(
            buffer._state,
            columns,
            9,
            range(1),
            buffer._home.intake.staging,
            ready_made=False,
            close=False,
        )
    finally:
        launch.listeners.remove(note)
    assert len(launches) == 3


def test_a_ready_made_row_and_an_ordinary_one_may_follow_each_other() -> None:
    ours, other = pair(Spec(capacity=30, n_step=3, num_envs=2, autoreset="disabled"))
    rng = np.random.default_rng(0)
    for _ in range(4):
        one, many = steps(rng, 2, end=0.1), steps(rng, 5)
        discount = np.where(many["terminated"], np.float32(0), np.float32(0.5))
        for buffer in (ours, other):
            buffer.add(**one)
            buffer.extend(**many, discount=discount, env=1)
        assert_same_state(ours, other)
