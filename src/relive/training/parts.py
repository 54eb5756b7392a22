"""From settings to the parts of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relive.agents.kinds import new_agent
from relive.agents.update import compile_terms
from relive.buffer import ReplayBuffer
from relive.envs.make import fields_in, make_training_env
from relive.training.algorithms import actions_of
from relive.training.demonstrations import load_demonstrations
from relive.training.hindsight import build_hindsight
from relive.training.runtime import buffer_device, resolve_device

if TYPE_CHECKING:
    from gymnasium.vector import SyncVectorEnv

    from relive.agents.agent import Agent
    from relive.demos import Loaded
    from relive.envs import TorchEnv
    from relive.hindsight import Hindsight
    from relive.training.config import TrainConfig


class Parts(NamedTuple):
    """What a run is made of.

    Attributes:
        env: E environments; the loop closes them. Those of tensor code are where the agent is.
        env_seeds: Seeds of their first reset; tensor code takes the first.
        buffer: Where their steps go.
        agent: Acts and learns.
        demos: What was pinned in the buffer just now; None if nothing was.
        hindsight: Writes steps to the buffer; None if they go there as they are.
    """

    env: SyncVectorEnv | TorchEnv
    env_seeds: list[int | None]
    buffer: ReplayBuffer
    agent: Agent
    demos: Loaded | None = None
    hindsight: Hindsight | None = None


def build(config: TrainConfig, buffer: ReplayBuffer | None = None) -> Parts:
    """Makes the parts of a run; each draws from a random stream of its own.

    Args:
        config: Settings.
        buffer: One that was saved or filled before, with its demonstrations; None makes a new one
            and pins them. Without `track_reuse` the run does not tell of age and reuse.

    Raises:
        ConfigError: An environment that does not exist, or that the agent cannot act in.
        ReliveError: Demonstrations that cannot be read, or do not fit; see `relive.demos.load`.
    """
    streams = np.random.SeedSequence(config.seed).spawn(4)
    env_stream, buffer_stream, agent_stream, hindsight_stream = streams
    agent_device = resolve_device(config.device)
    env = make_training_env(config.env, config.num_envs, agent_device)
    fields, actions = fields_in(env), actions_of(env, config.algorithm)
    replay = config.replay
    demos = None
    if buffer is None:
        buffer = ReplayBuffer.for_env(
            env,
            replay.capacity,
            fields=replay.build_fields(fields),
            sampler=replay.build_sampler(config.planned_updates, config.accumulate),
            window=replay.build_window(config.accumulate),
            n_step=replay.n_step,
            gamma=replay.gamma,
            device=buffer_device(config),
            rows_on=replay.rows_on,
            on_failure=replay.on_failure,
            seed=int(buffer_stream.generate_state(1)[0]),
            track_reuse=True,
            demo_fraction=config.demos.fraction,
        )
        demos = load_demonstrations(config.demos, buffer, replay.batch_size, actions)
    hindsight_seed = int(hindsight_stream.generate_state(1)[0])
    hindsight = build_hindsight(config.hindsight, buffer, env, hindsight_seed)
    agent = new_agent(
        config.agent,
        fields["obs"],
        actions,
        planned_updates=config.planned_updates,
        device=agent_device,
        seed=agent_stream,
    )
    if config.compile is not None:
        compile_terms(agent, config.compile)
    env_seeds: list[int | None] = [int(seed) for seed in env_stream.generate_state(config.num_envs)]
    return Parts(env, env_seeds, buffer, agent, demos, hindsight)
