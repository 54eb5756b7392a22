"""Each agent on a task of one step whose answer is known."""

import numpy as np
import pytest
import torch

from relive import Field, Proportional, ReplayBuffer, Uniform
from relive.agents import (
    C51,
    DDPG,
    SAC,
    TD3,
    ActionScale,
    C51Config,
    DDPGConfig,
    SACConfig,
    TD3Config,
)

LOW, HIGH = 0.0, 4.0
SAMPLERS = pytest.mark.parametrize("sampler", [Uniform(), Proportional()], ids=["uniform", "PER"])


def learn(agent, buffer, updates):
    for _ in range(updates):
        batch = buffer.sample(64)
        result = agent.update(batch)
        if buffer.prioritized:
            buffer.update_priorities(batch.ids, result.td_error)


@SAMPLERS
@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (DDPG, DDPGConfig(hidden=(32, 32), lr=3e-3)),
        (TD3, TD3Config(hidden=(32, 32), lr=3e-3, policy_delay=1)),
        (SAC, SACConfig(hidden=(32, 32), lr=3e-3, temperature=0.01, tune_temperature=False)),
        (SAC, SACConfig(hidden=(32, 32), lr=3e-3, target_entropy=-2.0, layer_norm=True)),
    ],
    ids=["ddpg", "td3", "sac", "sac, tuned"],
)
def test_the_best_action_of_a_lopsided_box_is_found(kind, config, sampler):
    # reward -(a - (1 + 2 s))^2 for s in [0, 1] and a in [0, 4]
    generator = torch.Generator().manual_seed(0)
    obs = torch.rand(1024, 1, generator=generator)
    action = HIGH * torch.rand(1024, 1, generator=generator)
    buffer = ReplayBuffer(1024, {"obs": Field((1,)), "action": Field((1,))}, sampler=sampler)
    buffer.extend(
        obs=obs,
        action=action,
        reward=-(action - (1 + 2 * obs)).square().squeeze(1),
        next_obs=obs,
        terminated=torch.ones(1024, dtype=torch.bool),
        truncated=torch.zeros(1024, dtype=torch.bool),
    )
    agent = kind(Field((1,)), ActionScale([LOW], [HIGH]), config)
    learn(agent, buffer, 800)
    seen = np.linspace(0.1, 0.9, 5, dtype=np.float32)[:, None]
    assert agent.act_greedy(seen) == pytest.approx(1 + 2 * seen, abs=0.35)


@SAMPLERS
@pytest.mark.parametrize("dueling", [False, True])
def test_c51_learns_the_distribution_of_a_return_and_takes_the_best_mean(dueling, sampler):
    # action 0 pays -1 or 1, action 1 always 0.2
    rows = torch.arange(512)
    action = rows % 2
    coin = 1.0 - 2.0 * ((rows // 2) % 2)
    reward = torch.where(action == 0, coin, 0.2)
    obs = torch.ones(512, 1)
    buffer = ReplayBuffer(
        512, {"obs": Field((1,)), "action": Field((), torch.int64)}, sampler=sampler
    )
    buffer.extend(
        obs=obs,
        action=action,
        reward=reward,
        next_obs=obs,
        terminated=torch.ones(512, dtype=torch.bool),
        truncated=torch.zeros(512, dtype=torch.bool),
    )
    config = C51Config(
        hidden=(16,), atoms=11, v_min=-1.0, v_max=1.0, lr=1e-2, lr_end=0.0, dueling=dueling
    )
    agent = C51(Field((1,)), 2, config, planned_updates=400)
    learn(agent, buffer, 400)
    probs = agent.online(torch.ones(1, 1)).softmax(2)[0]
    assert probs[0, [0, -1]].tolist() == pytest.approx([0.5, 0.5], abs=0.1)
    assert probs[1, 6].item() > 0.9  # the atom at 0.2
    assert agent.act_greedy(np.ones((1, 1), np.float32)).tolist() == [1]
