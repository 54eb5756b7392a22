"""A training loop of your own: an environment, a buffer, an agent of relive, nothing else.

    python examples/loop.py

SAC with prioritized replay learns to swing up Pendulum, in some minutes on a CPU.
"""

from __future__ import annotations

import sys

import gymnasium as gym

import relive
from relive.agents import SAC, ActionScale, SACConfig
from relive.training import evaluate, evaluation_seeds

ENV = "Pendulum-v1"
BATCH = 128


def main(steps: int = 5_000, episodes: int = 10) -> tuple[float, ...]:
    """Trains for so many steps; the returns of greedy episodes."""
    env = gym.make(ENV)
    sampler = relive.Proportional(beta=relive.Linear(0.4, 1.0, steps=steps), normalize="batch")
    buffer = relive.ReplayBuffer.for_env(env, 50_000, sampler=sampler, gamma=0.99, seed=0)
    box = ActionScale.for_env(env)
    agent = SAC(relive.fields_of(env)["obs"], box, SACConfig(hidden=(64, 64), lr=1e-3), seed=0)
    obs, _ = env.reset(seed=0)
    for step in range(steps):
        action = agent.act(obs[None], epsilon=float(step < BATCH))[0]  # at random at first
        next_obs, reward, terminated, truncated, _ = env.step(action)
        buffer.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
        )
        obs = env.reset()[0] if terminated or truncated else next_obs
        if buffer.ready(BATCH):
            batch = buffer.sample(BATCH)
            result = agent.update(batch)
            buffer.update_priorities(batch.ids, result.td_error)
    env.close()
    returns = evaluate(agent, ENV, evaluation_seeds(episodes))
    mean = sum(returns) / len(returns)
    print(f"mean return of {episodes} greedy episodes after {steps:,} steps: {mean:.1f}")
    return returns


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
