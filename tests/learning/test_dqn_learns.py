"""DQN on rows that do not change: what it can learn there, it learns."""

import pytest

from relive import Field, Proportional, Uniform
from relive.agents import DQN, DQNConfig
from tests.unit.agents.batches import filled_buffer


@pytest.mark.parametrize("sampler", [Uniform(), Proportional()], ids=["uniform", "proportional"])
@pytest.mark.parametrize(("double", "dueling"), [(False, False), (True, False), (True, True)])
def test_with_buffer_and_target_frozen_500_updates_bring_the_loss_down_tenfold(
    sampler, double, dueling
):
    buffer = filled_buffer(rows=256, sampler=sampler)
    config = DQNConfig(double=double, dueling=dueling, lr=2.3e-3, target_period=10_000)
    agent = DQN(Field((4,)), 3, config)
    losses = []
    for _ in range(500):
        batch = buffer.sample(64)
        result = agent.update(batch)
        if buffer.prioritized:
            buffer.update_priorities(batch.ids, result.td_error)
        losses.append(result.metrics["loss"].item())
    assert sum(losses[-10:]) < sum(losses[:10]) / 10
