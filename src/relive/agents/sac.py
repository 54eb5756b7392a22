"""Soft actor-critic (Haarnoja et al. 2018b, "Soft actor-critic algorithms and applications").

    B  rows of a batch    E  environments    D  dimensions of an action, each in [-1, 1]

    a'_i     ~ pi(s'_i)
    target_i = r_i + discount_i * (min_k Q'_k(s'_i, a'_i) - alpha log pi(a'_i))     k = 1 ... K
    delta_ki = target_i - Q_k(s_i, a_i)
    critics:      loss = sum_k mean_i w_i * l(delta_ki)
    policy:       loss = mean_i w_i * (alpha log pi(a_i) - min_k Q_k(s_i, a_i)),  a_i ~ pi(s_i)
    temperature:  loss = -mean_i w_i * alpha * (log pi(a_i) + target entropy)

With ten critics, normalised layers and the smallest of a random two in the target it is the agent
of Ball et al. 2023 (RLPD).

Deviations from the papers are listed in docs/algorithms/sac.md.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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
from relive.losses.policy import (
    soft_policy_loss,
    soft_policy_slopes,
    soft_value,
    tanh_normal_log_prob,
    temperature_loss,
)
from relive.losses.td import LossKind, td_error, td_slope, td_target
from relive.losses.twin import RowError, critics_loss, row_error
from relive.nn.actor_critic import Critics, GaussianPolicy, Temperature
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
class SACConfig:
    """Settings of SAC.

    Attributes:
        hidden: Widths of the hidden layers of policy and critics; images are convolved before them.
        lr: Step size of Adam at the first update, for policy, critics and temperature.
        lr_end: Step size that a straight line reaches behind the last planned update; None
            keeps `lr`.
        tau: Part of the way the target critics move at every update.
        policy_delay: Updates of the critics for one of the policy and of the temperature.
        critics: Critics that learn apart.
        target_critics: How many of them, chosen anew by chance, the target takes the smallest of;
            None: all.
        layer_norm: Normalise each row before a ReLU of the critics.
        policy_value: What the policy climbs: the smallest critic, or the mean of them.
        temperature: What a unit of entropy is worth, at first if `tune_temperature`.
        tune_temperature: Let the temperature move so that the entropy of the policy stays near its
            target.
        target_entropy: That target, in nats, of actions in [-1, 1]; None: minus their dimensions.
        entropy_backup: Count the entropy of the next action as a part of the target.
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
    policy_delay: int = 1
    critics: int = 2
    target_critics: int | None = None
    layer_norm: bool = False
    policy_value: Literal["min", "mean"] = "min"
    temperature: float = 1.0
    tune_temperature: bool = True
    target_entropy: float | None = None
    entropy_backup: bool = True
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
            ("critics", self.critics >= 1, ">= 1"),
            (
                "target_critics",
                self.target_critics is None or 1 <= self.target_critics <= self.critics,
                f"between 1 and critics, {self.critics}, or None",
            ),
            ("temperature", self.temperature > 0, "> 0"),
            (
                "target_entropy",
                self.target_entropy is None or self.tune_temperature,
                "None unless tune_temperature",
            ),
            ("max_grad_norm", self.max_grad_norm is None or self.max_grad_norm > 0, "> 0 or None"),
        )
        check_settings(self, table)

    def epsilon(self, total_steps: int) -> Linear:  # noqa: ARG002  # as other agents have it
        """Share of random actions: none, the policy itself is random."""
        return Linear(0.0, 0.0, 1)


# -- agent -------------------------------------------------------------------------------------


