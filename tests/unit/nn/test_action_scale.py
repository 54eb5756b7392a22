"""Between the box of an environment and [-1, 1]."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from relive.errors import ConfigError, InputError
from relive.nn import ActionScale

# low, high, an action, the same in [-1, 1]
BOXES = [
    pytest.param([-2.0], [2.0], [1.0], [0.5], id="symmetric"),
    pytest.param([0.0], [10.0], [2.5], [-0.5], id="one-sided"),
    pytest.param([-1.0, 5.0], [3.0, 6.0], [1.0, 6.0], [0.0, 1.0], id="lopsided"),
    pytest.param([[-3.0], [-1.0]], [[-1.0], [0.0]], [[-3.0], [-0.25]], [-1.0, 0.5], id="matrix"),
]


@pytest.mark.parametrize(("low", "high", "action", "unit"), BOXES)
def test_every_box_becomes_minus_one_to_one_and_back(low, high, action, unit):
    scale = ActionScale(low, high)
    actions, units = torch.tensor([action, low, high]), torch.tensor([unit])
    assert torch.allclose(scale.to_unit(actions)[:1], units)
    assert scale.to_unit(actions)[1].eq(-1.0).all()
    assert scale.to_unit(actions)[2].eq(1.0).all()
    assert torch.allclose(scale.from_unit(scale.to_unit(actions)), actions)
    assert (scale.shape, scale.size) == (np.shape(low), np.size(low))


def test_no_action_leaves_the_box_by_rounding():
    generator = torch.Generator().manual_seed(0)
    low = torch.randn(1000, generator=generator).numpy() * 3
    high = low + torch.rand(1000, generator=generator).numpy() + 1e-3
    scale = ActionScale(low, high)
    for end in (-1.0, 1.0):
        action = scale.from_unit(torch.full((1, 1000), end)).numpy()
        assert (action >= low).all()
        assert (action <= high).all()


def test_bounds_of_double_precision_are_rounded_inwards():
    low, high = np.array([-0.1, 0.2]), np.array([0.1, 0.7])
    scale = ActionScale(low, high)
    for end in (-1.0, 1.0):
        action = scale.from_unit(torch.full((1, 2), end)).double().numpy()
        assert (action >= low).all()
        assert (action <= high).all()
        assert action == pytest.approx(np.where(end < 0, low, high)[None], abs=1e-7)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        ([-1.0], [np.inf], "finite bounds"),
        ([-np.inf], [1.0], "finite bounds"),
        ([-3e38], [3e38], "finite bounds"),  # their difference is not
        ([2e38], [3e38], "finite bounds"),  # nor is their sum
        ([np.nan], [1.0], "finite bounds"),
        ([1.0], [1.0], "low < high"),
        ([2.0], [1.0], "low < high"),
        ([0.0], [1.0, 1.0], "of one shape"),
        ([], [], "of one shape"),
    ],
)
def test_a_box_that_cannot_be_scaled_is_refused(low, high, said):
    with pytest.raises(ConfigError, match=said):
        ActionScale(low, high)


def test_scales_of_the_same_box_are_equal():
    scale = ActionScale([0.0], [1.0])
    assert scale == scale.to("cpu") == ActionScale([0.0], [1.0])
    assert hash(scale) == hash(ActionScale([0.0], [1.0]))
    assert scale != ActionScale([0.0], [2.0])
    assert repr(scale) == "ActionScale([0.0], [1.0])"


def test_one_copy_of_a_vector_environment_has_the_box_of_the_environment():
    env = gym.make("Pendulum-v1")
    envs = gym.make_vec("Pendulum-v1", num_envs=3, vectorization_mode="sync")
    assert ActionScale.for_env(env) == ActionScale.for_env(envs) == ActionScale([-2.0], [2.0])
    with pytest.raises(ConfigError, match=r"the action space is Discrete\(2\)"):
        ActionScale.for_env(gym.make("CartPole-v1"))


def test_actions_of_another_box_are_refused():
    envs = gym.make_vec("Pendulum-v1", num_envs=3, vectorization_mode="sync")
    whole = ActionScale(envs.action_space.low, envs.action_space.high)
    with pytest.raises(InputError, match=r"shape \(1,\), the ActionScale \(3, 1\); .*for_env"):
        whole.to_unit(torch.zeros(6, 1))
    assert ActionScale([0.0, 0.0], [1.0, 1.0]).to_unit(torch.zeros(0, 2)).shape == (0, 2)


def test_one_number_may_be_an_action():
    scale = ActionScale(np.float32(-1), np.float32(3))
    assert (scale.shape, scale.size) == ((), 1)
    assert scale.to_unit(torch.tensor([1.0, 3.0])).tolist() == [[0.0], [1.0]]
    assert scale.from_unit(torch.tensor([[0.0], [1.0]])).tolist() == [1.0, 3.0]
    assert scale.array_from_unit(np.array([[0.0], [1.0]])).tolist() == [1.0, 3.0]


@pytest.mark.parametrize("bound", [1.0, 2.0])
def test_arrays_beyond_the_box_are_brought_to_its_edge(bound):
    found = ActionScale([-bound, -bound], [bound, bound]).array_from_unit(np.array([[1.5, -0.5]]))
    assert found.dtype == np.float32
    assert found.tolist() == [[bound, -bound / 2]]
