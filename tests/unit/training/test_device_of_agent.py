"""Batches go to the device of the agent; on one that is pretended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive.agents.update import UpdateResult
from relive.training.loop import Trainer
from relive.training.parts import build
from tests.triton.pretended import pretended
from tests.unit.training.tiny import tiny

if TYPE_CHECKING:
    from relive import Batch


class Listener:
    """An agent that learns nothing, and notes what it is given."""

    updates = 0
    generators = ()

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.given: list[Batch] = []

    def act(self, obs: Any, _epsilon: float) -> Any:
        return np.zeros(len(obs), dtype=np.int64)

    def due(self, _update: int) -> bool:
        return False

    def learn(self, batches: list[Batch], _due: bool) -> UpdateResult:
        (batch,) = batches
        self.given.append(batch)
        return UpdateResult(td_error=1 / (1 + batch.ids), metrics={"loss": batch.weights.mean()})


def given_to(agent: Listener, prefetch: int) -> tuple[Any, Any]:
    """Ids of every batch of a run, and the priorities after it."""
    config = tiny({"prefetch": prefetch}, eval_episodes=0)
    parts = build(config)._replace(agent=agent)
    for _ in Trainer(config, parts).records():
        pass
    ids = [batch.ids.tolist() for batch in agent.given]
    return ids, parts.buffer.priorities(parts.buffer.live_ids()).tolist()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_agent_on_another_device_is_given_the_same_batches_there(prefetch: int) -> None:
    expected = given_to(Listener("cpu"), prefetch)
    with pretended():
        agent = Listener("cuda")
        assert given_to(agent, prefetch) == expected
        assert {batch.device for batch in agent.given} == {torch.device("cuda:0")}
