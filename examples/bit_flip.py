"""Bits to flip until they are as wanted, with and without hindsight.

The first experiment of Andrychowicz et al. 2017 (arXiv:1707.01495, section 3.1).

    python examples/bit_flip.py

Each action flips one of n bits; the reward is -1 until all are as wanted, which ends the episode.
With 15 bits chance finds that once in thousands of episodes, so DQN sees nothing but -1; with
hindsight every episode has reached something. The share of greedy episodes that reach their goal:
PLACEHOLDER

From here `relive train dqn --env bit_flip:BitFlip-v0 --hindsight.goals 4` trains on it too.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete

import relive
from relive.agents import DQN, DQNConfig

if TYPE_CHECKING:
    from numpy.typing import NDArray

BITS, BATCH = 15, 128


class BitFlip(gym.Env[dict[str, Any], int]):
    """n bits; an episode has at most n steps."""

    def __init__(self, bits: int = BITS) -> None:
        space = Box(0, 1, (bits,), np.float32)
        names = "observation", "achieved_goal", "desired_goal"
        self.observation_space = Dict(dict.fromkeys(names, space))
        self.action_space = Discrete(bits)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """New bits and a new goal."""
        super().reset(seed=seed, options=options)
        self._bits, self._goal = self.np_random.integers(0, 2, (2, *self._shape)).astype(np.float32)
        self._steps = 0
        return self._seen(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Flips a bit."""
        self._bits[action] = 1 - self._bits[action]
        self._steps += 1
        terminated = bool(self.compute_terminated(self._bits, self._goal, {}))
        reward = float(self.compute_reward(self._bits, self._goal, {}))
        return self._seen(), reward, terminated, self._steps == self._shape[0], {}

    def compute_reward(self, achieved: NDArray[Any], desired: NDArray[Any], _: Any) -> Any:
        """0 where the goal is reached, -1 elsewhere."""
        return -(achieved != desired).any(-1).astype(np.float32)

    def compute_terminated(self, achieved: NDArray[Any], desired: NDArray[Any], _: Any) -> Any:
        """Whether the goal is reached."""
        return (achieved == desired).all(-1)

    @property
    def _shape(self) -> tuple[int, ...]:
        shape = self.observation_space["desired_goal"].shape
        assert shape is not None
        return shape

    def _seen(self) -> dict[str, Any]:
        seen = {"observation": self._bits, "achieved_goal": self._bits, "desired_goal": self._goal}
        return {key: bits.copy() for key, bits in seen.items()}


gym.register("BitFlip-v0", BitFlip)


def success(steps: int, goals: int, seed: int = 0, bits: int = BITS) -> float:
    """Share of 200 greedy episodes that reach their goal, after so many steps of training."""
    env = BitFlip(bits)
    buffer = relive.ReplayBuffer.for_env(env, 100_000, gamma=0.98, seed=seed)
    hindsight = relive.Hindsight.for_env(buffer, env, goals=goals, seed=seed) if goals else buffer
    config = DQNConfig(hidden=(256,), lr=1e-3)
    agent = DQN(relive.fields_of(env)["obs"], bits, config, seed=seed)
    obs, _ = env.reset(seed=seed)
    for _ in range(steps):
        action = int(agent.act(batched(obs), epsilon=0.2)[0])
        next_obs, reward, terminated, truncated, _ = env.step(action)
        hindsight.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
        )
        obs = env.reset()[0] if terminated or truncated else next_obs
        if buffer.ready(BATCH):
            agent.update(buffer.sample(BATCH))
    return float(np.mean([reaches(env, agent) for _ in range(200)]))


def reaches(env: BitFlip, agent: DQN) -> bool:
    """Whether a greedy episode ends at its goal."""
    obs, _ = env.reset()
    while True:
        obs, _, terminated, truncated, _ = env.step(int(agent.act(batched(obs), epsilon=0.0)[0]))
        if terminated or truncated:
            return terminated


def batched(obs: dict[str, Any]) -> dict[str, Any]:
    """One observation as a batch of one."""
    return {key: value[None] for key, value in obs.items()}


def main(steps: int = 10_000) -> None:
    """Trains twice."""
    for goals in (0, 4):
        print(f"{goals} goals a step: {success(steps, goals):.3f} of episodes reach theirs")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
