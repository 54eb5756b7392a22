"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, TD3).

    B  rows of a batch    E  environments    D  dimensions of an action, each in [-1, 1]

    a'_i     = clip(mu'(s'_i) + clip(noise, -c, c), -1, 1)
    target_i = r_i + discount_i * min_k Q'_k(s'_i, a'_i)             k = 1, 2
    delta_ki = target_i - Q_k(s_i, a_i)
    critics:  loss = sum_k mean_i w_i * l(delta_ki)
    policy:   loss = -mean_i w_i * Q_1(s_i, mu(s_i))                 every policy_delay updates

Deviations from the paper are listed in docs/algorithms/td3.md.
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
from relive.losses.td import LossKind, td_error, td_slope
from relive.losses.twin import (
    RowError,
    clipped_double_target,
    critics_loss,
    row_error,
    smoothed_action,
)
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

NUM_CRITICS = 2

# -- settings ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TD3Config:
    """Settings of TD3; noise is measured in halves of the range of an action.

    Attributes:
        hidden: Widths of the hidden layers of policy and critics; images are convolved before them.
        lr: Step size of Adam at the first update, for policy and critics.
        lr_end: Step size that a straight line reaches behind the last planned update; None
            keeps `lr`.
        tau: Part of the way the target networks move with every step of the policy.
        policy_delay: Updates of the critics for one of the policy and of the target networks.
        target_noise: Deviation of the noise on the target's actions.
        target_noise_clip: The largest such noise.
        exploration_noise: Deviation of the noise on the actions that are taken.
        loss: Loss of a TD error: half its square (mse), or with its slope clipped at 1 (huber).
        row_error: The error of a row: mean or max of its critics' |delta|.
        max_grad_norm: Gradients longer than this are shortened to it; None leaves them.

    Raises:
        ConfigError: A value outside its range.
    """

    hidden: tuple[int, ...] = (256, 256)
    lr: float = 3e-4
    lr_end: float | None = None
    tau: float = 0.005
    policy_delay: int = 2
    target_noise: float = 0.2
    target_noise_clip: float = 0.5
    exploration_noise: float = 0.1
    loss: LossKind = "mse"
    row_error: RowError = "mean"
    max_grad_norm: float | None = None

    def __post_init__(self) -> None:
        hold_to_types(self, "agent.")
        table = (
            ("hidden", self.hidden and min(self.hidden) >= 1, "widths >= 1, at least one"),
            ("lr", 0 < self.lr < math.inf, "> 0 and finite"),
            ("lr_end", self.lr_end is None or self.lr_end >= 0, ">= 0 or None"),
            ("tau", 0 < self.tau <= 1, "in (0, 1]"),
            ("policy_delay", self.policy_delay >= 1, ">= 1"),
            ("target_noise", self.target_noise >= 0, ">= 0"),
            ("target_noise_clip", self.target_noise_clip >= 0, ">= 0"),
            ("exploration_noise", self.exploration_noise >= 0, ">= 0"),
            ("max_grad_norm", self.max_grad_norm is None or self.max_grad_norm > 0, "> 0 or None"),
        )
        check_settings(self, table)

    def epsilon(self, total_steps: int) -> Linear:  # noqa: ARG002  # as other agents have it
        """Share of random actions: none, the noise explores."""
        return Linear(0.0, 0.0, 1)


# -- agent -------------------------------------------------------------------------------------


class TD3(CopiedByState):
    """An agent with one action for a state, and two critics of which the smaller one counts.

    Args:
        obs: Field of one observation, or a mapping of fields.
        actions: The box of its actions.
        config: Settings.
        planned_updates: Updates in the whole run, over which `lr` moves to `lr_end`.
        device: Where the networks live; batches are moved there.
        seed: Of the first weights, of exploration and of the target's noise; nothing else draws.

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
        config: TD3Config | None = None,
        *,
        planned_updates: int = 1,
        device: torch.device | str = "cpu",
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        check_obs_and_config(self, obs, config, TD3Config)
        check_box(self, actions)
        self.obs, self.actions = obs, actions
        self.config = config or TD3Config()
        self.device = known_device(device)
        self.rng = np.random.default_rng(seed)
        generator = torch.Generator().manual_seed(int(self.rng.integers(2**63)))
        self.target_noise = RandomStream(int(self.rng.integers(2**63)), self.device)
        self.scale = actions.to(self.device)
        size, hidden = actions.size, self.config.hidden
        self.actor = DeterministicPolicy(obs, size, hidden, generator).to(self.device)
        self.critics = Critics(obs, size, NUM_CRITICS, hidden, generator).to(self.device)
        self.target_actor = copy.deepcopy(self.actor).requires_grad_(False)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor_parameters = FlatParameters(self.actor)
        self.critic_parameters = FlatParameters(self.critics)
        self.actor_backprop = PolicyBackprop(self.actor, self.actor_parameters, self.target_actor)
        self.critic_backprop = CriticBackprop(
            self.critics, self.critic_parameters, self.target_critics
        )
        self.target_actor_parameters = FlatParameters(self.target_actor)
        self.target_critic_parameters = FlatParameters(self.target_critics)
        self.actor_optimizer = Adam(self.actor_parameters)
        self.critic_optimizer = Adam(self.critic_parameters)
        self.learning_rate = LearningRate(
            self.config.lr, self.config.lr_end, planned_updates, self.device
        )
        self.updates = 0
        self.exploration = RandomStream.spawned(self.rng, self.device)
        self._actor_loss = torch.zeros(
            (), dtype=torch.float32, device=self.device
        )  # of the last step of the policy

    @property
    def policy(self) -> DeterministicPolicy:
        """The network that acts."""
        return self.actor

    @property
    def generators(self) -> list[torch.Generator]:
        """What draws on the device."""
        return [self.target_noise.generator, self.exploration.generator]

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
        """A step of Adam for the critics, and for the policy when it is due. Waits for nothing.

        Args:
            *batches: Rows on any device; several are learned from as if they were one.

        Returns:
            An error of every row, from before the step, and metrics.

        Raises:
            InputError: No batch, or something else.
        """
        result = self.learn(batches, self.due(self.updates + 1))
        self.updates += 1
        return result

    def due(self, update: int) -> bool:
        """Whether policy and targets move at an update; the first is 1."""
        return update % self.config.policy_delay == 0

    @torch.inference_mode(False)  # gradients are taken wherever it is called
    def learn(self, batches: Sequence[Batch], due: bool) -> UpdateResult:
        """What `update` does on the device: equal calls launch equal work.

        Args:
            batches: As there.
            due: Whether policy and targets move.
        """
        config = self.config
        batches = batches_on(self.device, batches)
        loss, error, q = accumulate(batches, self._critic_terms, self.critic_backprop)
        grad_norm = self.critic_parameters.clip_grad(config.max_grad_norm)
        lr = self.learning_rate.next()
        self.critic_optimizer.step(lr)

        if due:
            actor_loss = self._update_policy(batches, lr)
            self.target_actor_parameters.step_towards(self.actor_parameters, config.tau)
            self.target_critic_parameters.step_towards(self.critic_parameters, config.tau)
        else:
            actor_loss = self._actor_loss.clone()

        metrics = {
            "loss": loss,
            "td_error": error.mean(),
            "q_mean": q.mean(),
            "grad_norm": grad_norm,
            "actor_loss": actor_loss,
        }
        return UpdateResult(td_error=error, metrics=metrics)

    def _critic_terms(self, batch: Batch) -> tuple[Loss, Tensor, Tensor]:
        """The loss, the errors `[B]` and the values of the actions taken, `[B, K]`."""
        config = self.config
        with torch.no_grad():
            action = self.actor_backprop.target(batch.next_obs)
            noise = config.target_noise * self.target_noise.normal(*action.shape)
            action = smoothed_action(action, noise, config.target_noise_clip, -1.0, 1.0)
            q_next = self.critic_backprop.target(batch.next_obs, action)
            target = clipped_double_target(batch.reward, batch.discount, q_next)
        q = self.critic_backprop.forward(batch.obs, self.scale.to_unit(batch.action))
        delta = td_error(q.detach(), target)
        slope = td_slope(delta, batch.weights, config.loss)
        loss = Loss(critics_loss(delta, batch.weights, config.loss), (q,), (slope,))
        return loss, row_error(delta, config.row_error), q.detach().T

    def _update_policy(self, batches: Sequence[Batch], lr: float | Tensor) -> Tensor:
        """The loss, `[]`."""
        (loss,) = accumulate(batches, self._policy_terms, self.actor_backprop)
        if self.config.max_grad_norm is not None:
            self.actor_parameters.clip_grad(self.config.max_grad_norm)
        self.actor_optimizer.step(lr)
        if self.config.policy_delay > 1:
            self._actor_loss.copy_(loss)
        return loss

    def _policy_terms(self, batch: Batch) -> tuple[Loss]:
        """The loss."""
        action = self.actor_backprop.forward(batch.obs)
        q = self.critic_backprop.forward(batch.obs, action, members=1)
        slope = deterministic_policy_slope(batch.weights).unsqueeze(0)
        output, slope = self.critic_backprop.to_action(q, slope, action)
        mean = deterministic_policy_loss(q.detach()[0], batch.weights)
        return (Loss(mean, (output,), (slope,)),)

    # -- save

    def state_dict(self) -> dict[str, Any]:
        """All that later actions and updates depend on, in the memory of the agent."""
        return {
            "actor": self.actor.state_dict(),
            "critics": self.critics.state_dict(),
            "target_actor": self.target_actor.state_dict(),
            "target_critics": self.target_critics.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
            "updates": self.updates,
            "rng": self.rng.bit_generator.state,
            "exploration": self.exploration.state_dict(),
            "target_noise": self.target_noise.state_dict(),
            "actor_loss": self._actor_loss,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` of an agent with the same settings gave; copies it.

        Raises:
            InputError: The state of another kind of agent.
        """
        check_state(self, state)
        for name in ("actor", "critics", "target_actor", "target_critics"):
            getattr(self, name).load_state_dict(state[name])
        self.actor_optimizer.load_state_dict(state["actor_optimizer"])
        self.critic_optimizer.load_state_dict(state["critic_optimizer"])
        self.updates = state["updates"]
        self.learning_rate.set(self.updates)
        self.rng.bit_generator.state = state["rng"]
        self.exploration.load_state_dict(state.get("exploration"))
        self.target_noise.load_state_dict(state["target_noise"])
        self._actor_loss.copy_(state["actor_loss"])
