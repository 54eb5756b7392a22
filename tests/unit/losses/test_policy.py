"""Losses of policies, on values worked out by hand, against integrals and torch's own densities."""

import math

import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from relive.losses import (
    deterministic_policy_loss,
    deterministic_policy_slope,
    soft_policy_loss,
    soft_policy_slopes,
    soft_value,
    tanh_normal_log_prob,
    temperature_loss,
)

WEIGHTS = torch.tensor([1.0, 0.5])


def test_the_deterministic_loss_is_minus_the_weighted_mean_value():
    q = torch.tensor([3.0, 4.0], requires_grad=True)
    loss = deterministic_policy_loss(q, WEIGHTS)
    loss.backward()
    assert loss.item() == -2.5
    assert q.grad.tolist() == [-0.5, -0.25]


def test_slopes_are_the_derivatives_of_the_losses():
    generator = torch.Generator().manual_seed(0)
    q, log_prob = torch.randn(2, 100, generator=generator, requires_grad=True).unbind()
    weights, temperature = torch.rand(100, generator=generator), torch.tensor(0.3)
    (expected,) = torch.autograd.grad(deterministic_policy_loss(q, weights), q, retain_graph=True)
    assert torch.allclose(deterministic_policy_slope(weights), expected, rtol=1e-6, atol=0.0)
    loss = soft_policy_loss(q, log_prob, temperature, weights)
    expected = torch.autograd.grad(loss, (q, log_prob))
    for slope, of_loss in zip(soft_policy_slopes(temperature, weights), expected, strict=True):
        assert torch.allclose(slope, of_loss, rtol=1e-6, atol=0.0)


def test_entropy_is_worth_its_temperature():
    q, log_prob = torch.tensor([3.0, 4.0]), torch.tensor([-1.0, 2.0])
    temperature = torch.tensor(0.5)
    assert soft_value(q, log_prob, temperature).tolist() == [3.5, 3.0]
    assert soft_policy_loss(q, log_prob, temperature, WEIGHTS).item() == -2.5


@pytest.mark.parametrize(("log_prob", "rises"), [(2.0, True), (-3.0, False)])
def test_the_temperature_rises_while_the_entropy_is_below_its_target(log_prob, rises):
    log_temperature = torch.tensor(0.0, requires_grad=True)
    loss = temperature_loss(log_temperature.exp(), torch.full((2,), log_prob), -1.0, torch.ones(2))
    loss.backward()
    assert loss.item() == -(log_prob - 1.0)
    assert (log_temperature.grad < 0) == rises


def log_prob_of(before, mean, std):
    """By our formula, of actions tanh(before) `[B]` in one dimension."""
    noise = (before - mean) / std
    log_std = torch.full_like(before, math.log(std))
    return tanh_normal_log_prob(noise[:, None], log_std[:, None], before[:, None])


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.7, 0.3), (-1.5, 0.8), (0.2, 3.0)])
def test_the_density_of_a_squashed_normal_integrates_to_1(mean, std):
    # over u with a = tanh(u): the integral of pi(a) (1 - tanh^2 u) du
    u = torch.linspace(mean - 9 * std, mean + 9 * std, 20_001, dtype=torch.float64)
    density = log_prob_of(u, mean, std).exp() / u.cosh() ** 2
    assert torch.trapezoid(density, u).item() == pytest.approx(1.0, abs=1e-6)


def test_the_density_is_that_of_torch():
    generator = torch.Generator().manual_seed(0)
    mean, log_std, noise = torch.randn(3, 64, 5, generator=generator, dtype=torch.float64)
    log_std = 0.5 * log_std
    before = mean + log_std.exp() * noise
    theirs = TransformedDistribution(
        Independent(Normal(mean, log_std.exp()), 1), TanhTransform(cache_size=1)
    )
    action = theirs.transforms[0](before)
    ours = tanh_normal_log_prob(noise, log_std, before)
    assert torch.allclose(ours, theirs.log_prob(action), atol=1e-9)


@pytest.mark.parametrize("before", [-100.0, -20.0, 20.0, 100.0])
def test_the_density_and_its_gradient_are_finite_where_tanh_rounds_to_1(before):
    mean = torch.tensor([[before]], requires_grad=True)
    noise, log_std = torch.tensor([[0.5]]), torch.tensor([[0.0]])
    log_prob = tanh_normal_log_prob(noise, log_std, mean + noise)
    log_prob.sum().backward()
    # log(1 - tanh^2 u) is 2 (log 2 - |u|) far out
    far = 2 * (math.log(2) - abs(before + 0.5))
    assert log_prob.item() == pytest.approx(-0.125 - 0.5 * math.log(2 * math.pi) - far, rel=1e-5)
    assert mean.grad.item() == pytest.approx(math.copysign(2.0, before), rel=1e-5)
