"""Critics and policies by hand: the bits of autograd, through the same calls."""

import copy
import math

import pytest
import torch

from relive import Field
from relive.errors import InputError
from relive.nn import (
    CriticBackprop,
    Critics,
    DeterministicPolicy,
    FlatParameters,
    GaussianPolicy,
    PolicyBackprop,
    products,
)

B, D = 5, 2


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(3)


def pair(generator, *, members=3, hidden=(8, 6), obs=(4,), layer_norm=False):
    """The same critics twice: by hand, and by autograd."""
    critics = Critics(Field(obs), D, members, hidden, generator, layer_norm=layer_norm)
    targets = Critics(Field(obs), D, members, hidden, generator, layer_norm=layer_norm)
    with torch.no_grad():
        for norm in [*(critics.members.norms or ()), *(targets.members.norms or ())]:
            norm.weight.uniform_(0.5, 2.0, generator=generator)
            norm.bias.uniform_(-1.0, 1.0, generator=generator)
    sides = []
    for by_hand in (True, False):
        mine = copy.deepcopy(critics)
        parameters = FlatParameters(mine)
        backprop = CriticBackprop(mine, parameters, targets)
        assert backprop.by_hand
        backprop.by_hand = by_hand
        sides.append((backprop, parameters, mine))
    return sides


@pytest.fixture
def in_parts(monkeypatch):
    """Layers so wide that some processors add up a product in parts: the bias goes in first there.

    `test_a_bias_on_the_way_through_the_relu_is_the_same_sum` has what is left out.
    """
    return lambda hidden: 256 in hidden and monkeypatch.setattr(products, "WHOLE", 1 << 20)


def rows(generator, obs=(4,), size=B):
    return torch.randn(size, *obs, generator=generator), torch.randn(size, D, generator=generator)


@pytest.mark.parametrize("hidden", [(), (8,), (8, 6), (8, 6, 7), (64, 1, 128), (256, 256)])
@pytest.mark.parametrize("members", [1, 3])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_values_and_gradients_are_those_of_autograd_bit_for_bit(
    generator, hidden, members, layer_norm, in_parts
):
    in_parts(hidden)
    sides = pair(generator, members=members, hidden=hidden, layer_norm=layer_norm)
    for size in (B, B, 2 * B, B):  # memory is made anew for other rows
        obs, action = rows(generator, size=size)
        slope = torch.randn(members, size, generator=generator)
        found = []
        for backprop, parameters, critics in sides:
            q = backprop.forward(obs, action)
            assert torch.equal(q, critics(obs, action))
            backprop.take_grad([q], [slope])
            found.append(parameters.grad.clone())
        assert found[0].any()
        assert torch.equal(*found)


@pytest.mark.parametrize("members", [(), (3,)])
@pytest.mark.parametrize("width", [64, 256, 1024])
def test_a_bias_on_the_way_through_the_relu_is_the_same_sum(generator, members, width):
    x, weight, bias = (
        torch.randn(*members, *shape, generator=generator)
        for shape in ((B, width), (width, width), (1, width))
    )
    bias = bias if members else bias[0]
    found = products.rectified(x, weight, bias)
    assert torch.equal(found, (x @ weight + bias).relu())
    exact = (x.double() @ weight.double() + bias.double()).relu()
    assert (found - exact).norm() < 1e-6 * exact.norm()


def test_gradients_of_wide_layers_are_as_near_to_float64_as_those_of_autograd(generator):
    # what a product adds up in parts may have other last bits
    sides = pair(generator, hidden=(1024, 1024))
    obs, action = rows(generator, size=256)
    slope = torch.randn(3, 256, generator=generator)
    exact = copy.deepcopy(sides[0][2]).double()
    (exact(obs.double(), action.double()) * slope).sum().backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in exact.parameters()])
    for backprop, _, critics in sides:
        backprop.take_grad([backprop.forward(obs, action)], [slope])
        found = torch.cat([parameter.grad.flatten() for parameter in critics.parameters()])
        assert (found - expected).norm() < 1e-6 * expected.norm()


