"""DDPG, TD3 and SAC: their targets worked out by hand, who moves when."""

import math

import numpy as np
import pytest
import torch

from relive import Field, Proportional, ReplayBuffer
from relive.agents.update import accumulate
from relive.losses import temperature_loss
from tests.unit.agents.kinds import BOX, CONTINUOUS, make, rows_for

continuous = pytest.mark.parametrize("kind", CONTINUOUS)


def constant_critics(critics, *given):
    """Makes each critic give one value for whatever it sees."""
    with torch.no_grad():
        for parameter in critics.parameters():
            parameter.zero_()
        critics.members.layers[-1].bias.copy_(torch.tensor(given).view(-1, 1, 1))


def one_row(terminated=False, truncated=False):
    buffer = ReplayBuffer(4, {"obs": Field((4,)), "action": Field((2,))}, gamma=0.9)
    buffer.add(
        obs=[0.0] * 4,
        action=[1.0, 5.0],
        reward=1.0,
        next_obs=[0.0] * 4,
        terminated=terminated,
        truncated=truncated,
    )
    return buffer.sample(1)


ENDS = [
    pytest.param(True, False, 1.0, id="terminated"),
    pytest.param(False, True, 10.0, id="truncated"),
    pytest.param(True, True, 1.0, id="both"),
    pytest.param(False, False, 10.0, id="neither"),
]


@pytest.mark.parametrize(("terminated", "truncated", "target"), ENDS)
@continuous
def test_f04_only_termination_stops_the_bootstrap(kind, terminated, truncated, target):
    agent = make(kind, **({"entropy_backup": False} if kind == "sac" else {}))
    if kind == "ddpg":
        constant_critics(agent.target_critic, 10.0)
        constant_critics(agent.critic, 0.0)
    else:
        constant_critics(agent.target_critics, 10.0, 12.0)
        constant_critics(agent.critics, 0.0, 0.0)
    error = agent.update(one_row(terminated, truncated)).td_error
    assert error.item() == pytest.approx(target)


@pytest.mark.parametrize("kind", ["td3", "sac"])
@pytest.mark.parametrize(("row_error", "expected"), [("mean", 8.0), ("max", 9.0)])
def test_the_smaller_critic_makes_the_target_and_both_the_error(kind, row_error, expected):
    agent = make(kind, row_error=row_error, **({"entropy_backup": False} if kind == "sac" else {}))
    constant_critics(agent.target_critics, 30.0, 10.0)
    constant_critics(agent.critics, 1.0, 3.0)  # the target is 1 + 0.9 * 10
    assert agent.update(one_row()).td_error.item() == pytest.approx(expected)


def test_critics_see_actions_in_minus_one_to_one():
    agent, seen = make("td3"), []
    features = agent.critics.features
    agent.critics.features = lambda obs, action: (seen.append(action), features(obs, action))[1]
    agent.update(one_row())
    assert seen[0].tolist() == [[0.5, 0.0]]  # of 1 in [-2, 2] and 5 in [0, 10]


def test_smoothing_in_minus_one_to_one_is_smoothing_in_the_units_of_each_dimension():
    # a policy at the middle of the box, noise so wide that all of it is clipped at half a half
    agent, seen = make("td3", target_noise=1e6, target_noise_clip=0.5), []
    with torch.no_grad():
        for parameter in agent.target_actor.parameters():
            parameter.zero_()
    features = agent.target_critics.features
    agent.target_critics.features = lambda obs, a: (seen.append(a), features(obs, a))[1]
    agent.update(rows_for("td3").sample(64))
    moved = (agent.scale.from_unit(seen[0]) - torch.tensor([0.0, 5.0])).abs()
    assert torch.allclose(moved, torch.tensor([1.0, 2.5]))  # half of the halves, 2 and 5


# -- who moves when ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["td3", "sac"])
def test_the_policy_moves_every_so_many_updates_and_the_count_is_saved(kind):
    agent, buffer = make(kind, policy_delay=3), rows_for(kind)
    moved = []
    for update in range(7):
        before = agent.actor_parameters.vector.clone()
        agent.update(buffer.sample(16))
        moved.append(not torch.equal(before, agent.actor_parameters.vector))
        if update == 3:  # between two steps of the policy
            state, agent = agent.state_dict(), make(kind, policy_delay=3, seed=5)
            agent.load_state_dict(state)
    assert moved == [False, False, True, False, False, True, False]


