"""Deep Q-learning (Mnih et al. 2015), double (van Hasselt et al. 2016), dueling (Wang et al. 2016).

    B  rows of a batch    E  environments    A  actions

    target_i = r_i + discount_i * Q'(s'_i, argmax_a Q(s'_i, a))     double; else max_a Q'(s'_i, a)
    delta_i  = target_i - Q(s_i, a_i)
    loss     = mean_i w_i * huber(delta_i)

Deviations from the papers are listed in docs/algorithms/dqn.md.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from relive.agents.agent import (
    CopiedByState,
    check_num_actions,
    check_obs_and_config,
    check_settings,
    check_state,
    count_envs,
    tensors_of,
)
from relive.agents.update import Loss, UpdateResult, accumulate, batches_on
from relive.declared import hold_to_types
from relive.devices import known_device
from relive.losses.td import LossKind, WeightOn, td_error, td_slope, td_target, weighted_loss
from relive.nn.adam import Adam
from relive.nn.encoders import encoder_for
from relive.nn.flat import FlatParameters
from relive.nn.heads import DuelingHead, QHead
from relive.nn.learning_rate import LearningRate
from relive.nn.mlp import MLP
from relive.nn.streams import RandomStream
from relive.schedules import Linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from relive.batch import Batch, Observation
    from relive.fields import Field, Fields

# -- settings ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DQNConfig:
    """Settings of DQN.

    Attributes:
        double: Let the online network pick the next action and the target network value it.
        dueling: Split the value into that of the state and the advantage of the action.
        hidden: Widths of the hidden layers; images are convolved before them.
        lr: Step size of Adam at the first update.
        lr_end: Step size that a straight line reaches behind the last planned update; None
            keeps `lr`.
        tau: Part of the way the target network moves towards the online one: 1 copies, less is
            Polyak.
        target_period: Updates between two moves of the target network.
        loss: Loss of a TD error: its slope clipped at 1 (huber), or half its square (mse).
        weight_on: Where the importance weight enters: outside the loss, or on the error inside it.
        max_grad_norm: Gradients longer than this are shortened to it; None leaves them.
        epsilon_start: Share of random actions at the first step.
        epsilon_end: Share of random actions once exploration has come to its end.
        epsilon_fraction: Part of the run over which epsilon falls from its start to its end.

    Raises:
        ConfigError: A value outside its range.
    """

    double: bool = True
    dueling: bool = False
    hidden: tuple[int, ...] = (256, 256)
    lr: float = 1e-3
    lr_end: float | None = None
    tau: float = 1.0
    target_period: int = 500
    loss: LossKind = "huber"
    weight_on: WeightOn = "loss"
    max_grad_norm: float | None = 10.0
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_fraction: float = 0.2

    def __post_init__(self) -> None:
        hold_to_types(self, "agent.")
        table = (
            ("hidden", self.hidden and min(self.hidden) >= 1, "widths >= 1, at least one"),
            ("lr", 0 < self.lr < math.inf, "> 0 and finite"),
            ("lr_end", self.lr_end is None or self.lr_end >= 0, ">= 0 or None"),
            ("tau", 0 < self.tau <= 1, "in (0, 1]"),
            ("target_period", self.target_period >= 1, ">= 1"),
            ("max_grad_norm", self.max_grad_norm is None or self.max_grad_norm > 0, "> 0 or None"),
            ("epsilon_start", 0 <= self.epsilon_start <= 1, "in [0, 1]"),
            ("epsilon_end", 0 <= self.epsilon_end <= 1, "in [0, 1]"),
            ("epsilon_fraction", 0 < self.epsilon_fraction <= 1, "in (0, 1]"),
        )
        check_settings(self, table)

    def epsilon(self, total_steps: int) -> Linear:
        """Share of random actions after so many steps of a run of `total_steps`."""
        steps = max(1, round(self.epsilon_fraction * total_steps))
        return Linear(self.epsilon_start, self.epsilon_end, steps)


# -- networks ----------------------------------------------------------------------------------


class QNetwork(nn.Module):
    """Values of all actions: observations of B rows -> `[B, A]`."""

    def __init__(
        self,
        obs: Field | Fields,
        num_actions: int,
        config: DQNConfig,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        head = DuelingHead if config.dueling else QHead
        self.encoder = encoder_for(obs, generator)
        self.trunk = MLP(self.encoder.out_features, config.hidden, generator)
        self.head = head(self.trunk.out_features, num_actions, generator)

    def forward(self, obs: Observation) -> Tensor:
        """Action values `[B, A]`."""
        # forward, not a call: looking for hooks costs as much as a small layer
        return self.head.forward(self.trunk.forward(self.encoder.forward(obs)))


# -- agent -------------------------------------------------------------------------------------


class DQN(CopiedByState):
    """An agent that values every action and takes the best one.

    Args:
        obs: Field of one observation, or a mapping of fields.
        num_actions: Actions are 0 ... num_actions - 1.
        config: Settings.
        planned_updates: Updates in the whole run, over which `lr` moves to `lr_end`.
        device: Where the networks live; batches are moved there.
        seed: Of the first weights and of exploration; nothing else draws.

    Attributes:
        online: The network that acts and learns.
        updates: Updates made so far.

    Raises:
        ConfigError: An argument of another kind, or no action.
    """

    def __init__(
        self,
        obs: Field | Fields,
        num_actions: int,
        config: DQNConfig | None = None,
        *,
        planned_updates: int = 1,
        device: torch.device | str = "cpu",
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        check_obs_and_config(self, obs, config, DQNConfig)
        check_num_actions(self, num_actions)
        self.obs, self.num_actions = obs, num_actions
        self.config = config or DQNConfig()
        self.device = known_device(device)
        self.rng = np.random.default_rng(seed)
        generator = torch.Generator().manual_seed(int(self.rng.integers(2**63)))
        self.online = QNetwork(obs, num_actions, self.config, generator).to(self.device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.parameters = FlatParameters(self.online)
        self.target_parameters = FlatParameters(self.target)
        self.optimizer = Adam(self.parameters)
        self.learning_rate = LearningRate(
            self.config.lr, self.config.lr_end, planned_updates, self.device
        )
        self.updates = 0
        self.exploration = RandomStream.spawned(self.rng, self.device)

    @property
    def policy(self) -> QNetwork:
        """The network that acts."""
        return self.online

    @property
    def actions(self) -> int:
        """How many actions there are."""
        return self.num_actions

    @property
    def generators(self) -> list[torch.Generator]:
        """What draws on the device."""
        return [self.exploration.generator]

    # -- act

    def act(self, obs: Any, epsilon: float = 0.0) -> NDArray[np.int64]:
        """Epsilon-greedy actions: each environment explores by itself with probability epsilon.

        Args:
            obs: Observations of E environments, NumPy `[E, *shape]`, or a dict of them.
            epsilon: Probability of a uniformly random action.

        Returns:
            Actions `[E]`. Waits for the device.
        """
        num_envs = count_envs(obs)
        explore = self.rng.random(num_envs) < epsilon
        if not explore.any():
            return self.act_greedy(obs)
        action = self.rng.integers(self.num_actions, size=num_envs)
        return action if explore.all() else np.where(explore, action, self.act_greedy(obs))

    def act_greedy(self, obs: Any) -> NDArray[np.int64]:
        """The action of highest value for each of E observations; `[E]`. Waits for the device."""
        with torch.inference_mode():
            q = self.online(tensors_of(obs, self.obs, self.device))
            action: NDArray[np.int64] = q.argmax(1).cpu().numpy()
        return action

    @torch.no_grad()
    def explore(self, obs: Any, epsilon: float | Tensor) -> Tensor:
        """As `act`, on the device: equal calls launch equal work, and nothing waits.

        Args:
            obs: Observations of E environments, `[E, *shape]` there, or a dict of them.
            epsilon: As there: a number, or float `[]` on the device.

        Returns:
            Actions `[E]`, drawn from a stream of their own.
        """
        best = self.online.forward(obs).argmax(1)
        action = self.exploration.integers(self.num_actions, len(best))
        return self.exploration.mixed(best, action, epsilon)

    # -- update

    def update(self, *batches: Batch) -> UpdateResult:
        """One step of Adam, and of the target network when it is due. Waits for nothing.

        Args:
            *batches: Rows on any device; several are learned from as if they were one.

        Returns:
            |delta| of every row, from before the step, and metrics.

        Raises:
            InputError: No batch, or something else.
        """
        result = self.learn(batches, self.due(self.updates + 1))
        self.updates += 1
        return result

    def due(self, update: int) -> bool:
        """Whether the target network moves at an update; the first is 1."""
        return update % self.config.target_period == 0

    @torch.inference_mode(False)  # gradients are taken wherever it is called
    def learn(self, batches: Sequence[Batch], due: bool) -> UpdateResult:
        """What `update` does on the device: equal calls launch equal work.

        Args:
            batches: As there.
            due: Whether the target network moves.
        """
        config = self.config
        batches = batches_on(self.device, batches)
        loss, delta, q = accumulate(batches, self._terms, self.parameters)
        grad_norm = self.parameters.clip_grad(config.max_grad_norm)
        self.optimizer.step(self.learning_rate.next())
        if due:
            self.target_parameters.step_towards(self.parameters, config.tau)

        magnitude = delta.abs()
        metrics = {
            "loss": loss,
            "td_error": magnitude.mean(),
            "q_mean": q.mean(),
            "grad_norm": grad_norm,
        }
        return UpdateResult(td_error=magnitude, metrics=metrics)

    def _terms(self, batch: Batch) -> tuple[Loss, Tensor, Tensor]:
        """The loss, delta and the values of the actions taken, `[B]` each."""
        with torch.no_grad():
            target = td_target(batch.reward, batch.discount, self._next_value(batch.next_obs))
        q = self.online(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        delta, weights = td_error(q.detach(), target), batch.weights
        kind, weight_on = self.config.loss, self.config.weight_on
        mean = weighted_loss(delta, weights, kind, weight_on)
        slope = td_slope(delta, weights, kind, weight_on)
        return Loss(mean, (q,), (slope,)), delta, q

    def _next_value(self, next_obs: Observation) -> Tensor:
        """Value of the observation each row ends in, `[B]`."""
        q_target: Tensor = self.target(next_obs)
        if not self.config.double:
            return q_target.amax(1)
        best = self.online(next_obs).argmax(1, keepdim=True)
        return q_target.gather(1, best).squeeze(1)

    # -- save

    def state_dict(self) -> dict[str, Any]:
        """All that later actions and updates depend on, in the memory of the agent."""
        return {
            "online": self.online.state_dict(),
            "target": self.target.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "rng": self.rng.bit_generator.state,
            "exploration": self.exploration.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` of an agent with the same settings gave; copies it.

        Raises:
            InputError: The state of another kind of agent.
        """
        check_state(self, state)
        self.online.load_state_dict(state["online"])
        self.target.load_state_dict(state["target"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]
        self.learning_rate.set(self.updates)
        self.rng.bit_generator.state = state["rng"]
        self.exploration.load_state_dict(state.get("exploration"))
