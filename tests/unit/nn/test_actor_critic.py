"""Policies, critics and the ensembles they are made of."""

import pytest
import torch

from relive import Field
from relive.nn import (
    MLP,
    CategoricalHead,
    Critics,
    DeterministicPolicy,
    EnsembleMLP,
    GaussianPolicy,
    Temperature,
)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


def test_normalised_layers_are_those_of_torch(generator):
    mlp = MLP(3, (4, 2), generator, layer_norm=True)
    x = torch.randn(6, 3, generator=generator)
    expected = x
    for layer in mlp.layers:
        expected = torch.nn.functional.layer_norm(layer(expected), (len(layer.bias),)).relu()
    assert torch.allclose(mlp(x), expected, atol=1e-6)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_members_of_an_ensemble_are_networks_that_know_nothing_of_each_other(generator, layer_norm):
    ensemble = EnsembleMLP(3, 5, (8, 4), 2, generator, layer_norm=layer_norm)
    x = torch.randn(6, 5, generator=generator)
    together = ensemble(x)
    assert together.shape == (3, 6, 2)
    for member in range(3):
        alone = x
        for place, layer in enumerate(ensemble.layers):
            alone = alone @ layer.weight[member] + layer.bias[member]
            if place < 2:
                if layer_norm:
                    alone = torch.nn.functional.layer_norm(alone, alone.shape[-1:])
                alone = alone.relu()
        assert torch.allclose(together[member], alone, atol=1e-5)
    together[1].sum().backward()
    for parameter in ensemble.parameters():
        assert not parameter.grad[[0, 2]].any()
        assert parameter.grad[1].any()


def test_members_begin_apart_within_plus_minus_one_over_the_root_of_the_fan_in(generator):
    first = EnsembleMLP(2, 100, (50,), 1, generator).layers[0].weight
    assert not torch.equal(first[0], first[1])
    assert 0.09 < first.abs().max() <= 0.1


def test_a_categorical_head_gives_logits_of_each_action(generator):
    head = CategoricalHead(8, 3, 5, generator)
    x = torch.randn(6, 8, generator=generator)
    assert torch.equal(head(x), head.advantage(x).view(6, 3, 5))


def test_a_dueling_categorical_head_adds_centred_advantages_atom_by_atom(generator):
    head = CategoricalHead(8, 3, 5, generator, dueling=True)
    x = torch.randn(6, 8, generator=generator)
    assert torch.allclose(head(x).mean(1), head.value(x), atol=1e-6)
    advantages = head.advantage(x).view(6, 3, 5)
    between = advantages[:, 0] - advantages[:, 1]
    assert torch.allclose(head(x)[:, 0] - head(x)[:, 1], between, atol=1e-5)


OBSERVATIONS = [Field((4,)), {"eye": Field((10, 10, 2), torch.bool), "hand": Field((2, 2))}]


def rows_of(field):
    if isinstance(field, dict):
        return {name: rows_of(entry) for name, entry in field.items()}
    return torch.ones(5, *field.shape, dtype=field.dtype)


@pytest.mark.parametrize("obs", OBSERVATIONS, ids=["vector", "dict"])
def test_policies_and_critics_take_every_kind_of_observation(generator, obs):
    rows = rows_of(obs)
    action = DeterministicPolicy(obs, 3, (8,), generator)(rows)
    assert action.shape == (5, 3)
    assert action.abs().max() <= 1
    mean, log_std = GaussianPolicy(obs, 3, (8,), generator)(rows)
    assert mean.shape == log_std.shape == (5, 3)
    assert Critics(obs, 3, 4, (8,), generator)(rows, action).shape == (4, 5)


@pytest.mark.parametrize("layer_norm", [False, True])
def test_critics_can_be_asked_without_the_last_ones(generator, layer_norm):
    critics = Critics(Field((4,)), 2, 3, (8,), generator, layer_norm=layer_norm)
    obs, action = torch.randn(5, 4, generator=generator), torch.randn(5, 2, generator=generator)
    first = critics(obs, action, members=1)
    assert torch.allclose(first, critics(obs, action)[:1])
    first.sum().backward()
    for parameter in critics.parameters():
        assert parameter.grad[0].any()
        assert not parameter.grad[1:].any()


def test_the_deviation_of_a_policy_stays_between_its_bounds(generator):
    policy = GaussianPolicy(Field((4,)), 1, (8,), generator)
    for bias, expected in ((-99.0, -20.0), (99.0, 2.0)):
        with torch.no_grad():
            policy.head.bias.fill_(bias)
        assert policy(torch.ones(2, 4))[1].tolist() == [[expected]] * 2


def test_a_temperature_is_learned_as_its_logarithm():
    temperature = Temperature(0.5)
    assert temperature().item() == pytest.approx(0.5)
    temperature().backward()
    assert temperature.log.grad.item() == pytest.approx(0.5)
