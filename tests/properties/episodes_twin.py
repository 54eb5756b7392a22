"""What a store that listens to a buffer holds, in plain Python: lists of steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from relive import Episode, TrajectoryStore


class Step(NamedTuple):
    """One step: whole numbers, so that they are the same in every dtype."""

    obs: int
    action: int
    reward: int
    next_obs: int
    terminated: bool
    truncated: bool


class Told(NamedTuple):
    """An episode: how it ended, and its steps."""

    ended: str
    steps: list[Step]


class EpisodesTwin:
    """Lanes of steps, cut where episodes end."""

    def __init__(self, num_envs: int, autoreset: str) -> None:
        self.resets = autoreset == "next_step"
        self.open: list[list[Step]] = [[] for _ in range(num_envs)]
        self.due = [False] * num_envs
        self.ended: dict[int, list[Told]] = {env: [] for env in range(num_envs)}
        self.dropped = 0

    def step(self, env: int, step: Step) -> None:
        if self.due[env]:
            self.due[env] = False
            self.dropped += 1
            return
        self.open[env].append(step)
        if step.terminated or step.truncated:
            self._end(env, "terminated" if step.terminated else "truncated")
            self.due[env] = self.resets

    def end_episode(self, env: int) -> None:
        if self.open[env]:
            self.open[env][-1] = self.open[env][-1]._replace(truncated=True)
            self._end(env, "truncated")
        self.due[env] = False

    def interrupt(self) -> None:
        for env, steps in enumerate(self.open):
            if steps:
                self._end(env, "unfinished")

    def _end(self, env: int, how: str) -> None:
        self.ended[env].append(Told(how, self.open[env]))
        self.open[env] = []


def told(episode: Episode) -> Told:
    """An episode of a store, as the twin has it; its summary agrees with its steps."""
    columns = [getattr(episode, name) for name in Step._fields]
    steps = [Step(*values) for values in zip(*(c.tolist() for c in columns), strict=True)]
    assert episode.length == len(episode) == len(steps)
    assert episode.episode_return == sum(step.reward for step in steps)
    return Told(episode.ended, steps)


def by_env(store: TrajectoryStore) -> dict[int, list[Told]]:
    """Every episode, in order, with those of its lane."""
    found: dict[int, list[Told]] = {}
    for number, episode in enumerate(store):
        assert episode.number == number
        found.setdefault(episode.env, []).append(told(episode))
    return found


def without_empty(lanes: dict[int, list[Any]]) -> dict[int, list[Any]]:
    return {env: episodes for env, episodes in lanes.items() if episodes}
