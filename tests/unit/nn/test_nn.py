"""Networks: shapes, first weights, and what the flat vector promises."""

import copy

import pytest
import torch
from torch import nn

from relive import Field
from relive.errors import ConfigError
from relive.nn import (
    MLP,
    Adam,
    ConvEncoder,
    DuelingHead,
    FlatParameters,
    QHead,
    encoder_for,
    linear,
)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


def batch_of(field, rows=5):
    if isinstance(field, dict):
        return {name: batch_of(entry, rows) for name, entry in field.items()}
    return torch.ones(rows, *field.shape, dtype=field.dtype)


# -- first weights -----------------------------------------------------------------------------


def test_building_networks_leaves_the_global_generator_alone(generator):
    before = torch.random.get_rng_state()
    encoder_for({"image": Field((84, 84, 3), torch.uint8), "speed": Field((2,))}, generator)
    DuelingHead(MLP(4, (8, 8), generator).out_features, 3, generator)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_one_seed_gives_one_network():
    first, again, other = (MLP(4, (8,), torch.Generator().manual_seed(s)) for s in (1, 1, 2))
    assert all(map(torch.equal, first.parameters(), again.parameters()))
    assert not any(map(torch.equal, first.parameters(), other.parameters()))


def test_first_weights_fill_plus_minus_one_over_the_root_of_the_fan_in(generator):
    layer = linear(100, 50, generator)
    for parameter in layer.parameters():
        assert parameter.abs().max() <= 0.1
        assert parameter.abs().max() > 0.09
    assert layer.weight.mean().abs() < 0.01


# -- parts -------------------------------------------------------------------------------------


def test_an_mlp_is_linear_layers_with_relus(generator):
    mlp = MLP(3, (4, 2), generator)
    first, second = mlp.layers
    x = torch.randn(6, 3, generator=generator)
    assert torch.allclose(mlp(x), second(first(x).relu()).relu())


def test_an_mlp_without_layers_is_the_identity(generator):
    x = torch.randn(6, 3, generator=generator)
    mlp = MLP(3, (), generator)
    assert mlp(x) is x
    assert mlp.out_features == 3


def test_a_dueling_head_adds_the_value_to_centred_advantages(generator):
    head = DuelingHead(2, 3, generator)
    with torch.no_grad():
        head.value.weight.copy_(torch.tensor([[1.0, 0.0]]))
        head.advantage.weight.copy_(torch.tensor([[0.0, 1.0], [0.0, 2.0], [0.0, 6.0]]))
        head.value.bias.zero_()
        head.advantage.bias.zero_()
    # value 10, advantages 1, 2, 6 with mean 3
    assert head(torch.tensor([[10.0, 1.0]])).tolist() == [[8.0, 9.0, 13.0]]


def test_a_q_head_has_one_value_an_action(generator):
    assert QHead(8, 3, generator)(torch.ones(5, 8)).shape == (5, 3)


# -- encoders ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "out_features"),
    [
        pytest.param(Field((4,)), 4, id="vector"),
        pytest.param(Field(()), 1, id="one float"),
        pytest.param(Field((3, 5)), 15, id="matrix"),
        pytest.param(Field((6,), torch.bool), 6, id="flags"),
        pytest.param(Field((4, 84, 84), torch.uint8), 3136, id="Atari, channels first"),
        pytest.param(Field((96, 96, 3), torch.uint8), 4096, id="pixels, channels last"),
        pytest.param(Field((10, 10, 4), torch.bool), 1024, id="MinAtar"),
        pytest.param(Field((2, 1, 8)), 16, id="too small to convolve"),
        pytest.param(Field((8, 1, 16)), 128, id="one row of many channels"),
        pytest.param(Field((3, 2, 4)), 24, id="two rows"),
        pytest.param(Field((3, 2, 3)), 18, id="two rows, as many channels as columns"),
        pytest.param(
            {"pos": Field((3,)), "hand": {"open": Field(()), "q": Field((2, 2))}}, 8, id="dict"
        ),
        pytest.param(
            {"image": Field((10, 10, 4)), "speed": Field((2,))}, 1026, id="image and vector"
        ),
    ],
)
def test_every_kind_of_observation_becomes_one_row_of_features(generator, field, out_features):
    encoder = encoder_for(field, generator)
    features = encoder(batch_of(field))
    assert features.shape == (5, out_features)
    assert encoder.out_features == out_features
    assert features.dtype == torch.float32


def test_the_entries_of_a_dict_are_found_by_name(generator):
    encoder = encoder_for({"a": Field((1,)), "b": Field((1,))}, generator)
    assert encoder({"b": torch.tensor([[2.0]]), "a": torch.tensor([[1.0]])}).tolist() == [
        [1.0, 2.0]
    ]


