"""`relive eval RUN`: plays greedy episodes with the agent of a run."""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from relive.agents.kinds import algorithm_of
from relive.agents.policy import BEST
from relive.cli.export import agent_in
from relive.cli.options import RunPath, parse
from relive.envs import make_env
from relive.envs.make import fields_in, without_module
from relive.errors import ConfigError, InputError
from relive.report.read import CONFIG, read_config
from relive.terminal.pieces import with_deviation
from relive.training import REFERENCES, Video, evaluate, evaluation_seeds
from relive.training.algorithms import actions_of
from relive.training.config import MOST_THREADS
from relive.training.runtime import cpu_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relive.agents.agent import Agent


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """Play greedy episodes with the agent of a run and print their returns."""

    run: RunPath
    """The run directory, as `relive train` printed it."""
    env: str | None = None
    """Its environment with the module that registers it, module:Id, where the run names none."""
    best: bool = False
    """The policy of the best evaluation (--eval-every), not the last one."""
    episodes: int = 20
    """How many."""
    stream: int = 0
    """Another number gives episodes with other seeds; 0 are those after training."""
    video: Path | None = None
    """Film the episodes, one after the other: a new .mp4 file. Needs no display."""
    threads: int = 1
    """Threads of PyTorch."""

    def __post_init__(self) -> None:
        """Checks the counts."""
        for name, least in (("episodes", 1), ("stream", 0), ("threads", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is at least {least}, got {getattr(self, name)}")
        if self.threads > MOST_THREADS:
            raise ConfigError(f"threads is at most {MOST_THREADS}, got {self.threads}")


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive eval`."""
    options = parse(EvalOptions, words, command="relive eval")
    env = env_of(options.run, options.env)
    agent = policy_of(options.run / BEST if options.best else options.run, env)
    seeds = evaluation_seeds(options.episodes, options.stream)
    video = None if options.video is None else Video(options.video)
    if video is not None:  # or SDL looks for a display, and complains
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    with cpu_settings(options.threads), video or nullcontext():
        returns = evaluate(agent, env, seeds, film=video and video.take)
    print("returns   ", "  ".join(f"{value:g}" for value in returns))
    mean, deviation = with_deviation(float(np.mean(returns)), float(np.std(returns)))
    print(f"mean       {mean} ± {deviation}")
    print(f"range      {min(returns):g} to {max(returns):g}")
    if env in REFERENCES:
        print(f"reference  {REFERENCES[env]:g}")
    if video is not None:
        print(f"video      {video.path}")
    return 0


def env_of(path: Path, given: str | None = None) -> str:
    """The environment of a run; `given` may put another module in front of it.

    Raises:
        InputError: The directory holds no run, or its settings name no environment.
        ConfigError: Another environment is given.
    """
    env = read_config(path).get("env")
    if not env:
        raise InputError(f"{path / CONFIG} names no env, the environment to play in")
    if given is not None and without_module(given) != without_module(str(env)):
        raise ConfigError(
            f"the run in {path} was trained in {env}, given {given}; only the module in front may "
            f"be another: --env module:{without_module(str(env))}"
        )
    return given or str(env)


def policy_of(path: Path, env_id: str) -> Agent:
    """The agent in a run directory or a file, which can act in an environment.

    Raises:
        InputError: There is no policy, it cannot be read, or it is one for something else.
        ConfigError: There is no such environment.
    """
    agent = agent_in(path)
    with closing(make_env(env_id)) as env:
        obs, actions = fields_in(env)["obs"], actions_of(env, algorithm_of(agent.config))
    if (agent.obs, agent.actions) != (obs, actions):
        raise InputError(
            f"the policy in {path} is for observations {agent.obs} and actions {agent.actions},"
            f" {env_id} has {obs} and {actions}"
        )
    return agent
