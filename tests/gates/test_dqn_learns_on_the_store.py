"""DQN learns from what the store gives it, with priorities going back, the same on each device.

On rows and a target network that stay as they are the loss must come down at least ten times. With
the buffer on a GPU and the network on the CPU every loss is the same number as with both on the
CPU; in the interpreter 500 updates take some minutes, so they are a long test
(`make test-kernels ARGS=--long`) and a few stand for them otherwise.
"""

from __future__ import annotations

from typing import Any

import pytest

from relive import Field, Proportional
from relive.agents import DQN, DQNConfig
from tests.gates.sides import INTERPRETED, SIDES, at
from tests.unit.agents.batches import filled_buffer

UPDATES, FEW = 500, 20
ROWS, BATCH = 64, 8


def losses(updates: int, place: dict[str, Any]) -> list[float]:
    """The loss of each update, with the buffer at a place."""
    buffer = filled_buffer(rows=ROWS, sampler=Proportional(), **place)
    agent = DQN(Field((4,)), 3, DQNConfig(lr=2.3e-3, target_period=10 * updates))
    found = []
    for _ in range(updates):
        batch = buffer.sample(BATCH, device="cpu")
        result = agent.update(batch)
        buffer.update_priorities(batch.ids, result.td_error)
        found.append(result.metrics["loss"].item())
    assert buffer.stats(wait=True)["priority_updates"] == updates * BATCH
    return found


def on(side: str, updates: int) -> list[float]:
    with at(side) as place:
        return losses(updates, place)


def test_500_updates_bring_the_loss_down_tenfold() -> None:
    found = on("cpu", UPDATES)
    assert sum(found[-50:]) < sum(found[:50]) / 10


@pytest.mark.parametrize("side", SIDES)
def test_the_losses_are_the_same_numbers_wherever_the_buffer_lives(side: str) -> None:
    assert on(side, FEW) == on("cpu", FEW)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not INTERPRETED, reason="the kernels of a GPU run with TRITON_INTERPRET=1")
def test_500_updates_with_the_buffer_on_a_gpu_are_the_same_numbers() -> None:
    found = on("gpu", UPDATES)
    assert found == on("cpu", UPDATES)
    assert sum(found[-50:]) < sum(found[:50]) / 10
