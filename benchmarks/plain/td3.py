"""TD3 in one file, as one writes it by hand: NumPy replay, nn.Sequential, torch.optim.Adam.

    python benchmarks/plain/td3.py --env HalfCheetah-v5

What `relive.agents.TD3` is compared with. It knows no tricks, and makes no detours either.
"""

from __future__ import annotations

import argparse
import copy
import time
from typing import TYPE_CHECKING

import gymnasium as gym
import numpy as np
import torch
from torch import nn, optim
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable


class ReplayBuffer:
    """A ring of arrays, one a field."""

    def __init__(self, env: gym.Env, capacity: int, seed: int) -> None:
        obs_size, action_size = env.observation_space.shape[0], env.action_space.shape[0]
        self.obs = np.zeros((capacity, obs_size), np.float32)
        self.action = np.zeros((capacity, action_size), np.float32)
        self.reward = np.zeros((capacity, 1), np.float32)
        self.next_obs = np.zeros((capacity, obs_size), np.float32)
        self.terminated = np.zeros((capacity, 1), np.float32)
        self.capacity, self.count = capacity, 0
        self.rng = np.random.default_rng(seed)

    def add(self, obs, action, reward, next_obs, terminated) -> None:
        """Writes one transition over the oldest."""
        i = self.count % self.capacity
        self.obs[i] = obs
        self.action[i] = action
        self.reward[i] = reward
        self.next_obs[i] = next_obs
        self.terminated[i] = terminated
        self.count += 1

    def sample(self, batch_size: int) -> list[torch.Tensor]:
        """A uniform batch: obs, action, reward, next_obs, terminated."""
        i = self.rng.integers(min(self.count, self.capacity), size=batch_size)
        fields = (self.obs, self.action, self.reward, self.next_obs, self.terminated)
        return [torch.from_numpy(field[i]) for field in fields]


def mlp(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )


class Actor(nn.Module):
    """An action for a state, in the box of the environment."""

    def __init__(self, env: gym.Env, hidden: int) -> None:
        super().__init__()
        space = env.action_space
        self.net = mlp(env.observation_space.shape[0], hidden, space.shape[0])
        self.register_buffer("scale", torch.as_tensor((space.high - space.low) / 2))
        self.register_buffer("middle", torch.as_tensor((space.high + space.low) / 2))

    def forward(self, obs):
        """An action."""
        return torch.tanh(self.net(obs)) * self.scale + self.middle


class Critic(nn.Module):
    """Q(s, a)."""

    def __init__(self, env: gym.Env, hidden: int) -> None:
        super().__init__()
        self.net = mlp(env.observation_space.shape[0] + env.action_space.shape[0], hidden, 1)

    def forward(self, obs, action):
        """A value a row."""
        return self.net(torch.cat([obs, action], 1))


def follow(target: nn.Module, source: nn.Module, tau: float) -> None:
    """Moves a target network a part of the way."""
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), source.parameters(), strict=True):
            slow.mul_(1 - tau).add_(fast, alpha=tau)


class TD3:
    """Networks, optimisers, and a step of all of them."""

    def __init__(self, env: gym.Env, args: argparse.Namespace) -> None:
        self.args, self.updates = args, 0
        self.low, self.high = env.action_space.low, env.action_space.high
        self.actor = Actor(env, args.hidden)
        self.qf1, self.qf2 = Critic(env, args.hidden), Critic(env, args.hidden)
        self.actor_target = copy.deepcopy(self.actor)
        self.qf1_target, self.qf2_target = copy.deepcopy(self.qf1), copy.deepcopy(self.qf2)
        q_parameters = [*self.qf1.parameters(), *self.qf2.parameters()]
        self.q_optimizer = optim.Adam(q_parameters, lr=args.lr)
        self.actor_optimizer = optim.Adam(self.actor.parameters(), lr=args.lr)

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The policy's action with noise."""
        with torch.no_grad():
            action = self.actor(torch.as_tensor(obs, dtype=torch.float32)[None])[0]
            noise = torch.randn_like(action) * self.args.exploration_noise * self.actor.scale
            return (action + noise).numpy().clip(self.low, self.high)

    def update(self, obs, action, reward, next_obs, terminated) -> None:
        """One step for the critics; every other time for policy and target networks as well."""
        args, middle, scale = self.args, self.actor.middle, self.actor.scale
        self.updates += 1
        with torch.no_grad():
            noise = torch.randn_like(action) * args.target_noise
            noise = noise.clamp(-args.noise_clip, args.noise_clip) * scale
            next_action = self.actor_target(next_obs) + noise
            next_action = next_action.clamp(middle - scale, middle + scale)
            q1_next = self.qf1_target(next_obs, next_action)
            q2_next = self.qf2_target(next_obs, next_action)
            target = reward + args.gamma * (1 - terminated) * torch.min(q1_next, q2_next)
        q_loss = functional.mse_loss(self.qf1(obs, action), target)
        q_loss = q_loss + functional.mse_loss(self.qf2(obs, action), target)
        self.q_optimizer.zero_grad()
        q_loss.backward()
        self.q_optimizer.step()

        if self.updates % args.policy_delay == 0:
            actor_loss = -self.qf1(obs, self.actor(obs)).mean()
            self.actor_optimizer.zero_grad()
            actor_loss.backward()
            self.actor_optimizer.step()
            follow(self.actor_target, self.actor, args.tau)
            follow(self.qf1_target, self.qf1, args.tau)
            follow(self.qf2_target, self.qf2, args.tau)


def print_speed() -> Callable[[int], None]:
    """Prints steps per second every thousand steps."""
    start = time.time()

    def progress(step: int) -> None:
        if step % 1000 == 0:
            print(f"step {step}  {step / (time.time() - start):.0f} steps/s", flush=True)

    return progress


def train(args: argparse.Namespace, progress: Callable[[int], None]) -> None:
    """Trains; calls `progress` after every step."""
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    env = gym.make(args.env)
    env.action_space.seed(args.seed)
    agent = TD3(env, args)
    buffer = ReplayBuffer(env, args.capacity, args.seed)

    obs, _ = env.reset(seed=args.seed)
    for step in range(1, args.steps + 1):
        random = step <= args.learning_starts
        action = env.action_space.sample() if random else agent.act(obs)
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(obs, action, reward, next_obs, terminated)
        obs = next_obs
        if terminated or truncated:
            obs, _ = env.reset()
        if step > args.learning_starts:
            agent.update(*buffer.sample(args.batch_size))
        progress(step)
    env.close()


def settings(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line, or other arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--learning-starts", type=int, default=10_000)
    parser.add_argument("--capacity", type=int, default=1_000_000)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--tau", type=float, default=0.005)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--policy-delay", type=int, default=2)
    parser.add_argument("--target-noise", type=float, default=0.2)
    parser.add_argument("--noise-clip", type=float, default=0.5)
    parser.add_argument("--exploration-noise", type=float, default=0.1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    train(settings(), print_speed())
