"""Layers with noise in their weights, and the streams it comes from."""

import math

import pytest
import torch

from relive.nn import MLP, CategoricalHead, NetworkNoise, NoisyLinear, RandomStream, noisy


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


@pytest.fixture
def stream():
    return RandomStream(3)


def test_a_noisy_layer_is_linear_without_noise(generator, stream):
    layer, x = NoisyLinear(4, 3, generator), torch.randn(5, 4, generator=generator)
    mean = torch.nn.functional.linear(x, layer.weight, layer.bias)
    assert torch.equal(layer(x), mean)
    NetworkNoise(layer).draw(stream)
    assert not torch.allclose(layer(x), mean)
    NetworkNoise(layer).draw(None)
    assert torch.equal(layer(x), mean)


def test_the_noise_of_weights_is_the_outer_product_of_the_paper(generator, stream):
    layer, x = NoisyLinear(4, 3, generator), torch.randn(5, 4, generator=generator)
    NetworkNoise(layer).draw(stream)
    again = RandomStream(3)
    e_in, e_out = (e.sign() * e.abs().sqrt() for e in again.normal(7).split([4, 3]))
    weight = layer.weight + layer.weight_sigma * torch.outer(e_out, e_in)
    bias = layer.bias + layer.bias_sigma * e_out
    assert torch.allclose(layer(x), torch.nn.functional.linear(x, weight, bias), atol=1e-6)


def test_first_means_and_deviations_are_those_of_the_paper(generator):
    layer = NoisyLinear(100, 50, generator, sigma=0.5)
    assert layer.weight.abs().max() <= 0.1
    assert layer.weight.abs().max() > 0.09
    for sigma in (layer.weight_sigma, layer.bias_sigma):
        assert sigma.flatten().tolist() == pytest.approx([0.5 / math.sqrt(100)] * sigma.numel())


def test_means_and_deviations_learn(generator, stream):
    layer = NoisyLinear(4, 3, generator)
    NetworkNoise(layer).draw(stream)
    layer(torch.ones(2, 4)).square().sum().backward()
    assert all(bool(parameter.grad.any()) for parameter in layer.parameters())


def test_noise_is_drawn_for_every_layer_and_from_no_other_stream(generator, stream):
    before = torch.random.get_rng_state()
    mlp = MLP(4, (8, 8), generator, layer=noisy(0.1))
    head = CategoricalHead(8, 2, 5, generator, dueling=True, layer=noisy(0.1))
    NetworkNoise(torch.nn.ModuleList([mlp, head])).draw(stream)
    layers = [*mlp.layers, head.value, head.advantage]
    assert all(bool(layer.noise_in.any() and layer.noise_out.any()) for layer in layers)
    assert torch.equal(torch.random.get_rng_state(), before)


# -- streams -----------------------------------------------------------------------------------


def test_one_seed_gives_one_stream():
    first, again, other = (RandomStream(seed).normal(4, 2) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_stream_goes_on_where_it_was_saved(stream):
    stream.normal(5)
    saved = stream.state_dict()
    expected = stream.normal(3), stream.choose(2, 10)
    other = RandomStream(99)
    other.load_state_dict(saved)
    assert torch.equal(other.normal(3), expected[0])
    assert torch.equal(other.choose(2, 10), expected[1])


def test_on_another_kind_of_device_a_stream_goes_on_with_numbers_that_follow(stream):
    saved = {**stream.state_dict(), "kind": "cuda"}
    first, again = RandomStream(1), RandomStream(2)
    first.load_state_dict(saved)
    again.load_state_dict(saved)
    assert torch.equal(first.normal(3), again.normal(3))


def test_subsets_have_no_member_twice_and_are_equally_likely(stream):
    counts = torch.zeros(5)
    for _ in range(2000):
        chosen = stream.choose(2, 5)
        assert chosen.unique().numel() == 2
        counts[chosen] += 1
    # each in 2 of 5; 5 standard deviations of 21.9
    assert counts.tolist() == pytest.approx([800.0] * 5, abs=110)
