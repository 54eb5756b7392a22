"""Deep deterministic policy gradient (Lillicrap et al. 2016, DDPG).

    B  rows of a batch    E  environments    D  dimensions of an action, each in [-1, 1]

    target_i = r_i + discount_i * Q'(s'_i, mu'(s'_i))
    delta_i  = target_i - Q(s_i, a_i)
    critic:   loss = mean_i w_i * l(delta_i)
    policy:   loss = -mean_i w_i * Q(s_i, mu(s_i))

Deviations from the paper are listed in docs/algorithms/ddpg.md.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from relive.agents.agent import (
    CopiedByState,
    check_box,
    check_obs_and_config,
    check_settings,
    check_state,
    count_envs,
    tensors_of,
)
from relive.agents.update import Loss, UpdateResult, accumulate, batches_on
from relive.declared import hold_to_types
from relive.devices import known_device
from relive.losses.policy import deterministic_policy_loss, deterministic_policy_slope
from relive.losses.td import LossKind, td_error, td_slope, td_target
from relive.losses.twin import critics_loss
from relive.nn.actor_critic import Critics, DeterministicPolicy
from relive.nn.adam import Adam
from relive.nn.backprop import CriticBackprop, PolicyBackprop
from relive.nn.flat import FlatParameters
from relive.nn.learning_rate import LearningRate
from relive.nn.streams import RandomStream
from relive.schedules import Linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from relive.batch import Batch
    from relive.fields import Field, Fields
    from relive.nn.action_scale import ActionScale

# -- settings ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DDPGConfig:
    """Settings of DDPG; noise is measured in halves of the range of an action.

    Attributes:
        hidden: Widths of the hidden layers of policy and critic; images are convolved before them.
        lr: Step size of Adam at the first update, for policy and critic.
        lr_end: Step size that a straight line reaches behind the last planned update; None
            keeps `lr`.
        tau: Part of the way the target networks move at every update.
        exploration_noise: Deviation of the noise on the actions that are taken.
        loss: Loss of a TD error: half its square (mse), or with its slope clipped at 1 (huber).
        max_grad_norm: Gradients longer than this are shortened to it; None leaves them.

    Raises:
        ConfigError: A value outside its range.
    """

    hidden: tuple[int, ...] = (256, 256)
    lr: float = 3e-4
    lr_end: float | None = None
    tau: float = 0.005
    exploration_noise: float = 0.1
    loss: LossKind = "mse"
    max_grad_norm: float | None = None

    def __post_init__(self) -> None:
        hold_to_types(self, "agent.")
        table = (
            ("hidden", self.hidden and min(self.hidden) >= 1, "widths >= 1, at least one"),
            ("lr", 0 < self.lr < math.inf, "> 0 and finite"),
            ("lr_end", self.lr_end is None or self.lr_end >= 0, ">= 0 or None"),
            ("tau", 0 < self.tau <= 1, "in (0, 1]"),
            ("exploration_noise", self.exploration_noise >= 0, ">= 0"),
            ("max_grad_norm", self.max_grad_norm is None or self.max_grad_norm > 0, "> 0 or None"),
        )
        check_settings(self, table)

    def epsilon(self, total_steps: int) -> Linear:  # noqa: ARG002  # as other agents have it
        """Share of random actions: none, the noise explores."""
        return Linear(0.0, 0.0, 1)


# -- agent -------------------------------------------------------------------------------------


class DDPG(CopiedByState):
    """An agent with one action for a state, which it moves to where its critic values it most.

    Args:
        obs: Field of one observation, or a mapping of fields.
        actions: The box of its actions.
        config: Settings.
        planned_updates: Updates in the whole run, over which `lr` moves to `lr_end`.
        device: Where the networks live; batches are moved there.
        seed: Of the first weights and of exploration; nothing else draws.

    Attributes:
        actor: The network that acts.
        updates: Updates made so far.

    Raises:
        ConfigError: An argument of another kind.
    """

    def __init__(
        self,
        obs: Field | Fields,
        actions: ActionScale,
        config: DDPGConfig | None = None,
        *,
        planned_updates: int = 1,
        device: torch.device | str = "cpu",
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        check_obs_and_config(self, obs, config, DDPGConfig)
        check_box(self, actions)
        self.obs, self.actions = obs, actions
        self.config = config or DDPGConfig()
        self.device = known_device(device)
        self.rng = np.random.default_rng(seed)
        generator = torch.Generator().manual_seed(int(self.rng.integers(2**63)))
        self.scale = actions.to(self.device)
        size, hidden = actions.size, self.config.hidden
        self.actor = DeterministicPolicy(obs, size, hidden, generator).to(self.device)
        self.critic = Critics(obs, size, 1, hidden, generator).to(self.device)
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.actor_parameters = FlatParameters(self.actor)
        self.critic_parameters = FlatParameters(self.critic)
        self.actor_backprop = PolicyBackprop(self.actor, self.actor_parameters, self.target_actor)
        self.critic_backprop = CriticBackprop(
            self.critic, self.critic_parameters, self.target_critic
        )
        self.target_actor_parameters = FlatParameters(self.target_actor)
        self.target_critic_parameters = FlatParameters(self.target_critic)
        self.actor_optimizer = Adam(self.actor_parameters)
        self.critic_optimizer = Adam(self.critic_parameters)
        self.learning_rate = LearningRate(
            self.config.lr, self.config.lr_end, planned_updates, self.device
        )
        self.updates = 0
        self.exploration = RandomStream.spawned(self.rng, self.device)

    @property
    def policy(self) -> DeterministicPolicy:
        """The network that acts."""
        return self.actor

    @property
    def generators(self) -> list[torch.Generator]:
        """What draws on the device."""
        return [self.exploration.generator]

    # -- act

    def act(self, obs: Any, epsilon: float = 0.0) -> NDArray[np.float32]:
        """The policy's actions with normal noise, clipped to the box; some uniformly random.

        Args:
            obs: Observations of E environments, NumPy `[E, *shape]`, or a dict of them.
            epsilon: Probability of a uniformly random action, in each environment by itself.

        Returns:
            Actions `[E, *shape]`. Waits for the device.
        """
        num_envs = count_envs(obs)
        explore = self.rng.random(num_envs) < epsilon
        shape, explorers = (num_envs, self.actions.size), np.count_nonzero(explore)
        if explorers == num_envs:
            return self.actions.array_from_unit(self.rng.uniform(-1.0, 1.0, shape))
        noise = self.config.exploration_noise * self.rng.standard_normal(shape)
        action = self._best(obs) + noise
        if explorers:
            action = np.where(explore[:, None], self.rng.uniform(-1.0, 1.0, shape), action)
        return self.actions.array_from_unit(action)

    def act_greedy(self, obs: Any) -> NDArray[np.float32]:
        """The policy's actions for E observations, `[E, *shape]`. Waits for the device."""
        return self.actions.array_from_unit(self._best(obs))

    def _best(self, obs: Any) -> NDArray[Any]:
        with torch.inference_mode():
            best = self.actor.forward(tensors_of(obs, self.obs, self.device))
            action: NDArray[Any] = best.cpu().numpy()
        return action

    @torch.no_grad()
    def explore(self, obs: Any, epsilon: float | Tensor) -> Tensor:
        """As `act`, on the device: equal calls launch equal work, and nothing waits.

        Args:
            obs: Observations of E environments, `[E, *shape]` there, or a dict of them.
            epsilon: As there: a number, or float `[]` on the device.

        Returns:
            Actions `[E, *shape]`, drawn from a stream of their own.
        """
        stream, best = self.exploration, self.actor.forward(obs)
        noise = self.config.exploration_noise * stream.normal(*best.shape)
        action = stream.uniform(*best.shape) * 2.0 - 1.0
        blurred = (best + noise).clamp_(-1.0, 1.0)
        return self.scale.from_unit(stream.mixed(blurred, action, epsilon))

    # -- update

    def update(self, *batches: Batch) -> UpdateResult:
        """A step of Adam for the critic, one for the policy. Waits for nothing.

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

    def due(self, update: int) -> bool:  # noqa: ARG002  # as other agents have it
        """Whether the policy moves at an update: always."""
        return True

    @torch.inference_mode(False)  # gradients are taken wherever it is called
    def learn(self, batches: Sequence[Batch], due: bool) -> UpdateResult:  # noqa: ARG002
        """What `update` does on the device: equal calls launch equal work.

        Args:
            batches: As there.
            due: Whether the policy moves; it always does.
        """
        config = self.config
        batches = batches_on(self.device, batches)
        loss, delta, q = accumulate(batches, self._critic_terms, self.critic_backprop)
        grad_norm = self.critic_parameters.clip_grad(config.max_grad_norm)
        lr = self.learning_rate.next()
        self.critic_optimizer.step(lr)

        (actor_loss,) = accumulate(batches, self._policy_terms, self.actor_backprop)
        if config.max_grad_norm is not None:
            self.actor_parameters.clip_grad(config.max_grad_norm)
        self.actor_optimizer.step(lr)

        self.target_actor_parameters.step_towards(self.actor_parameters, config.tau)
        self.target_critic_parameters.step_towards(self.critic_parameters, config.tau)

        magnitude = delta.abs()
        metrics = {
            "loss": loss,
            "td_error": magnitude.mean(),
            "q_mean": q.mean(),
            "grad_norm": grad_norm,
            "actor_loss": actor_loss,
        }
        return UpdateResult(td_error=magnitude, metrics=metrics)

    def _critic_terms(self, batch: Batch) -> tuple[Loss, Tensor, Tensor]:
        """The loss, delta and the values of the actions taken, `[B]` each."""
        with torch.no_grad():
            next_action = self.actor_backprop.target(batch.next_obs)
            next_value = self.critic_backprop.target(batch.next_obs, next_action)[0]
            target = td_target(batch.reward, batch.discount, next_value)
        q = self.critic_backprop.forward(batch.obs, self.scale.to_unit(batch.action))
        delta, kind = td_error(q.detach(), target), self.config.loss
        slope = td_slope(delta, batch.weights, kind)
        loss = Loss(critics_loss(delta, batch.weights, kind), (q,), (slope,))
        return loss, delta[0], q[0]

    def _policy_terms(self, batch: Batch) -> tuple[Loss]:
        """The loss."""
        action = self.actor_backprop.forward(batch.obs)
        q = self.critic_backprop.forward(batch.obs, action)
        slope = deterministic_policy_slope(batch.weights).unsqueeze(0)
        output, slope = self.critic_backprop.to_action(q, slope, action)
        mean = deterministic_policy_loss(q.detach()[0], batch.weights)
        return (Loss(mean, (output,), (slope,)),)

    # -- save

    def state_dict(self) -> dict[str, Any]:
        """All that later actions and updates depend on, in the memory of the agent."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "target_actor": self.target_actor.state_dict(),
            "target_critic": self.target_critic.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
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
        for name in ("actor", "critic", "target_actor", "target_critic"):
            getattr(self, name).load_state_dict(state[name])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
        self.critic_optimizer.load_state_dict(state["critic_optimizer"])
        self.updates = state["updates"]
        self.learning_rate.set(self.updates)
        self.rng.bit_generator.state = state["rng"]
        self.exploration.load_state_dict(state.get("exploration"))
