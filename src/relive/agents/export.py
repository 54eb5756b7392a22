"""A policy as a program that PyTorch runs by itself: `policy.pt2`.

B  observations    A  actions    D  dimensions of an action

policy = torch.export.load("policy.pt2").module()
action = policy(obs)
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from relive.agents.c51 import ReturnNetwork
from relive.agents.dqn import QNetwork
from relive.errors import ConfigError
from relive.nn.action_scale import ActionScale
from relive.nn.actor_critic import GaussianPolicy
from relive.nn.noisy import silence

if TYPE_CHECKING:
    from relive.agents.agent import Agent
    from relive.batch import Observation
    from relive.fields import Field, Fields

SUFFIX = ".pt2"
EXAMPLE = 2  # observations to export with: of one, PyTorch would take the number for a constant


class GreedyPolicy(nn.Module):
    """What `act_greedy` does, from tensors to tensors: observations of B rows -> actions.

    Args:
        agent: Its network is copied, to the CPU; noise in its weights is left out.
    """

    def __init__(self, agent: Agent) -> None:
        super().__init__()
        self.network = copy.deepcopy(agent.policy).cpu().requires_grad_(False)
        silence(self.network)
        self.actions = agent.actions

    def forward(self, obs: Observation) -> Tensor:
        """Actions of the environment: `[B]` int64 where they are numbered, or `[B, *shape]`."""
        network = self.network
        if isinstance(network, QNetwork | ReturnNetwork):
            q = network(obs) if isinstance(network, QNetwork) else network.values(obs)
            best: Tensor = q.argmax(1)
            return best
        unit = network(obs)[0].tanh() if isinstance(network, GaussianPolicy) else network(obs)
        assert isinstance(self.actions, ActionScale)  # the agent of such a network has one
        return self.actions.from_unit(unit)


def export_policy(agent: Agent, path: Path | str) -> None:
    """Writes the program by which an agent acts greedily, in one step: a file there stays whole.

    `torch.export.load(path).module()` needs PyTorch alone, and neither relive nor its settings. It
    takes a tensor of observations `[B, *shape]`, for any B, of the dtype of the agent's field, or a
    dict of them; it gives actions as the environment takes them, those of `act_greedy`.

    Args:
        agent: Whose policy.
        path: Of the file, which ends in .pt2.

    Raises:
        ConfigError: Another ending, or no such folder.
    """
    path = Path(path)
    if path.suffix != SUFFIX:
        raise ConfigError(f"an exported policy is a file that ends in {SUFFIX}; given {path}")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no folder {path.parent} for the policy; make it first")
    program = torch.export.export(
        GreedyPolicy(agent),
        (_example(agent.obs),),
        dynamic_shapes=(_for_each(agent.obs, {0: torch.export.Dim("batch")}),),
    )
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("wb") as file:
        torch.export.save(program, file)
    unfinished.replace(path)


def _example(field: Field | Fields) -> Any:
    if isinstance(field, Mapping):
        return {name: _example(entry) for name, entry in field.items()}
    return torch.zeros(EXAMPLE, *field.shape, dtype=field.dtype)


def _for_each(field: Field | Fields, value: Any) -> Any:
    if isinstance(field, Mapping):
        return {name: _for_each(entry, value) for name, entry in field.items()}
    return value