class SAC(CopiedByState):
    """An agent that acts by chance, and is paid for it by the entropy of its policy.

    Args:
        obs: Field of one observation, or a mapping of fields.
        actions: The box of its actions.
        config: Settings.
        planned_updates: Updates in the whole run, over which `lr` moves to `lr_end`.
        device: Where the networks live; batches are moved there.
        seed: Of the first weights and of all actions; nothing else draws.

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
        config: SACConfig | None = None,
        *,
        planned_updates: int = 1,
        device: torch.device | str = "cpu",
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        check_obs_and_config(self, obs, config, SACConfig)
        check_box(self, actions)
        self.obs, self.actions = obs, actions
        self.config = config or SACConfig()
        self.device = known_device(device)
        self.rng = np.random.default_rng(seed)
        generator = torch.Generator().manual_seed(int(self.rng.integers(2**63)))
        self.noise = RandomStream(int(self.rng.integers(2**63)), self.device)
        self.subsets = RandomStream(int(self.rng.integers(2**63)), self.device)
        self.scale = actions.to(self.device)
        size, hidden = actions.size, self.config.hidden
        self.actor = GaussianPolicy(obs, size, hidden, generator).to(self.device)
        self.critics = Critics(
            obs,
            size,
            self.config.critics,
            hidden,
            generator,
            layer_norm=self.config.layer_norm,
        ).to(self.device)
        self.temperature = Temperature(self.config.temperature).to(self.device)
        self.target_critics = copy.deepcopy(self.critics).requires_grad_(False)
        self.actor_parameters = FlatParameters(self.actor)
        self.critic_parameters = FlatParameters(self.critics)
        self.actor_backprop = PolicyBackprop(self.actor, self.actor_parameters)
        self.critic_backprop = CriticBackprop(
            self.critics, self.critic_parameters, self.target_critics
        )
        self.target_critic_parameters = FlatParameters(self.target_critics)
        self.temperature_parameters = FlatParameters(self.temperature)
        self.actor_optimizer = Adam(self.actor_parameters)
        self.critic_optimizer = Adam(self.critic_parameters)
        self.temperature_optimizer = Adam(self.temperature_parameters)
        self.learning_rate = LearningRate(
            self.config.lr, self.config.lr_end, planned_updates, self.device
        )
        given = self.config.target_entropy
        self.target_entropy = -float(size) if given is None else given
        self.updates = 0
        self.exploration = RandomStream.spawned(self.rng, self.device)
        self._of_policy = {  # at the last step of the policy
            name: torch.zeros((), dtype=torch.float32, device=self.device)
            for name in ("actor_loss", "entropy")
        }

    @property
    def policy(self) -> GaussianPolicy:
        """The network that acts."""
        return self.actor

    @property
    def generators(self) -> list[torch.Generator]:
        """What draws on the device."""
        return [self.noise.generator, self.subsets.generator, self.exploration.generator]

    # -- act

    def act(self, obs: Any, epsilon: float = 0.0) -> NDArray[np.float32]:
        """Actions drawn from the policy, some uniformly random.

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
        action = self._drawn(obs, self.rng.standard_normal(shape, np.float32))
        if explorers:
            action = np.where(explore[:, None], self.rng.uniform(-1.0, 1.0, shape), action)
        return self.actions.array_from_unit(action)

    def act_greedy(self, obs: Any) -> NDArray[np.float32]:
        """The middle of the policy for E observations, `[E, *shape]`. Waits for the device."""
        return self.actions.array_from_unit(self._drawn(obs, None))

    def _drawn(self, obs: Any, noise: NDArray[np.float32] | None) -> NDArray[Any]:
        with torch.inference_mode():
            before, log_std = self.actor.forward(tensors_of(obs, self.obs, self.device))
            if noise is not None:
                before = before + log_std.exp() * torch.from_numpy(noise).to(self.device)
            action: NDArray[Any] = before.tanh().cpu().numpy()
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
        stream, (mean, log_std) = self.exploration, self.actor.forward(obs)
        drawn = torch.addcmul(mean, log_std.exp(), stream.normal(*mean.shape)).tanh_()
        action = stream.uniform(*mean.shape) * 2.0 - 1.0
        return self.scale.from_unit(stream.mixed(drawn, action, epsilon))

    # -- update

    def update(self, *batches: Batch) -> UpdateResult:
        """A step of Adam for the critics; for policy and temperature when due. Waits for nothing.

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
        """Whether policy and temperature move at an update; the first is 1."""
        return update % self.config.policy_delay == 0

    @torch.inference_mode(False)  # gradients are taken wherever it is called
    def learn(self, batches: Sequence[Batch], due: bool) -> UpdateResult:
        """What `update` does on the device: equal calls launch equal work.

        Args:
            batches: As there.
            due: Whether policy and temperature move.
        """
        config = self.config
        batches = batches_on(self.device, batches)
        loss, error, q = accumulate(batches, self._critic_terms, self.critic_backprop)
        grad_norm = self.critic_parameters.clip_grad(config.max_grad_norm)
        lr = self.learning_rate.next()
        self.critic_optimizer.step(lr)

        of_policy = self._update_policy(batches, lr) if due else self._last_of_policy()
        self.target_critic_parameters.step_towards(self.critic_parameters, config.tau)

        metrics = {
            "loss": loss,
            "td_error": error.mean(),
            "q_mean": q.mean(),
            "grad_norm": grad_norm,
            "temperature": self.temperature.forward().detach(),
            **of_policy,
        }
        return UpdateResult(td_error=error, metrics=metrics)

    def _critic_terms(self, batch: Batch) -> tuple[Loss, Tensor, Tensor]:
        """The loss, the errors `[B]` and the values of the actions taken, `[B, K]`."""
        config = self.config
        with torch.no_grad():
            action, log_prob = self._sample(*self.actor_backprop.target(batch.next_obs))
            q = self.critic_backprop.target(batch.next_obs, action, self._subset())
            value = q.amin(0)
            if config.entropy_backup:
                value = soft_value(value, log_prob, self.temperature.forward())
            target = td_target(batch.reward, batch.discount, value)
        q = self.critic_backprop.forward(batch.obs, self.scale.to_unit(batch.action))
        delta = td_error(q.detach(), target)
        slope = td_slope(delta, batch.weights, config.loss)
        loss = Loss(critics_loss(delta, batch.weights, config.loss), (q,), (slope,))
        return loss, row_error(delta, config.row_error), q.detach().T

    def _update_policy(self, batches: Sequence[Batch], lr: float | Tensor) -> dict[str, Tensor]:
        """Metrics of the policy."""
        loss, log_prob, weights = accumulate(batches, self._policy_terms, self.actor_backprop)
        if self.config.max_grad_norm is not None:
            self.actor_parameters.clip_grad(self.config.max_grad_norm)
        self.actor_optimizer.step(lr)
        if self.config.tune_temperature:
            self._update_temperature(log_prob, weights, lr)
        metrics = {"actor_loss": loss, "entropy": -log_prob.mean()}
        if self.config.policy_delay > 1:
            for name, value in metrics.items():
                self._of_policy[name].copy_(value)
        return metrics

    def _last_of_policy(self) -> dict[str, Tensor]:
        return {name: value.clone() for name, value in self._of_policy.items()}

    @torch.no_grad()
    def _update_temperature(self, log_prob: Tensor, weights: Tensor, lr: float | Tensor) -> None:
        # alpha = exp(log alpha), and the loss is a multiple of alpha: it is its own derivative
        loss = temperature_loss(self.temperature(), log_prob, self.target_entropy, weights)
        self.temperature_parameters.grad[:1] = loss
        self.temperature_optimizer.step(lr)

    def _policy_terms(self, batch: Batch) -> tuple[Loss, Tensor, Tensor]:
        """The loss, log pi of the actions drawn and the weights, `[B]` each."""
        action, log_prob = self._sample(*self.actor_backprop.forward(batch.obs))
        q = self.critic_backprop.forward(batch.obs, action)
        temperature, weights = self.temperature.forward().detach(), batch.weights
        value_slope, log_prob_slope = soft_policy_slopes(temperature, weights)
        value, slope = self._policy_value(q.detach(), value_slope)
        output, slope = self.critic_backprop.to_action(q, slope, action)
        mean = soft_policy_loss(value, log_prob.detach(), temperature, weights)
        return Loss(mean, (output, log_prob), (slope, log_prob_slope)), log_prob, weights

    def _policy_value(self, q: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """What the policy climbs, of `q` `[K, B]`, and by each of those what is a slope by it."""
        if self.config.policy_value == "mean":
            return q.mean(0), (slope / len(q)).expand_as(q)
        value, which = q.min(0, keepdim=True)
        return value[0], torch.zeros_like(q).scatter_(0, which, slope.unsqueeze(0))

    def _sample(self, mean: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
        """Actions `[B, D]`, through which the policy is differentiated, and log pi `[B]`."""
        noise = self.noise.normal(*mean.shape)
        before = torch.addcmul(mean, log_std.exp(), noise)
        return before.tanh(), tanh_normal_log_prob(noise, log_std, before)

    def _subset(self) -> Tensor | None:
        """Numbers of the critics that value a target, int64 `[target_critics]`; None: all."""
        config = self.config
        if config.target_critics is None or config.target_critics == config.critics:
            return None
        return self.subsets.choose(config.target_critics, config.critics)

    # -- save

    def state_dict(self) -> dict[str, Any]:
        """All that later actions and updates depend on, in the memory of the agent."""
        return {
            "actor": self.actor.state_dict(),
            "critics": self.critics.state_dict(),
            "target_critics": self.target_critics.state_dict(),
            "temperature": self.temperature.state_dict(),
            "actor_optimizer": self.actor_optimizer.state_dict(),
            "critic_optimizer": self.critic_optimizer.state_dict(),
            "temperature_optimizer": self.temperature_optimizer.state_dict(),
            "updates": self.updates,
            "rng": self.rng.bit_generator.state,
            "exploration": self.exploration.state_dict(),
            "noise": self.noise.state_dict(),
            "subsets": self.subsets.state_dict(),
            "of_policy": self._of_policy,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over what `state_dict` of an agent with the same settings gave; copies it.

        Raises:
            InputError: The state of another kind of agent.
        """
        check_state(self, state)
        for name in ("actor", "critics", "target_critics", "temperature"):
            getattr(self, name).load_state_dict(state[name])
        for name in ("actor_optimizer", "critic_optimizer", "temperature_optimizer"):
            getattr(self, name).load_state_dict(state[name])
        self.updates = state["updates"]
        self.learning_rate.set(self.updates)
        self.rng.bit_generator.state = state["rng"]
        self.exploration.load_state_dict(state.get("exploration"))
        self.noise.load_state_dict(state["noise"])
        self.subsets.load_state_dict(state["subsets"])
        for name, value in self._of_policy.items():
            value.copy_(state["of_policy"][name])
