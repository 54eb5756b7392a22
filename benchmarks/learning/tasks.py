"""The runs that are made, and what is asked of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal

GREEDY, TRAINING = "greedy", "training"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What the returns of a task's seeds have to come to.

    Attributes:
        least: The return that is asked for; of `beside`'s mean a factor.
        of: Each seed, `enough` of them; or the median, or the mean, of the seeds.
        enough: Seeds that have to reach `least`, if `of` is "each".
        beside: A task whose mean `least` is a factor of.
        worst_episode: Judge a seed by its worst episode, not by their mean.
    """

    least: float
    of: Literal["each", "median", "mean"] = "each"
    enough: int = 4
    beside: Task | None = None
    worst_episode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One way of training, over several seeds.

    Attributes:
        name: Of the task, and of its directory.
        words: Behind `relive train`, without what every run is given (`--seed`, `--out`, ...).
        seeds: 0 ... seeds - 1.
        judged: By greedy episodes after training, or by the mean of the last 100 in training.
        episodes: Greedy episodes after training.
        goal: What is asked; None for what is only shown beside others.
        record: Words behind `relive record`, whose file is made first and given as `--demos.path`.
        peer: Trained by Stable-Baselines3 (`peer.py`), with `words` for it.
    """

    name: str
    words: str
    seeds: int = 5
    judged: Literal["greedy", "training"] = GREEDY
    episodes: int = 100
    goal: Goal | None = None
    record: str | None = None
    peer: bool = False


PEER = Task(
    name="sb3-halfcheetah",
    words="--env HalfCheetah-v5 --total-steps 100000",
    seeds=3,
    episodes=10,
    peer=True,
)
GOALS = (
    Task(
        name="c51-cartpole",
        words="c51 --env CartPole-v1",
        goal=Goal(least=475),
    ),
    Task(
        name="dqn-acrobot",
        words="dqn --env Acrobot-v1",
        goal=Goal(least=-85),
    ),
    Task(
        name="dqn-lunarlander",
        words="dqn --env LunarLander-v3",
        goal=Goal(least=200, of="median"),
    ),
    *(
        Task(
            name=f"{agent}-pendulum",
            words=f"{agent} --env Pendulum-v1",
            goal=Goal(least=-170),
        )
        for agent in ("sac", "td3", "ddpg")
    ),
    Task(
        name="sac-invertedpendulum",
        words="sac --env InvertedPendulum-v5",
        episodes=10,
        goal=Goal(least=1000, worst_episode=True),
    ),
    Task(
        name="sac-mountaincar-demos",
        words="sac --env MountainCarContinuous-v0",
        record="--expert mountain-car-continuous --episodes 10",
        goal=Goal(least=90),
    ),
    Task(
        name="sac-mountaincar-alone",
        words="sac --env MountainCarContinuous-v0",
        seeds=3,
    ),
    Task(
        name="sac-halfcheetah",
        words="sac --env HalfCheetah-v5 --total-steps 100000",
        seeds=3,
        episodes=10,
        goal=Goal(least=0.9, of="mean", beside=PEER),
    ),
    PEER,
    Task(
        name="rainbow-breakout",
        words="rainbow --env MinAtar/Breakout-v0",
        seeds=3,
        judged=TRAINING,
        episodes=20,
        goal=Goal(least=9, of="mean"),
    ),
)
"""What the agents have to reach."""

SAMPLERS = {
    "uniform": "--replay.sampler uniform",
    "proportional": "--replay.sampler proportional",
    "rank": "--replay.sampler rank --replay.alpha 0.7",
    "ERE": "--replay.sampler uniform --replay.window ere",
}
_COMPARED = {
    "Acrobot-v1": "dqn --env Acrobot-v1",
    "LunarLander-v3": "dqn --env LunarLander-v3 --total-steps 100000",
    "Pendulum-v1": "sac --env Pendulum-v1",
    "MinAtar/Breakout-v0": "rainbow --env MinAtar/Breakout-v0 --total-steps 200000",
}
COMPARISON = tuple(
    Task(
        name=f"samplers-{env.split('/')[-1].split('-')[0].lower()}-{sampler.lower()}",
        words=f"{words} {options}",
        seeds=3,
        judged=TRAINING if env.startswith("MinAtar/") else GREEDY,
        episodes=10 if env.startswith("MinAtar/") else 100,
    )
    for (env, words), (sampler, options) in itertools.product(_COMPARED.items(), SAMPLERS.items())
)
"""One setting, four ways to draw."""
