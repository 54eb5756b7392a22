"""Batches drawn ahead are those that `sample` would have given so many calls earlier."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from relive import Field, InputError, NotReadyError, Proportional, ReplayBuffer, UnsupportedError
from tests.unit.unchanged import refused, unchanged

FIELDS = {
    "obs": {"position": Field((3,)), "image": Field((2, 2), torch.uint8)},
    "action": Field((), torch.int64),
    "log_prob": Field(),
}
B = 8


def new_buffer(**settings: Any) -> ReplayBuffer:
    return ReplayBuffer(40, FIELDS, sampler=Proportional(), **{"n_step": 2, **settings})


def add(buffer: ReplayBuffer, number: int) -> None:
    """One step whose values say its number."""
    position, image = torch.full((3,), float(number)), torch.full((2, 2), number % 256)
    obs = {"position": position, "image": image.to(torch.uint8)}
    buffer.add(
        obs=obs,
        action=number,
        reward=float(number),
        next_obs=obs,
        terminated=number % 7 == 0,
        truncated=False,
        log_prob=-float(number),
    )


def filled(count: int = 30, **settings: Any) -> ReplayBuffer:
    buffer = new_buffer(**settings)
    for number in range(count):
        add(buffer, number)
    return buffer


def values(batch: Any) -> dict[str, torch.Tensor]:
    """Every field, copied."""
    return {name: batch._view(name).clone() for name in batch._layout.columns}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_a_batch_is_the_one_sampled_so_many_calls_earlier(ahead: int, train: bool) -> None:
    buffer, plain = filled(), filled()
    batches, sampled = buffer.batches(B, ahead=ahead, train=train), []
    order = random.Random(ahead)
    for call in range(60):
        for number in range(order.randint(0, 3)):
            add(buffer, 100 + number)
            add(plain, 100 + number)
        while len(sampled) <= call + ahead:
            sampled.append(values(plain.sample(B, train=train)))
        batch = next(batches)
        assert same(values(batch), sampled[call])
        if order.random() < 0.7:
            errors = torch.tensor([order.random() for _ in range(B)])
            buffer.update_priorities(batch.ids, errors)
            plain.update_priorities(batch.ids, errors)
        assert buffer.stats() == plain.stats()
    assert buffer.stats()["progress"] == (60 + ahead) * train
    # Rows are overwritten only while batches wait.
    assert (buffer.stats()["stale_updates"] > 0) == (ahead > 0)


def test_a_batch_that_is_held_is_not_written_to_by_those_that_follow() -> None:
    batches = filled().batches(B, ahead=2)
    held = [next(batches) for _ in range(10)]
    before = [values(batch) for batch in held]
    for _ in range(10):
        next(batches)
    assert all(same(values(batch), old) for batch, old in zip(held, before, strict=True))


def test_making_an_iterator_draws_nothing_and_dropping_it_loses_what_was_drawn_ahead() -> None:
    buffer = filled()
    with unchanged(buffer):
        batches = buffer.batches(B, ahead=3)
    next(batches)
    del batches
    assert buffer.stats()["progress"] == 4


def test_nothing_to_draw_is_said_by_the_call_that_would_draw_which_may_be_made_again() -> None:
    buffer = new_buffer()
    batches = buffer.batches(B, ahead=2)
    for _ in range(2):
        with pytest.raises(NotReadyError, match="no row has been written yet"):
            next(batches)
    for number in range(30):
        add(buffer, number)
    assert len(next(batches)) == B


def test_what_was_drawn_is_kept_while_nothing_can_be_drawn() -> None:
    buffer, plain = filled(), filled()
    batches = buffer.batches(B, ahead=2)
    sampled = [values(plain.sample(B)) for _ in range(3)]
    assert same(values(next(batches)), sampled[0])
    ids = buffer.live_ids()
    leaves = buffer.priorities(ids)
    buffer.update_priorities(ids, priorities=torch.zeros(len(ids)))
    with pytest.raises(NotReadyError, match="all priorities are 0"):
        next(batches)
    buffer.update_priorities(ids, priorities=leaves)
    assert same(values(next(batches)), sampled[1])
    assert same(values(next(batches)), sampled[2])


@pytest.mark.parametrize("ahead", [-1, 1.0, True, "1", None])
def test_ahead_is_a_whole_number(ahead: Any) -> None:
    with pytest.raises(InputError, match="ahead is a whole number >= 0; given"):
        filled().batches(B, ahead=ahead)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"batch_size": 0}, InputError, "batch_size is a whole number"),
        ({"train": torch.ones(2)}, InputError, "train"),
        ({"device": "tpu"}, UnsupportedError, "device is 'cpu' or 'cuda"),
    ],
)
def test_other_arguments_are_those_of_sample(
    arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    buffer = filled()
    with refused(buffer, error, match):
        buffer.batches(**{"batch_size": B, **arguments})


@pytest.mark.parametrize("ahead", [0, 1, 3])
def test_saved_with_its_buffer_it_goes_on_with_the_same_batches(ahead: int) -> None:
    buffer = filled()
    batches = buffer.batches(B, ahead=ahead)
    for _ in range(3):
        next(batches)
    later = filled(0)
    others = later.batches(B, ahead=ahead)
    later.load_state_dict(buffer.state_dict())
    others.load_state_dict(batches.state_dict())
    assert len(others.state_dict()["drawn"]) == ahead
    for _ in range(2 * ahead + 1):
        assert same(values(next(others)), values(next(batches)))


def test_what_was_saved_does_not_change_when_the_batches_are_used() -> None:
    batches = filled().batches(B, ahead=1)
    next(batches)
    saved = batches.state_dict()
    before = {name: field.clone() for name, field in saved["drawn"][0].items()}
    next(batches).reward.fill_(7)
    assert same(saved["drawn"][0], before)


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"drawn": 3},
        {"drawn": [3]},
        {"drawn": [{}]},
        {"drawn": [{"ids": torch.zeros(B, dtype=torch.int64)}]},
    ],
)
def test_a_state_of_something_else_is_refused(state: Any) -> None:
    batches = filled().batches(B, ahead=1)
    next(batches)
    expected = batches.state_dict()["drawn"][0]
    with pytest.raises(InputError, match="batches of 8 rows with the fields ids, weights, "):
        batches.load_state_dict(state)
    assert same(values(next(batches)), expected)


def test_a_state_of_batches_of_another_size_is_refused() -> None:
    batches = filled().batches(B + 1, ahead=1)
    next(batches)
    with pytest.raises(InputError, match="batches of 8 rows"):
        filled().batches(B, ahead=1).load_state_dict(batches.state_dict())


def test_a_field_of_another_type_is_refused() -> None:
    batches = filled().batches(B, ahead=1)
    next(batches)
    state = batches.state_dict()
    state["drawn"][0]["reward"] = state["drawn"][0]["reward"].to(torch.float64)
    with pytest.raises(InputError, match="batches of 8 rows"):
        batches.load_state_dict(state)