def test_the_targets_of_td3_move_with_its_policy_and_those_of_sac_with_its_critics():
    for kind, expected in (("td3", [False, True, False, True]), ("sac", [True] * 4)):
        agent, buffer, moved = make(kind, policy_delay=2), rows_for(kind), []
        for _ in range(4):
            before = agent.target_critic_parameters.vector.clone()
            agent.update(buffer.sample(16))
            moved.append(not torch.equal(before, agent.target_critic_parameters.vector))
        assert moved == expected


@continuous
def test_a_target_moves_a_part_of_the_way_and_is_not_trained(kind):
    agent, buffer = make(kind, tau=0.25), rows_for(kind)
    delay = 2 if kind == "td3" else 1
    before = agent.target_critic_parameters.vector.clone()
    for _ in range(delay):
        agent.update(buffer.sample(16))
    expected = 0.75 * before + 0.25 * agent.critic_parameters.vector
    assert torch.allclose(agent.target_critic_parameters.vector, expected, atol=1e-6)
    assert not agent.target_critic_parameters.grad.any()


@continuous
def test_a_step_of_the_policy_leaves_the_gradient_of_the_critics_alone(kind):
    agent, twin = make(kind, policy_delay=1) if kind != "ddpg" else make(kind), make(kind)
    buffer = rows_for(kind)
    agent.update(buffer.rows(torch.arange(16)))
    twin.critic_parameters.grad.zero_()
    accumulate([buffer.rows(torch.arange(16))], twin._critic_terms, twin.critic_backprop)
    assert torch.allclose(agent.critic_parameters.grad, twin.critic_parameters.grad, atol=1e-6)


SETTINGS = [
    ("ddpg", {}),
    ("ddpg", {"loss": "huber"}),
    ("td3", {"policy_delay": 1}),
    ("sac", {}),
    ("sac", {"policy_value": "mean", "critics": 3, "target_critics": 2}),
    ("sac", {"policy_value": "mean", "critics": 3, "target_critics": 2, "layer_norm": True}),
]


@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
def test_updates_by_hand_are_those_of_autograd_bit_for_bit(kind, settings):
    by_hand, by_autograd = (make(kind, hidden=(16, 8), **settings) for _ in range(2))
    assert by_hand.critic_backprop.by_hand
    assert by_hand.actor_backprop.by_hand
    by_autograd.critic_backprop.by_hand = by_autograd.actor_backprop.by_hand = False
    rows = rows_for(kind, sampler=Proportional())
    for update in range(10):
        batch = rows.sample(16)
        found, expected = by_hand.update(batch), by_autograd.update(batch)
        assert torch.equal(found.td_error, expected.td_error)
        assert found.metrics == expected.metrics
        for name in ("actor_parameters", "critic_parameters"):
            mine, theirs = (getattr(agent, name).vector for agent in (by_hand, by_autograd))
            assert torch.equal(mine, theirs), update


@continuous
def test_the_policy_climbs_its_critic(kind):
    # Q(s, a) = a_1 - a_2, so the best corner of the box is (high, low)
    settings = {"temperature": 0.01, "tune_temperature": False} if kind == "sac" else {}
    agent = make(kind, hidden=(2,), lr=0.05, **settings)
    critics = agent.critic if kind == "ddpg" else agent.critics
    first, last = critics.members.layers
    with torch.no_grad():
        for parameter in critics.parameters():
            parameter.zero_()
        first.weight[:, 4, 0] = first.weight[:, 5, 1] = 1.0
        first.bias.fill_(2.0)  # above the bend of the ReLU
        last.weight[:, 0], last.weight[:, 1] = 1.0, -1.0
    batches, lr = [rows_for(kind).sample(64)], 0.05
    for _ in range(200):
        accumulate(batches, agent._policy_terms, agent.actor_backprop)
        agent.actor_optimizer.step(lr)
    action = agent.act_greedy(batches[0].obs.numpy())
    assert action == pytest.approx(np.tile([BOX[1][0], BOX[0][1]], (64, 1)), abs=0.6)


