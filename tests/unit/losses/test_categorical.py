"""Distributions over atoms, on values worked out by hand."""

import math

import pytest
import torch

from relive.losses import cross_entropy, expected_value, kl_divergence, project

SUPPORT = torch.tensor([-1.0, 0.0, 1.0, 2.0])
EVEN = [0.25, 0.25, 0.25, 0.25]

# probabilities, reward, discount, projected
PROJECTED = [
    pytest.param([0.1, 0.2, 0.3, 0.4], 0.0, 1.0, [0.1, 0.2, 0.3, 0.4], id="nothing moves"),
    pytest.param(EVEN, 0.5, 1.0, [0.125, 0.25, 0.25, 0.375], id="half an atom up"),
    pytest.param([0.1, 0.2, 0.3, 0.4], 1.0, 1.0, [0.0, 0.1, 0.2, 0.7], id="one atom up"),
    pytest.param([0.0, 0.0, 0.0, 1.0], 0.25, 0.5, [0.0, 0.0, 0.75, 0.25], id="between two atoms"),
    pytest.param([1.0, 0.0, 0.0, 0.0], 0.0, 0.5, [0.5, 0.5, 0.0, 0.0], id="halved"),
    pytest.param(EVEN, 9.0, 0.9, [0.0, 0.0, 0.0, 1.0], id="above the support"),
    pytest.param(EVEN, -9.0, 0.9, [1.0, 0.0, 0.0, 0.0], id="below the support"),
    pytest.param(EVEN, 1.0, 0.0, [0.0, 0.0, 1.0, 0.0], id="terminated on an atom"),
    pytest.param(EVEN, 1.75, 0.0, [0.0, 0.0, 0.25, 0.75], id="terminated between atoms"),
    pytest.param([math.nan] * 4, 1.0, 0.0, [0.0, 0.0, 1.0, 0.0], id="a broken end"),
]


@pytest.mark.parametrize(("probs", "reward", "discount", "expected"), PROJECTED)
def test_a_distribution_moves_and_is_shared_by_the_nearest_atoms(probs, reward, discount, expected):
    moved = project(
        torch.tensor([probs]), SUPPORT, torch.tensor([reward]), torch.tensor([discount])
    )
    assert moved[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_each_row_has_its_own_discount():
    rows = project(
        torch.tensor([[0.0, 0.0, 0.0, 1.0]] * 3),
        SUPPORT,
        torch.zeros(3),
        torch.tensor([1.0, 0.5, 0.0]),
    )
    assert rows.argmax(1).tolist() == [3, 2, 1]  # at 2, 1 and 0


def test_no_mass_is_lost_wherever_it_goes():
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(1000, 51, generator=generator).softmax(1)
    support = torch.linspace(-10.0, 10.0, 51)
    reward = torch.randn(1000, generator=generator) * 8
    reward[::3] = reward[::3].round()  # many of them on an atom
    discount = torch.rand(1000, generator=generator)
    discount[::5] = 0.0
    moved = project(probs, support, reward, discount)
    assert torch.allclose(moved.sum(1), torch.ones(1000), atol=1e-5)
    assert moved.min() >= 0


def test_the_mean_moves_as_the_return_does_inside_of_the_support():
    generator = torch.Generator().manual_seed(0)
    probs = torch.rand(200, 51, generator=generator).softmax(1)
    support = torch.linspace(-10.0, 10.0, 51)
    reward = torch.rand(200, generator=generator)
    moved = project(probs, support, reward, torch.full((200,), 0.5))
    expected = reward + 0.5 * expected_value(probs, support)
    assert torch.allclose(expected_value(moved, support), expected, atol=1e-5)


def test_the_cross_entropy_of_a_row():
    log_probs = torch.tensor([[0.5, 0.5], [0.25, 0.75]]).log()
    target = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    expected = [math.log(2), -0.5 * math.log(0.25) - 0.5 * math.log(0.75)]
    assert cross_entropy(log_probs, target).tolist() == pytest.approx(expected)


def test_the_divergence_is_0_where_the_prediction_is_the_target_and_never_below():
    target = torch.tensor([[0.3, 0.7], [1.0, 0.0], [0.5, 0.5]])
    predicted = torch.tensor([[0.3, 0.7], [0.25, 0.75], [0.25, 0.75]])
    divergence = kl_divergence(cross_entropy(predicted.log(), target), target)
    expected = [0.0, math.log(4), 0.5 * math.log(2) + 0.5 * math.log(2 / 3)]
    assert divergence.tolist() == pytest.approx(expected, abs=1e-6)
    assert divergence.min() >= 0


def test_the_gradient_of_the_logits_is_prediction_minus_target():
    logits = torch.tensor([[0.0, 1.0, -1.0]], requires_grad=True)
    target = torch.tensor([[0.2, 0.5, 0.3]])
    cross_entropy(logits.log_softmax(1), target).sum().backward()
    assert torch.allclose(logits.grad, logits.detach().softmax(1) - target, atol=1e-6)
