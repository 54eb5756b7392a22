"""`relive eval RUN`: plays greedy episodes with the agent of a run."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relive.cli.options import RunPath, parse
from relive.errors import ConfigError
from relive.report.read import read_config
from relive.training import REFERENCES, evaluate, evaluation_seeds, load_policy
from relive.training.runtime import cpu_settings

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalOptions:
    """Play greedy episodes with the agent of a run and print their returns."""

    run: RunPath
    """The run directory, as `relive train` printed it."""
    episodes: int = 20
    """How many."""
    stream: int = 0
    """Another number gives episodes with other seeds; 0 are those after training."""
    threads: int = 1
    """Threads of PyTorch."""

    def __post_init__(self) -> None:
        """Checks the counts."""
        for name, least in (("episodes", 1), ("stream", 0), ("threads", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name} is at least {least}, got {getattr(self, name)}")


def run(words: Sequence[str]) -> int:
    """Runs the command; the words are those behind `relive eval`."""
    options = parse(EvalOptions, words, command="relive eval")
    env = read_config(options.run)["env"]
    agent = load_policy(options.run)
    with cpu_settings(options.threads):
        returns = evaluate(agent, env, evaluation_seeds(options.episodes, options.stream))
    print("returns   ", "  ".join(f"{value:g}" for value in returns))
    print(f"mean       {statistics.fmean(returns):.1f} ± {statistics.pstdev(returns):.1f}")
    print(f"range      {min(returns):g} to {max(returns):g}")
    if env in REFERENCES:
        print(f"reference  {REFERENCES[env]:g}")
    return 0
