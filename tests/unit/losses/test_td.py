"""The TD functions on values worked out by hand."""

import math

import pytest
import torch

from relive.losses import huber, squared, td_error, td_slope, td_target, weighted_loss

# delta, huber, half square: worked out by hand
ELEMENTWISE = [
    (0.0, 0.0, 0.0),
    (0.5, 0.125, 0.125),
    (-1.0, 0.5, 0.5),
    (3.0, 2.5, 4.5),
    (-10.0, 9.5, 50.0),
]

# F04 with gamma = 0.9, reward 1, bootstrap 10: only termination stops the bootstrap
ENDS = [
    pytest.param(True, False, 1.0, id="terminated"),
    pytest.param(False, True, 10.0, id="truncated"),
    pytest.param(True, True, 1.0, id="both"),
    pytest.param(False, False, 10.0, id="neither"),
]


@pytest.mark.parametrize(("terminated", "truncated", "expected"), ENDS)
def test_only_termination_stops_the_bootstrap(terminated, truncated, expected):
    discount = torch.tensor([0.0 if terminated else 0.9])
    target = td_target(torch.ones(1), discount, torch.full((1,), 10.0))
    assert target.item() == pytest.approx(expected)


def test_the_discount_of_each_row_is_its_own():
    # windows of 3, 2 and 1 steps at gamma = 0.5, the last one terminated
    target = td_target(
        reward=torch.tensor([3.0, 4.0, 4.0]),
        discount=torch.tensor([0.125, 0.25, 0.0]),
        bootstrap=torch.tensor([8.0, 8.0, 8.0]),
    )
    assert target.tolist() == [4.0, 6.0, 4.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_broken_observation_after_the_end_does_not_reach_the_target(bad):
    target = td_target(torch.ones(2), torch.tensor([0.0, 0.5]), torch.tensor([bad, 2.0]))
    assert target.tolist() == [1.0, 2.0]


def test_the_td_error_is_target_minus_value():
    assert td_error(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 2.0])).tolist() == [1.0, -3.0]


@pytest.mark.parametrize(("delta", "as_huber", "as_square"), ELEMENTWISE)
def test_losses_of_one_error(delta, as_huber, as_square):
    assert huber(torch.tensor([delta])).item() == pytest.approx(as_huber)
    assert squared(torch.tensor([delta])).item() == pytest.approx(as_square)


@pytest.mark.parametrize(
    ("kind", "weight_on", "expected"),
    [
        ("huber", "loss", (1 * 0.5 + 0.1 * 2.5) / 2),
        ("huber", "td_error", (0.5 + 0.5 * 0.3**2) / 2),
        ("mse", "loss", (1 * 0.5 + 0.1 * 4.5) / 2),
        ("mse", "td_error", (0.5 + 0.5 * 0.3**2) / 2),
    ],
)
def test_the_weight_is_outside_the_loss_unless_asked_otherwise(kind, weight_on, expected):
    delta, weights = torch.tensor([1.0, -3.0]), torch.tensor([1.0, 0.1])
    assert weighted_loss(delta, weights, kind, weight_on).item() == pytest.approx(expected)


def test_the_gradient_of_a_row_is_its_weight_times_the_clipped_error():
    q = torch.zeros(3, requires_grad=True)
    delta = td_error(q, torch.tensor([0.5, 3.0, -3.0]))
    weighted_loss(delta, torch.tensor([1.0, 0.5, 0.1])).backward()
    assert q.grad is not None
    assert (3 * q.grad).tolist() == pytest.approx([-0.5, -0.5, 0.1])


def test_the_defaults_are_huber_with_the_weight_outside():
    delta, weights = torch.tensor([3.0]), torch.tensor([0.1])
    assert weighted_loss(delta, weights).item() == pytest.approx(0.25)


SLOPES = [
    # loss, where the weight enters, deltas, weights; -w l'(delta) / 4 or -w l'(w delta) / 4
    ("mse", "loss", [2.0, -3.0, 0.5, 0.0], [1.0, 0.5, 0.25, 1.0], [-0.5, 0.375, -0.03125, 0.0]),
    ("huber", "loss", [2.0, -3.0, 0.5, 0.0], [1.0, 0.5, 0.25, 1.0], [-0.25, 0.125, -0.03125, 0.0]),
    ("mse", "td_error", [2.0, -3.0, 0.5, 0.0], [1.0, 0.5, 0.25, 1.0], [-0.5, 0.1875, -1 / 128, 0]),
    ("huber", "td_error", [2.0, -3.0, 0.5, 0.0], [1.0, 0.5, 0.25, 1], [-0.25, 0.125, -1 / 128, 0]),
]


@pytest.mark.parametrize(("kind", "weight_on", "delta", "weights", "expected"), SLOPES)
def test_slopes_of_four_errors(kind, weight_on, delta, weights, expected):
    slope = td_slope(torch.tensor(delta), torch.tensor(weights), kind, weight_on)
    assert slope.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("weight_on", ["loss", "td_error"])
@pytest.mark.parametrize("kind", ["huber", "mse"])
def test_the_slope_is_the_derivative_of_the_loss_by_the_value(kind, weight_on):
    generator = torch.Generator().manual_seed(0)
    target, q = 2.0 * torch.randn(2, 100, generator=generator)
    weights = torch.rand(100, generator=generator)
    q.requires_grad_()
    loss = weighted_loss(td_error(q, target), weights, kind, weight_on)
    (expected,) = torch.autograd.grad(loss, q)
    slope = td_slope(td_error(q.detach(), target), weights, kind, weight_on)
    if weight_on == "loss":
        assert torch.equal(slope, expected)
    assert torch.allclose(slope, expected, rtol=1e-6, atol=0.0)
