"""Pinned demonstrations, mixtures, ranks."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch

from relive import InputError, Proportional, RankBased, ReplayBuffer
from relive.ops import words as w
from tests.faults.tagged import FIELDS, by_slot, held, rows, uniform, write


def demonstrations(buffer: ReplayBuffer, obs: Any = (-1, -2, -3)) -> ReplayBuffer:
    """Pinned rows, the last terminal; returns count from 0."""
    columns = rows(range(len(obs)))
    columns["obs"] = np.array(obs, float)
    columns["terminated"][-1] = True
    buffer.extend(**columns)
    buffer.pin_demonstrations(len(obs))
    return buffer


def next_slot(buffer: ReplayBuffer) -> int:
    """Where the next row goes."""
    state = buffer._state
    ring = (state.word(w.NEXT_ID) - state.word(w.BASE_ID)) % state.word(w.RING_CAPACITY)
    return state.word(w.RING_START) + ring


def test_F13_demonstrations_are_part_of_the_capacity_and_the_ring_wraps_behind_them(
    kernels: str,
) -> None:
    buffer = write(demonstrations(uniform(10, kernels)), range(20))
    assert len(buffer) == 10
    assert by_slot(buffer) == [-1, -2, -3, 14, 15, 16, 17, 18, 19, 13]
    assert next_slot(buffer) == 9
    buffer.check()


def test_F13_a_window_goes_on_over_the_seam_and_never_into_demonstrations(kernels: str) -> None:
    buffer = write(demonstrations(uniform(10, kernels, n_step=2)), range(20))
    buffer.end_episode()
    assert by_slot(buffer) == [-1, -2, -3, 14, 15, 16, 17, 18, 19, 13]
    assert held(buffer) == {
        -1: (2, 0.25, 1.5, False),
        -2: (4, 0, 2.5, True),
        -3: (4, 0, 2.5, True),  # and not on into row 0
        **{t: (2 * 2.0**t, 0.25, t + 1.5, False) for t in range(13, 19)},
        19: (2.0**19, 0.5, 19.5, False),
    }


def test_F13_an_open_demonstration_is_not_joined_with_the_first_row_after_it(kernels: str) -> None:
    buffer = uniform(10, kernels, n_step=2)
    write(buffer, range(3))
    buffer.end_episode()
    buffer.pin_demonstrations(3)
    write(buffer, range(10, 13))
    assert {start: R for start, (R, *_) in held(buffer).items()} == {
        0: 2,
        1: 4,
        2: 4,
        10: 2 * 2**10,
        11: 2 * 2**11,
    }


def test_F13_demonstrations_that_leave_no_room_are_refused(kernels: str) -> None:
    buffer = write(uniform(3, kernels), range(3))
    with pytest.raises(InputError, match="leave 0 of 3 rows for others"):
        buffer.pin_demonstrations(3)


def mixed(kernels: str, sampler: Any, fraction: float | None) -> ReplayBuffer:
    """100 demonstrations and 900 other rows."""
    buffer = ReplayBuffer(1000, FIELDS, sampler=sampler, demo_fraction=fraction, kernels=kernels)
    buffer.extend(**rows(range(100)))
    buffer.pin_demonstrations(100)
    buffer.extend(**rows(range(900)))
    return buffer


@pytest.mark.parametrize(("fraction", "count"), [(0.25, 16), (0.0, 0), (1.0, 64), (0.5, 32)])
def test_F14_every_batch_has_the_share_of_demonstrations_that_was_asked_for(
    kernels: str, fraction: float, count: int
) -> None:
    for sampler in (Proportional(), RankBased()):
        buffer = mixed(kernels, sampler, fraction)
        assert [int((buffer.sample(64).ids < 100).sum()) for _ in range(10)] == [count] * 10


PROBABILITIES = {  # fraction, mixture weights: P of a demonstration and of another row
    (None, False): (1.5 / 1050, 1 / 1050),
    (None, True): (1.5 / 1050, 1 / 1050),
    (0.25, True): (0.25 / 100, 0.75 / 900),
    (0.5, True): (0.5 / 100, 0.5 / 900),
}


@pytest.mark.parametrize(("fraction", "mixture_weights"), PROBABILITIES)
def test_F14_the_bonus_of_demonstrations_and_the_weights_of_the_mixture(
    kernels: str, fraction: float | None, mixture_weights: bool
) -> None:
    sampler = Proportional(
        alpha=1.0,
        eps=0.0,
        beta=1.0,
        demo_bonus=0.5,
        normalize=None,
        mixture_weights=mixture_weights,
    )
    buffer = mixed(kernels, sampler, fraction)
    buffer.update_priorities(range(1000), [1.0] * 1000)
    assert buffer.priorities([0, 99, 100, 999]).tolist() == [1.5, 1.5, 1, 1]
    batch = buffer.sample(1000)
    demonstration, other = PROBABILITIES[fraction, mixture_weights]
    P = torch.where(batch.ids < 100, demonstration, other)
    assert torch.allclose(batch.weights, 1 / (1000 * P), rtol=1e-5)
    counts = Counter((batch.ids < 100).tolist())
    assert counts[True] == pytest.approx(1000 * 100 * demonstration, abs=1)  # stratified


def test_F14_priorities_of_demonstrations_move_before_there_are_other_rows(kernels: str) -> None:
    sampler = Proportional(alpha=1.0, eps=0.0, demo_bonus=0.5)
    buffer = demonstrations(ReplayBuffer(10, FIELDS, sampler=sampler, kernels=kernels))
    buffer.update_priorities([0, 1, 2], [0.5, 1.5, 0.0])
    assert buffer.priorities([0, 1, 2]).tolist() == [1, 2, 0.5]
    assert buffer.sample(70).ids.bincount().tolist() == [20, 40, 10]


# alpha, errors: probabilities
RANKS = [
    (1.0, [0.1, 9.0, 3.0, 0.5], [0.12, 0.48, 0.24, 0.16]),
    (0.7, [0.1, 9.0, 3.0, 0.5], [0.154164, 0.406841, 0.250440, 0.188556]),
    (1.0, [0.1, 9e9, 3.0, 0.5], [0.12, 0.48, 0.24, 0.16]),
    (0.7, [0.1, 9e9, 3.0, 0.5], [0.154164, 0.406841, 0.250440, 0.188556]),
    (1.0, [10.0, 9.0, 3.0, 0.5], [0.48, 0.24, 0.16, 0.12]),
    (1.0, [1.0, 1.0, 1.0, 1.0], [0.12, 0.16, 0.24, 0.48]),  # of equals the newer is before
    (1.0, [5.0], [1.0]),
    (1.0, [5.0, 6.0], [1 / 3, 2 / 3]),
    (1.0, [5.0, 6.0, 1.0], [3 / 11, 6 / 11, 2 / 11]),
]


def ranked(kernels: str, count: int, alpha: float, capacity: int = 10) -> ReplayBuffer:
    """Weights are (N P)^-1."""
    sampler = RankBased(alpha=alpha, beta=1.0, normalize=None, resort_every=1, weight_clip=math.inf)
    buffer = ReplayBuffer(capacity, FIELDS, sampler=sampler, kernels=kernels)
    return write(buffer, range(count))


def probabilities(buffer: ReplayBuffer) -> list[float]:
    batch = buffer.sample(200)
    P = 1 / (len(buffer) * batch.weights)
    found = dict(zip(batch.ids.tolist(), P.tolist(), strict=True))
    return [found[row_id] for row_id in buffer.live_ids().tolist()]


@pytest.mark.parametrize(("alpha", "errors", "expected"), RANKS)
def test_F32_probabilities_follow_the_ranks(
    kernels: str, alpha: float, errors: list[float], expected: list[float]
) -> None:
    buffer = ranked(kernels, len(errors), alpha)
    buffer.update_priorities(range(len(errors)), errors)
    assert probabilities(buffer) == pytest.approx(expected, abs=1e-6)
    counts = buffer.sample(1000).ids.bincount(minlength=len(errors)).tolist()
    assert counts == pytest.approx([1000 * P for P in expected], abs=2)  # stratified


def test_F32_an_error_that_moves_to_the_front_moves_the_others_back(kernels: str) -> None:
    buffer = ranked(kernels, 4, 1.0)
    buffer.update_priorities(range(4), [0.1, 9.0, 3.0, 0.5])
    buffer.update_priorities([0], [10.0])
    assert probabilities(buffer) == pytest.approx([0.48, 0.24, 0.16, 0.12], abs=1e-6)


def test_F32_a_new_row_ranks_first(kernels: str) -> None:
    buffer = ranked(kernels, 3, 1.0)
    buffer.update_priorities(range(3), [3.0, 9e9, 1.0])
    write(buffer, [3])
    first_twice = [1 / 2, 1, 1 / 3, 1]  # leaves, until the next sort
    assert probabilities(buffer) == pytest.approx([x / sum(first_twice) for x in first_twice])
    buffer.update_priorities([2], [1.0])
    assert probabilities(buffer) == pytest.approx([0.16, 0.24, 0.12, 0.48], abs=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_F32_a_few_rows_can_be_drawn_before_the_first_update(kernels: str, count: int) -> None:
    buffer = ranked(kernels, count, 1.0)
    assert buffer.ready(count)
    assert probabilities(buffer) == pytest.approx([1 / count] * count)