@pytest.mark.parametrize("hidden", [(8, 6), (64, 64), (72, 72)])
def test_what_is_no_number_is_not_lost_on_the_way(generator, hidden):
    (backprop, *_), _ = pair(generator, hidden=hidden)
    policy = DeterministicPolicy(Field((4,)), D, hidden, generator)
    obs, action = rows(generator)
    obs[1] = math.nan
    of_policy = PolicyBackprop(policy, FlatParameters(policy)).forward(obs)
    for found in (backprop.forward(obs, action).T, backprop.target(obs, action).T, of_policy):
        assert found.isnan().all(1).tolist() == [False, True, False, False, False]


@pytest.fixture(params=[3, 5, 7])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def test_nan_is_seen_where_threads_part_a_layer_within_a_row(generator, threads):
    (backprop, _, critics), _ = pair(generator, hidden=(256, 256))
    obs, action = rows(generator, size=1000)
    parted = torch.arange(0, 1000, 7)
    obs[parted] = math.nan
    seen = backprop.forward(obs, action).isnan().all(0)
    assert torch.equal(seen.nonzero().flatten(), parted)
    with torch.no_grad():
        critics.members.layers[0].bias[:, :, -1] = math.nan
    assert backprop.forward(*rows(generator, size=1000)).isnan().sum(1).min() > 900


@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_gradient_can_be_added_to_the_last(generator, layer_norm):
    sides = pair(generator, layer_norm=layer_norm)
    batches = [(*rows(generator), torch.randn(3, B, generator=generator)) for _ in range(3)]
    for backprop, _, _ in sides:
        for number, (obs, action, slope) in enumerate(batches):
            backprop.take_grad([backprop.forward(obs, action)], [slope], add=number > 0)
    assert torch.equal(sides[0][1].grad, sides[1][1].grad)


@pytest.mark.parametrize("members", [None, 1, 2])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_a_policy_gets_the_gradient_of_its_action(generator, members, layer_norm):
    found = []
    obs, action = rows(generator)
    slope = torch.randn(members or 3, B, generator=generator)
    for backprop, parameters, _ in pair(generator, layer_norm=layer_norm):
        parameters.grad.fill_(7.0)
        weight = torch.full((D,), 0.5, requires_grad=True)
        acted = action * weight
        q = backprop.forward(obs, acted, members)
        output, slopes = backprop.to_action(q, slope, acted)
        found.append(torch.autograd.grad(output, weight, slopes)[0])
        assert (parameters.grad == 7.0).all()  # critics do not learn from it
    assert found[0].any()
    assert torch.equal(*found)


def test_values_of_the_targets_have_no_graph_and_leave_those_given_before_alone(generator):
    for backprop, _, _ in pair(generator):
        obs, action = rows(generator)
        first = backprop.target(obs, action)
        kept = first.clone()
        backprop.forward(*rows(generator))
        assert torch.equal(first, kept)
        assert torch.equal(first, backprop._targets(obs, action))
        assert not first.requires_grad


def test_what_was_forgotten_is_not_gone_back_from(generator):
    (backprop, *_), _ = pair(generator)
    q = backprop.forward(*rows(generator))
    backprop.target(*rows(generator))  # in the same memory
    with pytest.raises(InputError, match="forward"):
        backprop.take_grad([q], [torch.ones_like(q)])
    with pytest.raises(InputError, match="forward"):
        backprop.to_action(q, torch.ones_like(q), torch.zeros(B, D))
    q = backprop.forward(*rows(generator))
    backprop.take_grad([q], [torch.ones_like(q)])
    with pytest.raises(InputError, match="forward"):
        backprop.take_grad([q], [torch.ones_like(q)])


def test_other_values_than_the_last_of_all_critics_are_not_gone_back_from(generator):
    (backprop, *_), _ = pair(generator)
    old = backprop.forward(*rows(generator))
    backprop.forward(*rows(generator))
    first = backprop.forward(*rows(generator), members=1)
    with pytest.raises(InputError, match="given the values of some"):
        backprop.take_grad([first], [torch.ones_like(first)])
    with pytest.raises(InputError, match="the last values"):
        backprop.take_grad([old], [torch.ones_like(old)])
    with pytest.raises(InputError, match="the last values"):
        backprop.to_action(old, torch.ones_like(old), torch.zeros(B, D))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("chosen", [[0], [2, 0], [1, 3, 2]])
