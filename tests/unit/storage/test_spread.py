"""How evenly priorities are spread over rows, as `stats` tells it."""

import math

import pytest
import torch

from relive import Proportional, RankBased, Uniform
from tests.unit.storage.test_saving import numbered, write

CASES = {
    "equal": ([2.0, 2.0, 2.0, 2.0], 4.0, math.log(4)),
    "one of three": ([0.0, 5.0, 0.0], 1.0, 0.0),
    "1, 1, 2": ([1.0, 1.0, 2.0], 16 / 6, 1.5 * math.log(2)),
}


def spread(buffer):
    stats = buffer.stats()
    return stats["effective_sample_size"], stats["priority_entropy"]


@pytest.mark.parametrize(("leaves", "size", "entropy"), CASES.values(), ids=CASES)
def test_of_given_priorities(leaves, size, entropy):
    buffer = numbered(len(leaves), sampler=Proportional(alpha=0.7))
    buffer.update_priorities(buffer.live_ids(), priorities=leaves)
    assert spread(buffer) == pytest.approx((size, entropy), rel=1e-6, abs=1e-6)


def test_of_the_largest_and_smallest_priorities():
    buffer = numbered(3)
    buffer.update_priorities(buffer.live_ids(), priorities=[2.0**-40, 2.0**40, 2.0**40])
    assert spread(buffer) == pytest.approx((2.0, math.log(2)))


def test_of_ranks():
    buffer = numbered(4, sampler=RankBased(alpha=1.0, resort_every=1))
    buffer.update_priorities(buffer.live_ids(), [4.0, 3.0, 2.0, 1.0])
    buffer.sample(1)
    p = torch.tensor([1, 1 / 2, 1 / 3, 1 / 4], dtype=torch.float64)
    p /= p.sum()
    expected = (1 / p.square().sum(), -(p * p.log()).sum())
    assert spread(buffer) == pytest.approx(tuple(map(float, expected)))


@pytest.mark.parametrize(("sampler", "rows"), [(Uniform(), 5), (Proportional(), 0)])
def test_there_is_none_without_priorities_or_rows(sampler, rows):
    assert spread(numbered(rows, sampler=sampler)) == (None, None)


def test_rows_that_are_gone_do_not_count():
    buffer = numbered(10, capacity=10)
    buffer.update_priorities(buffer.live_ids(), [100.0] + [1.0] * 9)
    write(buffer, 1)  # enters at the largest, in place of the first
    buffer.update_priorities(buffer.live_ids(), [1.0] * 10)
    assert spread(buffer) == pytest.approx((10, math.log(10)))


def test_beta_is_told_without_a_pass_over_the_rows():
    assert numbered(1).beta == numbered(1).stats()["beta"] == 0.4
    assert numbered(1, sampler=Uniform()).beta is None
