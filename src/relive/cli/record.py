"""`relive record`: episodes of a trained policy, or of a scripted one, as a Minari dataset."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from relive.cli.eval import env_of, policy_of
from relive.cli.options import parse
from relive.closest import unknown
from relive.demos.recording import require_writable, write_minari
from relive.envs import make_env
from relive.envs.experts import EXPERTS
from relive.errors import ConfigError
from relive.training.config import MOST_THREADS
from relive.training.recording import greedy, record_episodes, recording_seeds
from relive.training.runtime import cpu_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from relive.demos import Demonstration


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """Play episodes and write them as a dataset of Minari, to train from or to share.

    Attributes:
        out: Where to; in the folder MINARI_DATASETS_PATH names, (FOLDER/)NAME-vN, as Minari finds
            it.
        policy: A run directory: its policy plays, greedily.
        env: Its environment with the module that registers it, module:Id, where the run names none.
        expert: Or a scripted policy, in the environment of its name: mountain-car-continuous,
            mountain-car, lunar-lander or lunar-lander-continuous.
        episodes: How many.
        seed: Of the episodes; the same seed records the same.
        format: Of the files.
        overwrite: Replace a dataset that is there.
        threads: Threads of PyTorch.
    """

    out: Path
    policy: Path | None = None
    env: str | None = None
    expert: str | None = None
    episodes: int = 10
    seed: int = 0
    format: Literal["hdf5", "arrow"] = "hdf5"
    overwrite: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        """Checks the counts, and that it is said who plays."""
        for name, least in (("episodes", 1), ("seed", 0), ("threads", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is at least {least}, got {getattr(self, name)}")
        if self.threads > MOST_THREADS:
            raise ConfigError(f"threads is at most {MOST_THREADS}, got {self.threads}")
        if (self.policy is None) == (self.expert is None):
            raise ConfigError("say who plays: either --policy RUN or --expert NAME")
        if self.env is not None and self.policy is None:
            raise ConfigError("--env goes with --policy; an expert plays in its own environment")
        if self.expert is not None and self.expert not in EXPERTS:
            raise ConfigError(unknown("expert", self.expert, EXPERTS, most=len(EXPERTS)))


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive record`."""
    options = parse(RecordOptions, words, command="relive record")
    require_writable(options.out, data_format=options.format, overwrite=options.overwrite)
    env_id, player, act = _player(options)
    made: Any = make_env(env_id)
    with closing(made) as env, cpu_settings(options.threads):
        seeds = recording_seeds(options.episodes, options.seed)
        episodes = list(record_episodes(env, act, seeds))
        write_minari(
            options.out,
            episodes,
            env,
            data_format=options.format,
            overwrite=options.overwrite,
            about={"algorithm_name": player},
        )
        numbered = hasattr(env.action_space, "n")
    _tell(options, env_id, player, episodes, algorithm="dqn" if numbered else "sac")
    return 0


def _player(options: RecordOptions) -> tuple[str, str, Callable[[Any, Any], Any]]:
    """Environment, name and policy."""
    if options.expert is not None:
        expert = EXPERTS[options.expert]
        return expert.env, f"expert {options.expert}", expert.act
    assert options.policy is not None  # one of the two
    env_id = env_of(options.policy, options.env)
    return env_id, f"policy {options.policy.name}", greedy(policy_of(options.policy, env_id))


def _tell(
    options: RecordOptions,
    env: str,
    player: str,
    episodes: list[Demonstration],
    *,
    algorithm: str,
) -> None:
    returns = np.array([episode.episode_return for episode in episodes])
    lengths = [len(episode) for episode in episodes]
    print(f"episodes  {len(episodes)} of {env}, {player}, seed {options.seed}")
    print(f"steps     {sum(lengths)}, an episode {min(lengths)} to {max(lengths)}")
    print(
        f"returns   {returns.mean():.1f} ± {returns.std():.1f}, "
        f"{returns.min():.1f} to {returns.max():.1f}"
    )
    print(f"written   {options.out} (Minari, {options.format})")
    print(f"use       relive train {algorithm} --env {env} --demos.path {quote(str(options.out))}")
