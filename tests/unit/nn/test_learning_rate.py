"""Step sizes as numbers of the host and as numbers on a device."""

import pytest
import torch

from relive.nn.learning_rate import LearningRate


def on_device(start, end, planned_updates):
    """One that keeps its numbers where a GPU's would be."""
    rate = LearningRate(start, end, planned_updates)
    if end is not None:
        rate.move("cpu")
    return rate


@pytest.mark.parametrize("make", [LearningRate, on_device])
def test_the_step_size_goes_to_its_end_in_a_straight_line_and_stays(make):
    rate = make(0.4, 0.0, 4)
    sizes = [float(rate.next()) for _ in range(6)]
    assert sizes == pytest.approx([0.4, 0.3, 0.2, 0.1, 0.0, 0.0], abs=1e-7)


@pytest.mark.parametrize("make", [LearningRate, on_device])
def test_it_goes_on_where_a_saved_run_was(make):
    rate = make(0.4, 0.0, 4)
    rate.set(3)
    assert float(rate.next()) == pytest.approx(0.1)


@pytest.mark.parametrize("make", [LearningRate, on_device])
def test_without_an_end_it_stays_a_number_of_the_host(make):
    rate = make(0.4, None, 4)
    assert [rate.next() for _ in range(6)] == [0.4] * 6


def test_on_a_device_the_count_is_there_and_what_was_given_out_stays():
    rate = on_device(0.4, 0.0, 4)
    first, second = rate.next(), rate.next()
    assert isinstance(first, torch.Tensor)
    assert [first.item(), second.item()] == pytest.approx([0.4, 0.3])


@pytest.mark.parametrize("made", [0, 999_999, 19_999_999, 39_999_998, 39_999_999, 40_000_000])
def test_on_a_device_a_long_run_comes_to_its_end_when_it_should(made):
    ours, exact = on_device(1e-3, 1e-5, 40_000_000), LearningRate(1e-3, 1e-5, 40_000_000)
    for rate in (ours, exact):
        rate.set(made)
    sizes = [(float(ours.next()), exact.next()) for _ in range(3)]
    assert [one for one, _ in sizes] == pytest.approx([other for _, other in sizes], rel=2e-7)


def test_on_a_device_every_step_counts():
    rate = on_device(1.0, 0.0, 2**26)
    rate.set(2**25 + 1)  # where a part of the way in float32 would stand still
    for _ in range(5):
        rate.next()
    assert rate._left.item() == 2**25 - 6
