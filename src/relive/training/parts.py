"""From settings to the parts of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relive.buffer import ReplayBuffer
from relive.envs.make import make_vector_env
from relive.fields import fields_of
from relive.training.algorithms import actions_of, new_agent
from relive.training.runtime import buffer_device, resolve_device

if TYPE_CHECKING:
    from gymnasium.vector import SyncVectorEnv

    from relive.agents.agent import Agent
    from relive.training.config import TrainConfig


class Parts(NamedTuple):
    """What a run is made of.

    Attributes:
        env: E environments; the loop closes them.
        env_seeds: Seeds of their first reset.
        buffer: Where their steps go.
        agent: Acts and learns.
    """

    env: SyncVectorEnv
    env_seeds: list[int | None]
    buffer: ReplayBuffer
    agent: Agent


def build(config: TrainConfig, buffer: ReplayBuffer | None = None) -> Parts:
    """Makes the parts of a run; each draws from a random stream of its own.

    Args:
        config: Settings.
        buffer: One that was saved; None makes an empty one.

    Raises:
        ConfigError: An environment that does not exist, or that the agent cannot act in.
    """
    env_stream, buffer_stream, agent_stream = np.random.SeedSequence(config.seed).spawn(3)
    env = make_vector_env(config.env, config.num_envs)
    actions = actions_of(env, config.algorithm)
    replay = config.replay
    if buffer is None:
        buffer = ReplayBuffer.for_env(
            env,
            replay.capacity,
            sampler=replay.build_sampler(config.planned_updates * config.accumulate),
            window=replay.build_window(),
            n_step=replay.n_step,
            gamma=replay.gamma,
            device=buffer_device(config),
            rows_on=replay.rows_on,
            on_failure=replay.on_failure,
            seed=int(buffer_stream.generate_state(1)[0]),
            track_reuse=True,
        )
    agent = new_agent(
        config.agent,
        fields_of(env)["obs"],
        actions,
        planned_updates=config.planned_updates,
        device=resolve_device(config.device),
        seed=agent_stream,
    )
    env_seeds: list[int | None] = [int(seed) for seed in env_stream.generate_state(config.num_envs)]
    return Parts(env=env, env_seeds=env_seeds, buffer=buffer, agent=agent)
