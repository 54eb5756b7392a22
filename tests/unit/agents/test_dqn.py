"""DQN: its targets worked out by hand, its settings, its randomness."""

import dataclasses
import re

import numpy as np
import pytest
import torch

from relive import Field, Proportional, ReplayBuffer
from relive.agents import DQN, DQNConfig
from relive.errors import ConfigError
from tests.unit.agents.batches import filled_buffer, values

SMALL = DQNConfig(hidden=(16,), lr=1e-3)


def make(config=SMALL, obs=None, num_actions=3, **settings):
    return DQN(obs or Field((4,)), num_actions, config, **settings)


def constant(network, action_values):
    """Makes a network give the same action values for every observation."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        network.head.value.bias.copy_(torch.tensor(action_values))


def one_row(reward=1.0, action=0, terminated=False, truncated=False, gamma=0.9):
    fields = {"obs": Field((1,)), "action": Field((), torch.int64)}
    buffer = ReplayBuffer(4, fields, gamma=gamma)
    buffer.add(
        obs=[0.0],
        action=action,
        reward=reward,
        next_obs=[0.0],
        terminated=terminated,
        truncated=truncated,
    )
    return buffer.sample(1)


# -- targets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(
    ("terminated", "truncated", "target"),
    [
        pytest.param(True, False, 1.0, id="terminated"),
        pytest.param(False, True, 10.0, id="truncated"),
        pytest.param(True, True, 1.0, id="both"),
        pytest.param(False, False, 10.0, id="neither"),
    ],
)
def test_f04_only_termination_stops_the_bootstrap(double, terminated, truncated, target):
    agent = make(DQNConfig(double=double), Field((1,)), 2)
    constant(agent.target, [10.0, 10.0])
    constant(agent.online, [0.0, 0.0])
    result = agent.update(one_row(terminated=terminated, truncated=truncated))
    assert result.td_error.item() == pytest.approx(target)


@pytest.mark.parametrize(
    ("double", "target"),
    [
        pytest.param(False, 1 + 0.9 * 5, id="the target network picks and values"),
        pytest.param(True, 1 + 0.9 * 2, id="the online network picks, the target network values"),
    ],
)
def test_who_picks_the_next_action(double, target):
    agent = make(DQNConfig(double=double), Field((1,)), 2)
    constant(agent.target, [2.0, 5.0])
    constant(agent.online, [1.0, 0.0])
    result = agent.update(one_row(action=1))
    assert result.td_error.item() == pytest.approx(target)


def test_f29_priorities_are_the_raw_errors_whatever_weights_and_loss_do():
    fields = {"obs": Field((1,)), "action": Field((), torch.int64)}
    buffer = ReplayBuffer(2, fields, sampler=Proportional(alpha=1.0, eps=0.0))
    for reward in (1.0, -3.0):
        buffer.add(
            obs=[0.0], action=0, reward=reward, next_obs=[0.0], terminated=True, truncated=False
        )
    agent = make(SMALL, Field((1,)), 2)
    constant(agent.online, [0.0, 0.0])
    batch = buffer.rows([0, 1])
    batch.weights.copy_(torch.tensor([1.0, 0.1]))
    result = agent.update(batch)
    assert result.td_error.tolist() == pytest.approx([1.0, 3.0])
    assert result.metrics["loss"].item() == pytest.approx((0.5 + 0.1 * 2.5) / 2)
    buffer.update_priorities(batch.ids, result.td_error)
    assert buffer.priorities([0, 1]).tolist() == pytest.approx([1.0, 3.0])


# -- settings ----------------------------------------------------------------------------------

OBSERVATIONS = [
    pytest.param(Field((4,)), id="vector"),
    pytest.param(Field((10, 10, 4), torch.bool), id="MinAtar"),
    pytest.param(Field((3, 40, 40), torch.uint8), id="image"),
    pytest.param({"pos": Field((3,)), "eye": Field((10, 10, 1), torch.uint8)}, id="dict"),
]


@pytest.mark.parametrize("obs", OBSERVATIONS)
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("sampler", [None, Proportional()], ids=["uniform", "proportional"])
def test_every_kind_of_observation_trains_and_acts(obs, dueling, sampler):
    buffer = filled_buffer(obs=obs, **({"sampler": sampler} if sampler else {}))
    agent = make(dataclasses.replace(SMALL, dueling=dueling), obs)
    result = agent.update(buffer.sample(16))
    assert result.td_error.shape == (16,)
    assert all(value.shape == () and value.isfinite() for value in result.metrics.values())
    seen = values(obs, 2, torch.Generator().manual_seed(0))
    as_numpy = (
        {name: entry.numpy() for name, entry in seen.items()}
        if isinstance(obs, dict)
        else seen.numpy()
    )
    action = agent.act_greedy(as_numpy)
    assert action.shape == (2,)
    assert action.dtype == np.int64


@pytest.mark.parametrize(
    "change",
    [
        {"loss": "mse"},
        {"weight_on": "td_error"},
        {"max_grad_norm": 1e-3},
        {"lr": 1e-3},
        {"tau": 0.5},
        {"target_period": 3},
        {"double": False},
        {"dueling": True},
        {"hidden": (16, 16)},
        {"lr_end": 0.0},
    ],
    ids=lambda change: " ".join(change),
)
def test_no_setting_is_accepted_and_ignored(change):
    def weights_after(config):
        buffer = filled_buffer(sampler=Proportional())
        agent = make(config, planned_updates=20)
        for _ in range(20):
            batch = buffer.sample(32)
            result = agent.update(batch)
            buffer.update_priorities(batch.ids, result.td_error)
        return agent.online.state_dict()

    base = dataclasses.replace(SMALL, lr=1e-2, target_period=5)
    plain, changed = weights_after(base), weights_after(dataclasses.replace(base, **change))
    assert plain.keys() != changed.keys() or not all(
        torch.equal(plain[name], changed[name]) for name in plain
    )


@pytest.mark.parametrize(
    "bad",
    [
        {"lr": 0.0},
        {"lr_end": -1.0},
        {"tau": 0.0},
        {"tau": 1.5},
        {"target_period": 0},
        {"loss": "l1"},
        {"weight_on": "both"},
        {"max_grad_norm": 0.0},
        {"epsilon_start": 1.5},
        {"epsilon_end": -0.1},
        {"epsilon_fraction": 0.0},
        {"hidden": (0,)},
    ],
    ids=str,
)
def test_settings_outside_their_range_are_refused_by_name(bad):
    (name, value), *_ = bad.items()
    with pytest.raises(ConfigError, match=rf"agent\.{name} .*{re.escape(repr(value))}"):
        DQNConfig(**bad)


def test_an_agent_without_actions_is_refused():
    with pytest.raises(ConfigError, match="at least one action"):
        make(num_actions=0)


def test_the_step_size_falls_in_a_straight_line_over_the_planned_updates():
    agent = make(DQNConfig(lr=0.4, lr_end=0.0), planned_updates=4)
    assert [agent.learning_rate.schedule(update) for update in (0, 1, 2, 4, 9)] == pytest.approx(
        [0.4, 0.3, 0.2, 0.0, 0.0]
    )


# -- target network ----------------------------------------------------------------------------


def test_a_hard_target_is_copied_every_period_and_rests_between():
    buffer, agent = filled_buffer(), make(dataclasses.replace(SMALL, target_period=3))
    start = agent.target_parameters.vector.clone()
    for update in range(1, 7):
        agent.update(buffer.sample(16))
        is_copy = torch.equal(agent.target_parameters.vector, agent.parameters.vector)
        assert is_copy == (update % 3 == 0)
        if update < 3:
            assert torch.equal(agent.target_parameters.vector, start)


def test_a_polyak_target_moves_a_part_of_the_way():
    buffer = filled_buffer()
    agent = make(dataclasses.replace(SMALL, target_period=1, tau=0.25))
    before = agent.target_parameters.vector.clone()
    agent.update(buffer.sample(16))
    expected = 0.75 * before + 0.25 * agent.parameters.vector
    assert torch.allclose(agent.target_parameters.vector, expected, atol=1e-7)


def test_the_target_network_is_not_trained():
    agent = make()
    agent.update(filled_buffer().sample(16))
    assert not agent.target_parameters.grad.any()
    assert agent.parameters.grad.any()


# -- acting ------------------------------------------------------------------------------------


def test_a_greedy_action_has_the_highest_value():
    agent = make(obs=Field((1,)))
    constant(agent.online, [0.0, 2.0, 1.0])
    assert agent.act_greedy(np.zeros((4, 1), np.float32)).tolist() == [1, 1, 1, 1]
    assert agent.act(np.zeros((4, 1), np.float32), epsilon=0.0).tolist() == [1, 1, 1, 1]


def test_each_environment_explores_by_itself():
    agent = make(obs=Field((1,)))
    constant(agent.online, [0.0, 2.0, 1.0])
    actions = agent.act(np.zeros((30_000, 1), np.float32), epsilon=0.3)
    shares = np.bincount(actions) / len(actions)
    # 0.1 for each action by chance and 0.7 for the best; 5 standard deviations of 0.0027
    assert shares == pytest.approx([0.1, 0.8, 0.1], abs=0.0135)


def test_observations_of_double_precision_are_welcome():
    assert make().act_greedy(np.zeros((2, 4))).shape == (2,)


def test_one_seed_gives_one_course_of_training():
    def course(seed):
        buffer, agent = filled_buffer(), make(seed=seed)
        errors = [agent.update(buffer.sample(16)).td_error for _ in range(5)]
        return torch.stack(errors), agent.act(np.zeros((64, 4), np.float32), epsilon=0.5)

    (errors, actions), (again, same_actions), (other, _) = course(1), course(1), course(2)
    assert torch.equal(errors, again)
    assert actions.tolist() == same_actions.tolist()
    assert not torch.equal(errors, other)


def test_nothing_draws_from_the_global_generators():
    torch_before, numpy_before = torch.random.get_rng_state(), global_numpy_state()
    buffer, agent = filled_buffer(), make()
    agent.update(buffer.sample(16))
    agent.act(np.zeros((8, 4), np.float32), epsilon=0.5)
    assert torch.equal(torch.random.get_rng_state(), torch_before)
    assert global_numpy_state() == numpy_before


def global_numpy_state():
    return np.random.get_state()[1].tolist()  # noqa: NPY002  # the one nobody should draw from


def test_an_update_reads_nothing_back(monkeypatch):
    buffer, agent = filled_buffer(), make()
    batch = buffer.sample(16)
    for reading in ("item", "tolist", "__float__", "__int__", "__bool__", "numpy"):
        monkeypatch.setattr(torch.Tensor, reading, lambda *_: pytest.fail("the update waited"))
    agent.update(batch)
