"""Model-based policy optimisation on Pendulum (Janner et al. 2019, arXiv:1906.08253), small.

    python examples/mbpo.py

Two buffers: one of the environment, one of a learned model. Every `MODEL_EVERY` steps the model is
trained on all rows of the first, but for some held out at random; then it goes on from states drawn
uniformly from there, by one step, and what it says fills the second. SAC learns from both at once.
Printed is the mean return of greedy episodes, beside that of SAC without a model, which makes as
many steps and updates.

It shows how the parts fit, not that a model pays: on Pendulum SAC alone does as well with as many
updates. Means of 10 episodes a seed: after 600 steps MBPO -269.9, SAC -247.5 (seeds 0 to 2); after
400 steps MBPO -1123.0, SAC -1144.7 (seeds 10 to 14). The squared error of rows held out was 0.0005
to 0.01 of their variance.

    K  members of the model    B  rows    F  observation and action    G  change, and reward
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import gymnasium as gym
import torch
from torch import Tensor

from relive import Mixture, ReplayBuffer, fields_of
from relive.agents import SAC, ActionScale, SACConfig
from relive.nn import EnsembleMLP
from relive.training import evaluate, evaluation_seeds

if TYPE_CHECKING:
    from relive import Batch

ENV = "Pendulum-v1"
GAMMA = 0.99
BATCH = 128
UPDATES = 10  # per step of the environment
RANDOM_STEPS = 200
MODEL_EVERY = 100  # steps between two trainings of the model
ROLLOUTS = 10_000  # states that it goes on from, each time
REAL_RATIO = 0.1  # share of a batch that the environment has made
MEMBERS, ELITES = 5, 3
HOLDOUT = 0.2
MODEL_BATCH = 64
PATIENCE = 10  # passes over the rows without a better model


class Model:
    """What an action does, as K networks see it: the change of the observation, and the reward.

    Pendulum has no chance in it, so they say numbers; the paper's say normal distributions. Where
    they do not know, they disagree.

    Args:
        obs_size: Of an observation.
        action_size: Of an action.
        generator: Draws the first weights, the order of rows and who is asked.
    """

    def __init__(self, obs_size: int, action_size: int, generator: torch.Generator) -> None:
        self.generator = generator
        self.net = EnsembleMLP(MEMBERS, obs_size + action_size, (128, 128), obs_size + 1, generator)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def fit(self, buffer: ReplayBuffer, seed: int) -> float:
        """Trains on all rows but those held out, until these are told no better.

        Returns:
            The squared error of the rows held out, in squares of their deviation.
        """
        train, holdout = (_pairs(buffer.rows(ids)) for ids in buffer.split(HOLDOUT, seed))
        self.scales = [(part.mean(0), part.std(0) + 1e-6) for part in train]
        (x, y), (x_out, y_out) = self._scaled(train), self._scaled(holdout)
        best, waited = torch.inf, 0
        while waited < PATIENCE:
            for rows in torch.randperm(len(x), generator=self.generator).split(MODEL_BATCH):
                loss = (self.net(x[rows]) - y[rows]).square().mean((1, 2)).sum()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
            with torch.no_grad():
                errors = (self.net(x_out) - y_out).square().mean((1, 2))  # [K]
            self.elites = errors.argsort()[:ELITES]
            error = float(errors.mean())
            best, waited = (error, 0) if error < 0.99 * best else (best, waited + 1)
        return best

    def step(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Next observation and reward, as one of the best members says, drawn for each row."""
        (x_mean, x_std), (y_mean, y_std) = self.scales
        with torch.no_grad():
            told = self.net((torch.cat([obs, action], 1) - x_mean) / x_std)  # [K, B, G]
        chosen = self.elites[torch.randint(ELITES, (len(obs),), generator=self.generator)]
        change = told[chosen, torch.arange(len(obs))] * y_std + y_mean
        return obs + change[:, :-1], change[:, -1]

    def _scaled(self, pair: tuple[Tensor, Tensor]) -> list[Tensor]:
        return [(p - mean) / std for p, (mean, std) in zip(pair, self.scales, strict=True)]


def _pairs(batch: Batch) -> tuple[Tensor, Tensor]:
    """What the model is given, `[B, F]`, and what it should say, `[B, G]`."""
    change = torch.cat([batch.next_obs - batch.obs, batch.reward[:, None]], 1)
    return torch.cat([batch.obs, batch.action], 1), change


def imagine(model: Model, agent: SAC, real: ReplayBuffer, imagined: ReplayBuffer) -> None:
    """Fills the second buffer: one step of the model from states drawn from the first.

    Several steps would be a loop over this. `sample_range` does not count as training, and draws
    uniformly from the rows with these ids: here all, a narrower range is the way to newer ones.
    """
    ids = real.live_ids()
    obs = real.sample_range(ROLLOUTS, int(ids[0]), int(ids[-1]) + 1).obs
    action = torch.from_numpy(agent.act(obs.numpy()))
    next_obs, reward = model.step(obs, action)
    imagined.extend(
        obs=obs,
        action=action,
        reward=reward,
        next_obs=next_obs,
        terminated=torch.zeros(ROLLOUTS, dtype=torch.bool),  # Pendulum never ends by itself
        discount=torch.full((ROLLOUTS,), GAMMA),  # rows as they are, which follow none
    )


def train(steps: int, *, with_model: bool, seed: int = 0) -> SAC:
    """SAC after so many steps of the environment, with a model or without."""
    env = gym.make(ENV)
    real = ReplayBuffer.for_env(env, max(steps, BATCH), gamma=GAMMA, seed=seed)
    imagined = ReplayBuffer.for_env(env, 2 * ROLLOUTS, gamma=GAMMA, seed=seed + 1)
    both = Mixture([real, imagined], shares=[REAL_RATIO, 1 - REAL_RATIO])
    box = ActionScale.for_env(env)
    agent = SAC(fields_of(env)["obs"], box, SACConfig(hidden=(64, 64), lr=1e-3), seed=seed)
    model = Model(3, 1, torch.Generator().manual_seed(seed))
    obs, _ = env.reset(seed=seed)
    for step in range(steps):
        action = agent.act(obs[None], epsilon=float(step < RANDOM_STEPS))[0]
        next_obs, reward, terminated, truncated, _ = env.step(action)
        real.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
        )
        obs = env.reset()[0] if terminated or truncated else next_obs
        if step < RANDOM_STEPS:
            continue
        if with_model and (step - RANDOM_STEPS) % MODEL_EVERY == 0:
            model.fit(real, seed=step)  # another seed holds other rows out
            imagine(model, agent, real, imagined)
        for _ in range(UPDATES):
            agent.update((both if with_model else real).sample(BATCH))
    env.close()
    return agent


def main(steps: int = 600, episodes: int = 10) -> dict[str, float]:
    """Trains both and prints what they reach; the mean returns by name."""
    found = {}
    for name, with_model in (("SAC", False), ("MBPO", True)):
        returns = evaluate(train(steps, with_model=with_model), ENV, evaluation_seeds(episodes))
        found[name] = sum(returns) / len(returns)
        print(f"{name:5} after {steps:,} steps: {found[name]:8.1f}")
    return found


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