# -- SAC ---------------------------------------------------------------------------------------


def test_entropy_is_a_part_of_the_target_unless_left_out():
    def target(**settings):
        agent = make("sac", temperature=0.5, tune_temperature=False, **settings)
        constant_critics(agent.target_critics, 10.0, 10.0)
        constant_critics(agent.critics, 0.0, 0.0)
        twin = make("sac")
        _, log_prob = twin._sample(*twin.actor(one_row().next_obs))  # the same draw
        return agent.update(one_row()).td_error.item(), log_prob.item()

    error, log_prob = target()
    assert error == pytest.approx(abs(1 + 0.9 * (10 - 0.5 * log_prob)), rel=1e-5)
    assert target(entropy_backup=False)[0] == pytest.approx(10.0)


@pytest.mark.parametrize(("target_entropy", "rises"), [(50.0, True), (-50.0, False)])
def test_the_temperature_follows_the_entropy(target_entropy, rises):
    agent = make("sac", target_entropy=target_entropy)
    agent.update(rows_for("sac").sample(16))
    assert (agent.temperature().item() > 1.0) == rises


def test_the_gradient_of_the_temperature_is_that_of_its_loss():
    agent, twin = make("sac", temperature=0.7), make("sac", temperature=0.7)
    log_prob, weights = torch.linspace(-5.0, 3.0, 16), torch.linspace(0.1, 1.0, 16)
    loss = temperature_loss(twin.temperature(), log_prob, twin.target_entropy, weights)
    twin.temperature_parameters.take_grad([loss], [torch.ones_like(loss)])
    twin.temperature_optimizer.step(1e-2)
    agent._update_temperature(log_prob, weights, 1e-2)
    expected, found = twin.temperature_parameters, agent.temperature_parameters
    assert torch.allclose(found.grad, expected.grad)
    assert torch.allclose(found.vector, expected.vector)


def test_a_temperature_that_is_not_tuned_stays_where_it_is():
    agent = make("sac", temperature=0.3, tune_temperature=False)
    for _ in range(3):
        result = agent.update(rows_for("sac").sample(16))
    assert result.metrics["temperature"].item() == pytest.approx(0.3)


def test_the_target_entropy_is_minus_the_dimensions_unless_given():
    assert make("sac").target_entropy == -2.0
    assert make("sac", target_entropy=-1.5).target_entropy == -1.5


def test_a_random_subset_of_critics_makes_the_target():
    agent = make("sac", critics=4, target_critics=2, entropy_backup=False)
    constant_critics(agent.target_critics, 1.0, 2.0, 3.0, 4.0)
    batch = rows_for("sac").sample(1)
    rows = [
        agent.critic_backprop.target(batch.next_obs, batch.action, agent._subset())
        for _ in range(3000)
    ]
    smallest = torch.cat([q.amin(0) for q in rows]).tolist()
    # of 6 pairs 3 have 1 as the smaller one, 2 have 2, 1 has 3; 5 standard deviations of 0.0091
    shares = [smallest.count(value) / 3000 for value in (1.0, 2.0, 3.0, 4.0)]
    assert shares == pytest.approx([1 / 2, 1 / 3, 1 / 6, 0.0], abs=0.046)


def test_the_entropy_that_is_told_is_that_of_the_squashed_policy():
    agent = make("sac")
    with torch.no_grad():
        for parameter in agent.actor.parameters():
            parameter.zero_()  # a standard normal in two dimensions, squashed
    metrics = agent.update(rows_for("sac", rows=4096).sample(4096)).metrics
    # 1/2 log(2 pi e) + E log(1 - tanh^2 u) in each dimension, by numeric integration
    u = torch.linspace(-10, 10, 100_001, dtype=torch.float64)
    density = (-0.5 * u * u).exp() / math.sqrt(2 * math.pi)
    squash = torch.trapezoid(
        density * 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u)), u
    )
    expected = 2 * (0.5 * math.log(2 * math.pi * math.e) + squash.item())
    assert metrics["entropy"].item() == pytest.approx(expected, abs=0.1)
