"""Several critics, on values worked out by hand."""

import math

import pytest
import torch

from relive.losses import clipped_double_target, critics_loss, row_error, smoothed_action


def test_the_target_takes_the_smaller_critic_of_each_row():
    target = clipped_double_target(
        reward=torch.tensor([1.0, 1.0, 1.0]),
        discount=torch.tensor([0.5, 0.5, 0.0]),
        q_next=torch.tensor([[2.0, 8.0, math.nan], [4.0, 6.0, 5.0]]),
    )
    assert target.tolist() == [2.0, 4.0, 1.0]


def test_the_noise_is_clipped_and_then_the_action_even_in_a_lopsided_box():
    smoothed = smoothed_action(
        action=torch.tensor([[0.0, 1.0], [-0.9, 7.0], [2.0, 0.0]]),
        noise=torch.tensor([[0.3, 0.2], [-0.3, 9.0], [9.0, -9.0]]),
        clip=torch.tensor([0.5, 0.5]),
        low=torch.tensor([-1.0, 0.0]),
        high=torch.tensor([2.0, 7.25]),
    )
    expected = [[0.3, 1.2], [-1.0, 7.25], [2.0, 0.0]]
    assert smoothed.flatten().tolist() == pytest.approx([x for row in expected for x in row])


def test_a_box_of_one_bound_for_all_dimensions_may_be_numbers():
    action, noise = torch.tensor([[0.0, 0.8]]), torch.tensor([[-0.7, 0.4]])
    assert smoothed_action(action, noise, 0.5, -1.0, 1.0).tolist() == [[-0.5, 1.0]]


@pytest.mark.parametrize(("kind", "expected"), [("mse", 3.25), ("huber", 2.1)])
def test_each_critic_has_its_own_loss_with_the_weight_outside(kind, expected):
    delta, weights = torch.tensor([[1.0, -2.0], [-3.0, 1.0]]), torch.tensor([1.0, 0.6])
    # rows of 5 and 2.5 for mse, of 3 and 2 for huber
    assert critics_loss(delta, weights, kind).item() == pytest.approx(expected)


@pytest.mark.parametrize(("kind", "expected"), [("mean", [2.0, 1.5]), ("max", [3.0, 2.0])])
def test_the_error_of_a_row_is_the_mean_or_the_largest_of_its_critics(kind, expected):
    delta = torch.tensor([[1.0, -2.0], [-3.0, 1.0]])
    assert row_error(delta, kind).tolist() == expected