def test_channels_first_and_last_see_the_same_image(generator):
    images = torch.randint(0, 256, (2, 84, 84, 3), dtype=torch.uint8, generator=generator)
    last = ConvEncoder((84, 84, 3), torch.uint8, torch.Generator().manual_seed(0))
    first = ConvEncoder((3, 84, 84), torch.uint8, torch.Generator().manual_seed(0))
    assert torch.allclose(last(images), first(images.movedim(-1, 1)), atol=1e-6)


def test_bytes_are_divided_by_255(generator):
    as_bytes = ConvEncoder((10, 10, 1), torch.uint8, torch.Generator().manual_seed(0))
    as_floats = ConvEncoder((10, 10, 1), torch.float32, torch.Generator().manual_seed(0))
    white = torch.full((1, 10, 10, 1), 255, dtype=torch.uint8)
    assert torch.allclose(as_bytes(white), as_floats(torch.ones(1, 10, 10, 1)))


def test_a_cube_is_refused_because_its_channels_cannot_be_told(generator):
    with pytest.raises(ConfigError, match="which axis holds its channels"):
        encoder_for(Field((8, 8, 8), torch.uint8), generator)


def test_a_discrete_observation_is_refused_with_the_remedy(generator):
    with pytest.raises(ConfigError, match="FlattenObservation"):
        encoder_for(Field((), torch.int64), generator)


# -- the flat vector ---------------------------------------------------------------------------


@pytest.fixture
def net(generator):
    return nn.Sequential(linear(3, 5, generator), nn.Tanh(), linear(5, 2, generator))


def test_flattening_keeps_the_values_and_the_outputs(net, generator):
    x, before = torch.randn(4, 3, generator=generator), copy.deepcopy(net)
    FlatParameters(net)
    assert all(map(torch.equal, net.parameters(), before.parameters()))
    assert torch.equal(net(x), before(x))


def test_what_happens_to_the_vector_happens_to_the_module(net):
    flat = FlatParameters(net)
    with torch.no_grad():
        flat.vector.fill_(2.0)
    assert all(bool((parameter == 2.0).all()) for parameter in net.parameters())


def test_gradients_arrive_in_the_vector(net, generator):
    separate, x = copy.deepcopy(net), torch.randn(4, 3, generator=generator)
    flat = FlatParameters(net)
    net(x).sum().backward()
    separate(x).sum().backward()
    for ours, theirs in zip(net.parameters(), separate.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    norm = torch.stack([p.grad.norm() for p in separate.parameters()]).norm()
    assert flat.grad.norm() == pytest.approx(norm)
    flat.grad.zero_()
    assert not any(bool(parameter.grad.any()) for parameter in net.parameters())


def test_a_gradient_is_taken_in_place_of_the_last_or_added_to_it(net, generator):
    twin, x = copy.deepcopy(net), torch.randn(4, 3, generator=generator)
    other = nn.Parameter(torch.ones(2))
    flat = FlatParameters(net)
    twin(x).sum().backward()
    flat.grad.fill_(7.0)  # what an update before has left
    for times, add in ((1, False), (2, True), (1, False)):
        output = net(x) * other
        flat.take_grad([output], [torch.ones_like(output)], add=add)
        for mine, theirs in zip(net.parameters(), twin.parameters(), strict=True):
            assert torch.allclose(mine.grad, times * theirs.grad)
    assert other.grad is None


@pytest.mark.parametrize("max_norm", [0.5, 100.0, None])
def test_clipping_is_that_of_torch(net, generator, max_norm):
    separate, x = copy.deepcopy(net), torch.randn(4, 3, generator=generator)
    flat = FlatParameters(net)
    for module in (net, separate):
        module(x).square().sum().backward()
    limit = float("inf") if max_norm is None else max_norm
    norm = nn.utils.clip_grad_norm_(separate.parameters(), limit)
    assert flat.clip_grad(max_norm) == pytest.approx(norm.item())
    for ours, theirs in zip(net.parameters(), separate.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, rtol=1e-5)


@pytest.mark.parametrize("tau", [1.0, 0.25])
def test_a_step_towards_another_vector_is_a_weighted_mean(net, tau):
    other = copy.deepcopy(net)
    mine, theirs = FlatParameters(net), FlatParameters(other)
    with torch.no_grad():
        mine.vector.fill_(4.0)
        theirs.vector.fill_(8.0)
    mine.step_towards(theirs, tau)
    assert all(bool((p == 4.0 + 4.0 * tau).all()) for p in net.parameters())


def test_adam_is_that_of_torch_bit_for_bit(net, generator):
    twin = copy.deepcopy(net)
    mine, theirs = FlatParameters(net), FlatParameters(twin)
    ours, torchs = Adam(mine), torch.optim.Adam([theirs.vector], fused=True)
    for step in range(20):
        mine.grad.normal_(generator=generator)
        theirs.grad.copy_(mine.grad)
        torchs.param_groups[0]["lr"] = lr = 0.1 / (1 + step)
        ours.step(lr)
        torchs.step()
    assert torch.equal(mine.vector, theirs.vector)
    assert all(map(torch.equal, net.parameters(), twin.parameters()))
    assert ours.steps == 20
