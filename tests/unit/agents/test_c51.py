"""C51: its targets and errors worked out by hand, its noise."""

import math

import numpy as np
import pytest
import torch

from relive import Field, Proportional, ReplayBuffer
from relive.agents import C51, C51Config
from tests.unit.agents.kinds import make, rows_for

# atoms at 0, 1, 2
SMALL = {"hidden": (4,), "atoms": 3, "v_min": 0.0, "v_max": 2.0, "lr": 1e-3}
EVEN = [1 / 3, 1 / 3, 1 / 3]


def agent_with(**settings):
    return C51(Field((1,)), 2, C51Config(**{**SMALL, **settings}))


def constant(network, probs):
    """Makes a network give the same distributions `[A, N]` for every observation."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
        logits = torch.tensor(probs).clamp(min=1e-30).log()
        network.head.advantage.bias.copy_(logits.flatten())


def rows(*given, sampler=None, gamma=0.5):
    fields = {"obs": Field((1,)), "action": Field((), torch.int64)}
    buffer = ReplayBuffer(8, fields, gamma=gamma, **({"sampler": sampler} if sampler else {}))
    for reward, action, terminated, truncated in given:
        buffer.add(
            obs=[0.0],
            action=action,
            reward=reward,
            next_obs=[0.0],
            terminated=terminated,
            truncated=truncated,
        )
    return buffer


# terminated, truncated, divergence of an even prediction from a target that is
# all at 1 (the reward), or all at 2 (1 + 0.5 * 2)
ENDS = [(True, False), (False, True), (True, True), (False, False)]


@pytest.mark.parametrize(("terminated", "truncated"), ENDS)
def test_f04_only_termination_stops_the_bootstrap(terminated, truncated):
    agent = agent_with()
    constant(agent.online, [EVEN, EVEN])
    constant(agent.target, [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    batch = rows((1.0, 0, terminated, truncated)).sample(1)
    result = agent.update(batch)
    assert result.td_error.item() == pytest.approx(math.log(3))
    place = 1 if terminated else 2
    bias = agent.online.head.advantage.bias.grad[:3]
    assert bias.argmin() == place  # the only logit that is to rise


@pytest.mark.parametrize(("double", "place"), [(False, 2), (True, 1)])
def test_who_picks_the_next_action(double, place):
    # the target network prefers action 1 (at 2); the online network action 0 (there at 0)
    agent = agent_with(double=double, max_grad_norm=None)
    constant(agent.target, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    constant(agent.online, [[0.2, 0.2, 0.6], [0.6, 0.2, 0.2]])
    agent.update(rows((1.0, 1, False, False)).sample(1))
    gradient = agent.online.head.advantage.bias.grad[3:]
    target = torch.zeros(3)
    target[place] = 1.0
    assert torch.allclose(gradient, torch.tensor([0.6, 0.2, 0.2]) - target, atol=1e-6)


def test_priorities_are_raw_divergences_whatever_the_weights_are():
    buffer = rows(
        (1.0, 0, True, False), (0.5, 1, True, False), sampler=Proportional(alpha=1.0, eps=0.0)
    )
    agent = agent_with()
    constant(agent.online, [EVEN, [0.5, 0.25, 0.25]])
    batch = buffer.rows([0, 1])
    batch.weights.copy_(torch.tensor([1.0, 0.1]))
    result = agent.update(batch)
    # targets (0, 1, 0) and (0.5, 0.5, 0): cross-entropy, and its excess over the entropy
    crossed = [math.log(3), 0.5 * math.log(2) + 0.5 * math.log(4)]
    expected = [math.log(3), crossed[1] - math.log(2)]
    assert result.td_error.tolist() == pytest.approx(expected, rel=1e-5)
    assert result.metrics["loss"].item() == pytest.approx((crossed[0] + 0.1 * crossed[1]) / 2)
    buffer.update_priorities(batch.ids, result.td_error)
    assert buffer.priorities([0, 1]).tolist() == pytest.approx(expected, rel=1e-5)


def test_a_prediction_that_is_the_target_has_error_0_although_its_loss_is_not():
    agent = agent_with()
    constant(agent.online, [[0.5, 0.5, 0.0], EVEN])
    result = agent.update(rows((0.5, 0, True, False)).sample(1))
    assert result.td_error.item() == pytest.approx(0.0, abs=1e-6)
    assert result.metrics["loss"].item() == pytest.approx(math.log(2))
    assert result.metrics["q_mean"].item() == pytest.approx(0.5)


def test_the_best_action_is_that_of_the_highest_mean():
    agent = agent_with()
    constant(agent.online, [[0.0, 1.0, 0.0], [0.6, 0.0, 0.4]])  # means 1 and 0.8
    assert agent.act_greedy(np.zeros((3, 1), np.float32)).tolist() == [0, 0, 0]


def test_noise_explores_and_greedy_actions_have_none():
    seen = np.random.default_rng(0).normal(size=(256, 4)).astype(np.float32)
    agent = make("c51", noisy_sigma=2.0)
    greedy = agent.act_greedy(seen).tolist()
    first, second = agent.act(seen, 0.0).tolist(), agent.act(seen, 0.0).tolist()
    assert first != second
    assert agent.act_greedy(seen).tolist() == greedy


def test_online_and_target_network_have_noise_of_their_own():
    agent = make("c51", noisy_sigma=0.5)
    agent.update(rows_for("c51").sample(16))
    mine, other = agent.online.head.advantage, agent.target.head.advantage
    assert mine.noise_in.any()
    assert not torch.equal(mine.noise_in, other.noise_in)


def test_a_hard_target_is_copied_every_period():
    agent, buffer = make("c51", target_period=3), rows_for("c51")
    for update in range(1, 7):
        agent.update(buffer.sample(16))
        is_copy = torch.equal(agent.target_parameters.vector, agent.parameters.vector)
        assert is_copy == (update % 3 == 0)
