"""Steps given as columns on the device become the rows that they become when packed first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from relive import Field, Proportional, RankBased, ReplayBuffer, Uniform
from relive.ops.write import cuda, reference
from tests.equivalence.states import assert_same_state
from tests.triton.arguments import Steps, launches
from tests.triton.checker import checked

if TYPE_CHECKING:
    from relive.ops.pack.cuda import Column

LINKS = {"lane", "prev", "next"}

# Fields of odd sizes, with gaps between them and without.
PLAIN: dict[str, Any] = {"obs": Field((3,)), "action": Field((), torch.int64)}
ODD: dict[str, Any] = {
    "obs": {"pixels": Field((3, 5), torch.uint8), "pose": Field((3,), store=torch.bfloat16)},
    "action": Field((5,), torch.int8),
    "mark": Field((), torch.uint8),
    "time": Field((), torch.float64),
    "flags": Field((2, 3), torch.bool),
}
DENSE: dict[str, Any] = {
    "obs": Field((2,), torch.uint8),
    "action": Field((8,), torch.uint8),
    "mark": Field((4,), torch.float16),
}
WIDE: dict[str, Any] = {"obs": Field((3, 401), torch.uint8), "action": Field((2,))}
HUGE: dict[str, Any] = {"obs": Field((40_000,), torch.uint8), "action": Field((2,))}
FIELDS = {"plain": PLAIN, "odd": ODD, "dense": DENSE, "wide": WIDE}


def columns_of(
    buffer: ReplayBuffer, count: int, seed: int, *, end: float = 0.3, start: int = 0
) -> list[Column]:
    """Values of any bits for so many steps; the columns begin at the byte `start` of something."""
    generator = torch.Generator().manual_seed(seed)
    found: list[Column] = []
    for name, column in buffer._home.layout.columns.items():
        size = column.field.stored_dtype.itemsize
        memory = torch.randint(
            0, 256, (start * size + count * column.nbytes,), dtype=torch.uint8, generator=generator
        )
        if name in ("terminated", "truncated"):
            memory = (torch.rand(len(memory), generator=generator) < end).to(torch.uint8)
        elif name in ("reward", "discount"):
            memory = torch.randn(len(memory) // size, generator=generator).view(torch.uint8)
        if name not in LINKS:
            found.append(
                (column.offset, column.nbytes, memory[start * size :].view(count, column.nbytes))
            )
    return found


def without(buffer: ReplayBuffer, columns: list[Column], *names: str) -> list[Column]:
    offsets = [buffer._home.layout.columns[name].offset for name in names]
    return [column for column in columns if column[0] not in offsets]


def pair(**settings: Any) -> tuple[ReplayBuffer, ReplayBuffer]:
    made = {"capacity": 29, "seed": 0, "fields": PLAIN, **settings}
    if made.get("num_envs", 1) > 1:
        made.setdefault("autoreset", "disabled")
    return ReplayBuffer(**made), ReplayBuffer(**made)


def give(
    buffers: tuple[ReplayBuffer, ReplayBuffer],
    columns: list[Column],
    count: int,
    lanes: range,
    *,
    seed: int = 0,
    ready_made: bool = False,
    close: bool = False,
) -> list[str]:
    """To both, by kernels and by definition; what was launched. They are in the same state then."""
    ours, other = buffers
    options = {"ready_made": ready_made, "close": close}
    with checked(shuffle=seed), launches(at_most=3) as launched:
        cuda.extend(ours._state, columns, count, lanes, ours._home.intake.staging, **options)
    reference.extend(other._state, columns, count, lanes, other._home.intake.staging, **options)
    assert_same_state(ours, other)
    return launched


# What a buffer is made with, and how many launches one time of all lanes takes.
ONE_TIME: list[tuple[dict[str, Any], int]] = [
    ({}, 1),
    ({"n_step": 3}, 1),
    ({"sampler": Proportional()}, 1),
    ({"fields": WIDE}, 1),
    ({"fields": HUGE}, 2),
    ({"num_envs": 4, "n_step": 3, "sampler": RankBased()}, 1),
    ({"num_envs": 16, "autoreset": "next_step"}, 1),
    ({"num_envs": 17, "track_reuse": True}, 2),
    ({"num_envs": 20, "n_step": 3, "autoreset": "next_step"}, 2),
    ({"num_envs": 20, "autoreset": "next_step", "sampler": Proportional()}, 2),
    ({"num_envs": 20, "n_step": 2, "autoreset": "same_step", "fields": ODD}, 2),
]


@pytest.mark.parametrize(("settings", "expected"), ONE_TIME)
def test_one_time_of_every_lane_takes_one_launch_or_two(
    settings: dict[str, Any], expected: int
) -> None:
    buffers = pair(**settings)
    lanes = range(buffers[0].num_envs)
    for seed in range(5):
        columns = without(buffers[0], columns_of(buffers[0], len(lanes), seed), "discount")
        assert len(give(buffers, columns, len(lanes), lanes, seed=seed)) == expected


@pytest.mark.parametrize("fields", FIELDS)
@pytest.mark.parametrize(("num_envs", "n_step"), [(1, 1), (1, 3), (3, 2)])
def test_fields_of_every_size_arrive_whole(fields: str, num_envs: int, n_step: int) -> None:
    buffers = pair(fields=FIELDS[fields], num_envs=num_envs, n_step=n_step)
    lanes = range(num_envs)
    for seed, (times, close) in enumerate([(1, False), (4, False), (1, True), (3, True)]):
        count = times * num_envs
        columns = without(buffers[0], columns_of(buffers[0], count, seed), "discount")
        give(buffers, columns, count, lanes, seed=seed, close=close)


@pytest.mark.parametrize("start", [1, 2, 3, 4, 8])
def test_columns_at_odd_places_are_read_like_others_and_not_copied(start: int) -> None:
    buffers = pair(fields=ODD, n_step=2)
    for seed in range(3):
        columns = columns_of(buffers[0], 1, seed, start=start)
        columns = without(buffers[0], columns, "discount")
        assert give(buffers, columns, 1, range(1), seed=seed) == ["write_kernel"]


@pytest.mark.parametrize("fields", FIELDS)
def test_ready_made_rows_are_stored_as_they_are(fields: str) -> None:
    buffers = pair(fields=FIELDS[fields], num_envs=2, n_step=3)
    for seed, count in enumerate((1, 6, 40)):
        columns = columns_of(buffers[0], count, seed)
        give(buffers, columns, count, range(1, 2), seed=seed, ready_made=True)


def test_what_is_not_given_is_zero() -> None:
    buffers = pair(fields=ODD, n_step=2)
    for seed, names in enumerate([("truncated",), ("mark", "terminated"), ("reward",)]):
        columns = without(buffers[0], columns_of(buffers[0], 3, seed), "discount", *names)
        give(buffers, columns, 3, range(1), seed=seed)
    give(buffers, [], 2, range(1))


def test_steps_of_one_lane_leave_those_that_wait_in_others() -> None:
    buffers = pair(num_envs=3, n_step=4)
    for seed, lanes in enumerate([range(3), range(1, 2), range(3), range(2), range(2, 3)]):
        columns = without(buffers[0], columns_of(buffers[0], len(lanes), seed, end=0.0), "discount")
        give(buffers, columns, len(lanes), lanes, seed=seed)


def test_no_steps_at_all_close_an_episode() -> None:
    buffers = pair(n_step=3, sampler=Uniform())
    columns = without(buffers[0], columns_of(buffers[0], 2, 0, end=0.0), "discount")
    give(buffers, columns, 2, range(1))
    give(buffers, [], 0, range(1))
    give(buffers, [], 0, range(1), close=True)


def test_rows_of_larger_tensors_are_launched_alike() -> None:
    buffer, steps = pair(fields=WIDE)[0], Steps()
    columns = without(buffer, columns_of(buffer, 20, 0), "discount")
    for time in range(20):
        row = [(offset, size, values[time]) for offset, size, values in columns]
        with steps.named("add"):
            cuda.extend(
                buffer._state,
                row,
                1,
                range(1),
                buffer._home.intake.staging,
                ready_made=False,
                close=False,
            )
