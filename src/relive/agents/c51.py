"""Categorical DQN (Bellemare et al. 2017, "A distributional perspective", C51).

    B  rows of a batch    E  environments    A  actions    N  atoms

    Q(s, a)  = sum_j z_j p_j(s, a)
    m_i      = projection of r_i + discount_i * z onto the atoms, with the probabilities
               p'(s'_i, argmax_a Q'(s'_i, a)); double: the online network picks the action
    loss     = mean_i w_i * H(m_i, p(s_i, a_i))          H: cross-entropy
    error_i  = H(m_i, p(s_i, a_i)) - H(m_i)              the divergence KL(m_i || p)

Noisy layers (Fortunato et al. 2018), double and dueling networks are settings. Deviations from the
papers are listed in docs/algorithms/c51.md.
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
from relive.losses.categorical import cross_entropy, expected_value, kl_divergence, project
from relive.losses.td import weighted_mean
from relive.nn.adam import Adam
from relive.nn.encoders import encoder_for
from relive.nn.flat import FlatParameters
from relive.nn.heads import CategoricalHead
from relive.nn.learning_rate import LearningRate
from relive.nn.mlp import MLP, linear
from relive.nn.noisy import NetworkNoise, noisy
from relive.nn.streams import RandomStream
from relive.schedules import Linear

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from relive.batch import Batch, Observation
    from relive.fields import Field, Fields

# -- settings ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class C51Config:
    """Settings of C51.

    Attributes:
        atoms: Values that a return can have in the eyes of the network.
        v_min: The smallest of them; returns below count as this one.
        v_max: The largest of them.
        double: Let the online network pick the next action, and the target network tell its
            returns.
        dueling: Split the logits into those of the state and those of the action.
        noisy_sigma: First deviation of noise in the weights, to explore with; None for layers
            without noise.
        hidden: Widths of the hidden layers; images are convolved before them.
        lr: Step size of Adam at the first update.
        lr_end: Step size that a straight line reaches behind the last planned update; None
            keeps `lr`.
        adam_eps: Added to the root of the second moment by Adam.
        tau: Part of the way the target network moves towards the online one: 1 copies, less is
            Polyak.
        target_period: Updates between two moves of the target network.
        max_grad_norm: Gradients longer than this are shortened to it; None leaves them.
        epsilon_start: Share of random actions at the first step.
        epsilon_end: Share of random actions once exploration has come to its end.
        epsilon_fraction: Part of the run over which epsilon falls from its start to its end.

    Raises:
        ConfigError: A value outside its range.
    """

    atoms: int = 51
    v_min: float = -10.0
    v_max: float = 10.0
    double: bool = False
    dueling: bool = False
    noisy_sigma: float | None = None
    hidden: tuple[int, ...] = (256, 256)
    lr: float = 2.5e-4
    lr_end: float | None = None
    adam_eps: float = 3.125e-4
    tau: float = 1.0
    target_period: int = 500
    max_grad_norm: float | None = 10.0
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_fraction: float = 0.2

    def __post_init__(self) -> None:
        hold_to_types(self, "agent.")
        table = (
            ("atoms", self.atoms >= 2, ">= 2"),
            ("v_max", self.v_max > self.v_min, f"above v_min, {self.v_min}"),
            ("noisy_sigma", self.noisy_sigma is None or self.noisy_sigma > 0, "> 0 or None"),
            ("hidden", self.hidden and min(self.hidden) >= 1, "widths >= 1, at least one"),
            ("lr", 0 < self.lr < math.inf, "> 0 and finite"),
            ("lr_end", self.lr_end is None or self.lr_end >= 0, ">= 0 or None"),
            ("adam_eps", self.adam_eps > 0, "> 0"),
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


class ReturnNetwork(nn.Module):
    """Distributions of the return of all actions: observations of B rows -> logits `[B, A, N]`."""

    support: Tensor

    def __init__(
        self,
        obs: Field | Fields,
        num_actions: int,
        config: C51Config,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        layer = linear if config.noisy_sigma is None else noisy(config.noisy_sigma)
        self.encoder = encoder_for(obs, generator)
        self.trunk = MLP(self.encoder.out_features, config.hidden, generator, layer=layer)
        self.head = CategoricalHead(
            self.trunk.out_features,
            num_actions,
            config.atoms,
            generator,
            dueling=config.dueling,
            layer=layer,
        )
        support = torch.linspace(config.v_min, config.v_max, config.atoms, dtype=torch.float32)
        self.register_buffer("support", support, persistent=False)

    def forward(self, obs: Observation) -> Tensor:
        """Logits `[B, A, N]`."""
        # forward, not a call: looking for hooks costs as much as a small layer
        return self.head.forward(self.trunk.forward(self.encoder.forward(obs)))

    def values(self, obs: Observation) -> Tensor:
        """Action values `[B, A]`: the means of the distributions."""
        return expected_value(self.forward(obs).softmax(2), self.support)


# -- agent -------------------------------------------------------------------------------------


class C51(CopiedByState):
    """An agent that learns the distribution of each action's return and takes the best mean.

    Args:
        obs: Field of one observation, or a mapping of fields.
        num_actions: Actions are 0 ... num_actions - 1.
        config: Settings.
        planned_updates: Updates in the whole run, over which `lr` moves to `lr_end`.
        device: Where the networks live; batches are moved there.
        seed: Of the first weights, of exploration and of noise; nothing else draws.

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
        config: C51Config | None = None,
        *,
        planned_updates: int = 1,
        device: torch.device | str = "cpu",
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        check_obs_and_config(self, obs, config, C51Config)
        check_num_actions(self, num_actions)
        self.obs, self.num_actions = obs, num_actions
        self.config = config or C51Config()
        self.device = known_device(device)
        self.rng = np.random.default_rng(seed)
        generator = torch.Generator().manual_seed(int(self.rng.integers(2**63)))
        self.acting_noise, self.learning_noise = (
            RandomStream(int(self.rng.integers(2**63)), self.device) for _ in range(2)
        )
        self.online = ReturnNetwork(obs, num_actions, self.config, generator).to(self.device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.parameters = FlatParameters(self.online)
        self.target_parameters = FlatParameters(self.target)
        self.noise, self.target_noise = NetworkNoise(self.online), NetworkNoise(self.target)
        self.optimizer = Adam(self.parameters, eps=self.config.adam_eps)
        self.learning_rate = LearningRate(
            self.config.lr, self.config.lr_end, planned_updates, self.device
        )
        self.updates = 0
        self.exploration = RandomStream.spawned(self.rng, self.device)

    @property
    def policy(self) -> ReturnNetwork:
        """The network that acts."""
        return self.online

    @property
    def actions(self) -> int:
        """How many actions there are."""
        return self.num_actions

    @property
    def generators(self) -> list[torch.Generator]:
        """What draws on the device."""
        return [
            self.acting_noise.generator,
            self.learning_noise.generator,
            self.exploration.generator,
        ]

    # -- act

    def act(self, obs: Any, epsilon: float = 0.0) -> NDArray[np.int64]:
        """Epsilon-greedy actions, with new noise in the weights if there is any.

        Args:
            obs: Observations of E environments, NumPy `[E, *shape]`, or a dict of them.
            epsilon: Probability of a uniformly random action, in each environment by itself.

        Returns:
            Actions `[E]`. Waits for the device.
        """
        num_envs = count_envs(obs)
        explore = self.rng.random(num_envs) < epsilon
        if not explore.any():
            return self._best(obs, self.acting_noise)
        action = self.rng.integers(self.num_actions, size=num_envs)
        if explore.all():
            return action
        return np.where(explore, action, self._best(obs, self.acting_noise))

    def act_greedy(self, obs: Any) -> NDArray[np.int64]:
        """The action of highest mean for each of E observations; `[E]`. Waits for the device."""
        return self._best(obs, None)

    def _best(self, obs: Any, stream: RandomStream | None) -> NDArray[np.int64]:
        self.noise.draw(stream)
        with torch.inference_mode():
            q = self.online.values(tensors_of(obs, self.obs, self.device))
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
        self.noise.draw(self.acting_noise)
        best = self.online.values(obs).argmax(1)
        action = self.exploration.integers(self.num_actions, len(best))
        return self.exploration.mixed(best, action, epsilon)

    # -- update

    def update(self, *batches: Batch) -> UpdateResult:
        """One step of Adam, and of the target network when it is due. Waits for nothing.

        Args:
            *batches: Rows on any device; several are learned from as if they were one.

        Returns:
            The divergence of every row, from before the step, and metrics.

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
        self.noise.draw(self.learning_noise)
        self.target_noise.draw(self.learning_noise)
        loss, divergence, q = accumulate(batches, self._terms, self.parameters)
        grad_norm = self.parameters.clip_grad(config.max_grad_norm)
        self.optimizer.step(self.learning_rate.next())
        if due:
            self.target_parameters.step_towards(self.parameters, config.tau)

        metrics = {
            "loss": loss,
            "td_error": divergence.mean(),
            "q_mean": q.mean(),
            "grad_norm": grad_norm,
        }
        return UpdateResult(td_error=divergence, metrics=metrics)

    def _terms(self, batch: Batch) -> tuple[Loss, Tensor, Tensor]:
        """The loss, the divergence and the values of the actions taken, `[B]` each."""
        support = self.online.support
        with torch.no_grad():
            probs = self._next_probs(batch.next_obs)
            target = project(probs, support, batch.reward, batch.discount)
        log_probs = _of_action(self.online(batch.obs), batch.action).log_softmax(1)
        entropy = cross_entropy(log_probs, target)
        loss = Loss.with_graph(weighted_mean(entropy, batch.weights))
        divergence = kl_divergence(entropy.detach(), target)
        return loss, divergence, expected_value(log_probs.detach().exp(), support)

    def _next_probs(self, next_obs: Observation) -> Tensor:
        """Distribution of the return from the observation each row ends in, `[B, N]`."""
        probs: Tensor = self.target(next_obs).softmax(2)
        if self.config.double:
            best = self.online.values(next_obs).argmax(1)
        else:
            best = expected_value(probs, self.target.support).argmax(1)
        return _of_action(probs, best)

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
            "acting_noise": self.acting_noise.state_dict(),
            "learning_noise": self.learning_noise.state_dict(),
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
        self.acting_noise.load_state_dict(state["acting_noise"])
        self.learning_noise.load_state_dict(state["learning_noise"])


def _of_action(values: Tensor, action: Tensor) -> Tensor:
    """Of `[B, A, N]` the row of one action each, `[B, N]`."""
    place = action.view(-1, 1, 1).expand(-1, 1, values.shape[2])
    return values.gather(1, place).squeeze(1)