def test_targets_can_be_those_of_some_critics(generator, layer_norm, chosen):
    obs, action = rows(generator)
    for backprop, _, _ in pair(generator, members=4, layer_norm=layer_norm):
        everyone = backprop.target(obs, action)
        some = backprop.target(obs, action, torch.tensor(chosen))
        assert torch.allclose(some, everyone[chosen], atol=1e-6)
        assert torch.equal(some, backprop._targets(obs, action, torch.tensor(chosen)))
        assert not some.requires_grad


def test_what_is_more_than_linear_layers_goes_by_autograd(generator):
    obs = (3, 36, 36)
    critics = Critics(Field(obs), D, 2, (8,), generator)
    parameters = FlatParameters(critics)
    backprop = CriticBackprop(critics, parameters, copy.deepcopy(critics))
    assert not backprop.by_hand
    q = backprop.forward(*rows(generator, obs))
    backprop.take_grad([q], [torch.ones_like(q)])
    assert parameters.grad.any()


# -- policies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DeterministicPolicy, GaussianPolicy])
@pytest.mark.parametrize("hidden", [(), (8,), (8, 6), (256, 256)])
def test_a_policy_by_hand_is_that_of_autograd_bit_for_bit(generator, kind, hidden, in_parts):
    in_parts(hidden)
    policy = kind(Field((4,)), D, hidden, generator)
    found = []
    batches = [torch.randn(size, 4, generator=generator) for size in (B, B, 2 * B, B)]
    slopes = [torch.randn(2, len(obs), D, generator=generator) for obs in batches]
    for by_hand in (True, False):
        mine = copy.deepcopy(policy)
        parameters = FlatParameters(mine)
        backprop = PolicyBackprop(mine, parameters)
        assert backprop.by_hand
        backprop.by_hand, grads = by_hand, []
        for obs, slope in zip(batches, slopes, strict=True):
            outputs = as_pair(backprop.forward(obs))
            assert all(map(torch.equal, outputs, as_pair(mine(obs))))
            backprop.take_grad(outputs, [*slope[: len(outputs)]])
            grads.append(parameters.grad.clone())
        for number, (obs, slope) in enumerate(zip(batches, slopes, strict=True)):
            outputs = as_pair(backprop.forward(obs))
            backprop.take_grad(outputs, [*slope[: len(outputs)]], add=number > 0)
        found.append((grads, parameters.grad))
    assert all(map(torch.equal, *(grads for grads, _ in found)))
    assert torch.equal(*(total for _, total in found))
    assert found[0][1].any()


@pytest.mark.parametrize("kind", [DeterministicPolicy, GaussianPolicy])
def test_the_target_of_a_policy_has_no_graph_and_is_the_policy_where_there_is_no_other(
    generator, kind
):
    policy, other = (kind(Field((4,)), D, (8, 64), generator) for _ in range(2))
    obs = torch.randn(B, 4, generator=generator)
    for given, asked in ((other, other), (None, policy)):
        backprop = PolicyBackprop(policy, FlatParameters(policy), given)
        for by_hand in (True, False):
            backprop.by_hand = by_hand
            outputs = as_pair(backprop.target(obs))
            assert all(map(torch.equal, outputs, as_pair(asked(obs))))
            assert not any(output.requires_grad for output in outputs)


def test_a_policy_learns_by_what_came_of_its_actions_too(generator):
    policy = DeterministicPolicy(Field((4,)), D, (8,), generator)
    obs, found = torch.randn(B, 4, generator=generator), []
    for by_hand in (True, False):
        mine = copy.deepcopy(policy)
        parameters = FlatParameters(mine)
        backprop = PolicyBackprop(mine, parameters)
        backprop.by_hand = by_hand
        backprop.take_grad([backprop.forward(obs).square()], [torch.ones(B, D)])
        found.append(parameters.grad)
    assert torch.equal(*found)


def as_pair(given):
    return given if isinstance(given, tuple) else (given,)


def test_policies_of_images_go_by_autograd(generator):
    policy = DeterministicPolicy(Field((3, 36, 36)), D, (8,), generator)
    parameters = FlatParameters(policy)
    backprop = PolicyBackprop(policy, parameters)
    assert not backprop.by_hand
    action = backprop.forward(torch.rand(B, 3, 36, 36, generator=generator))
    backprop.take_grad([action], [torch.ones_like(action)])
    assert parameters.grad.any()
