"""Hindsight experience replay: episodes are written once more, for goals that they did reach.

Andrychowicz et al. 2017 (arXiv:1707.01495). When an episode has ended, k more rows are written for
each of its steps, with another goal each: one that was achieved in the episode. Rewards, ends and
n-step returns are those under that goal, so nothing has to be computed when rows are drawn; rows
have priorities of their own, live where the buffer lives, and are saved with it.

E  environments (lanes)      T  steps of an episode      k  goals of a step      R  rows
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import torch

from relive.arguments import REQUIRED, wrong_names
from relive.arrays import as_tensor
from relive.buffer import ReplayBuffer
from relive.declared import is_whole, plain
from relive.errors import ConfigError, InputError, shown
from relive.fields import NO_CONVERSION
from relive.writing.relabelling import ACHIEVED, DESIRED, STRATEGIES, goal_steps, relabelled
from relive.writing.step import StepPacker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from relive.fields import Column, RowLayout

    Judge = Callable[[NDArray[Any], NDArray[Any]], Any]

Strategy = Literal["future", "final", "episode"]
FIRST_ROOM = 64  # steps of an episode; twice as many wherever it is longer


class _Episode:
    """The steps of one environment's episode so far, packed.

    Attributes:
        length: T.
    """

    def __init__(self, row_bytes: int) -> None:
        self.length = 0
        self._rows = np.empty((FIRST_ROOM, row_bytes), np.uint8)

    def put(self, step: NDArray[np.uint8]) -> None:
        """Lay a step behind the others; it is of the episode once `length` says so."""
        if self.length == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[self.length] = step

    def columns(self, layout: RowLayout, length: int) -> dict[str, Any]:
        """The first steps, as they are stored: copies [length, *shape], by dotted name."""
        found: dict[str, Any] = {}
        for name, column in _given_columns(layout).items():
            values = self._rows[:length, column.offset : column.offset + column.nbytes].copy()
            shape = length, *column.field.shape
            if column.array_dtype is not None:
                found[name] = values.view(column.array_dtype).reshape(shape)
            else:
                found[name] = torch.from_numpy(values).view(column.field.stored_dtype).view(shape)
        return found

    @classmethod
    def of(cls, layout: RowLayout, columns: Mapping[str, Any] | None) -> Self:
        """The episode that gave some columns; None: one without steps.

        Raises:
            KeyError, TypeError, ValueError: they are of another layout.
        """
        episode = cls(layout.row_bytes)
        if columns is None:
            return episode
        length, given = len(columns["reward"]), _given_columns(layout)
        if columns.keys() != given.keys() or not length:
            raise KeyError(*(columns.keys() ^ given.keys()))
        rows = np.zeros((max(length, FIRST_ROOM), layout.row_bytes), np.uint8)
        for name, column in given.items():
            values = as_tensor(columns[name])
            if tuple(values.shape) != (length, *column.field.shape):
                raise ValueError(f"{name}: {tuple(values.shape)}")
            if values.dtype != column.field.stored_dtype:
                raise TypeError(f"{name}: {values.dtype}")
            flat = values.contiguous().view(-1).view(torch.uint8).view(length, column.nbytes)
            rows[:length, column.offset : column.offset + column.nbytes] = flat
        episode._rows, episode.length = rows, length
        return episode


class Hindsight:
    """Writes steps to a buffer, and each episode k times more with goals that it reached.

        hindsight = Hindsight.for_env(buffer, env)
        hindsight.add(obs=obs, action=action, ...)        in place of buffer.add

    Observations are dicts with `achieved_goal` and `desired_goal` (those of Gymnasium's goal
    environments). Batches are drawn from the buffer as ever; of its rows about k in k + 1 are of
    hindsight, so give it room for k + 1 rows a step.

    A new goal is `next_obs["achieved_goal"]` of a step of the same episode, drawn anew for each
    step and each of its k:

        "future"   of this step or a later one
        "episode"  of any step
        "final"    of the last step; one goal, k = 1

    A window of n steps has one goal: that of its first. It ends where the episode ends, or where
    `terminated` says so under that goal. All other fields are those of the step.

    One thread writes. Episodes that have not ended wait in host memory.

    Args:
        buffer: made by you; it may be written to directly as well, which has no hindsight.
        reward: rewards `[R]` for `(achieved, desired)`, arrays `[R, *goal]`: the first reached by a
            step, the second wanted.
        terminated: the same for whether the episode ends there, bool `[R]`. None: goals end no
            episode, a step terminates where it did.
        goals: k >= 1.
        strategy: where goals are from.
        seed: of the random choice of goals, any 64-bit integer.

    Attributes:
        buffer: The same.
        episodes: episodes that were written once more.

    Raises:
        ConfigError: a setting that cannot work, or a buffer whose observations have no goals.
    """

    def __init__(
        self,
        buffer: ReplayBuffer,
        reward: Judge,
        *,
        terminated: Judge | None = None,
        goals: int = 4,
        strategy: Strategy = "future",
        seed: int = 0,
    ) -> None:
        if not isinstance(buffer, ReplayBuffer):
            raise ConfigError(f"hindsight writes to a ReplayBuffer; given {shown(buffer)}")
        for name, judge in (("reward", reward), ("terminated", terminated)):
            if not callable(judge) and (judge is not None or name == "reward"):
                raise ConfigError(
                    f"{name} is a function of achieved and desired goals; given {shown(judge)}"
                )
        goals, seed = plain(goals), plain(seed)
        if not is_whole(goals, 1, 1 << 20):
            raise ConfigError(f"goals is a whole number >= 1; given {shown(goals)}")
        if strategy not in STRATEGIES:
            raise ConfigError(
                f"strategy is one of {', '.join(STRATEGIES)}; given {shown(strategy)}"
            )
        if strategy == "final" and goals != 1:
            raise ConfigError(
                f"an episode has one final goal; given goals={goals}: take goals=1, or another "
                "strategy"
            )
        if not is_whole(seed, -(2**63), 2**63):
            raise ConfigError(f"seed is a signed 64-bit integer; given {shown(seed)}")
        self.buffer, self.episodes = buffer, 0
        self._reward = _checked("reward", reward)
        self._terminated = None if terminated is None else _checked("terminated", terminated)
        self._goals, self._strategy, self._seed = goals, strategy, seed
        self._layout = buffer._home.layout
        self._gammas = [buffer.gamma**k for k in range(buffer.n_step + 1)]
        self._require_goals()
        resets, num_envs = buffer._home.settings.resets, buffer.num_envs
        self._has_resets = resets == "next_step"
        steps = torch.zeros(num_envs, self._layout.row_bytes, dtype=torch.uint8)
        self._packer, self._steps = StepPacker(self._layout, steps, resets), steps.numpy()
        self._waiting = [_Episode(self._layout.row_bytes) for _ in range(num_envs)]
        self._reset_due = [False] * num_envs

    @classmethod
    def for_env(cls, buffer: ReplayBuffer, env: Any, **settings: Any) -> Self:
        """Hindsight with the rewards of an environment, `compute_reward(achieved, desired, {})`.

        And with its `compute_terminated`, if it has one, which is asked row by row. Of a vector
        environment the first copy is asked.

        Raises:
            ConfigError: it has none, or they cannot be reached (in another process): pass `reward`
                to the constructor.
        """
        env = getattr(env, "envs", [env])[0]
        judges = getattr(env, "unwrapped", env)
        if not hasattr(judges, "compute_reward"):
            raise ConfigError(
                f"{type(judges).__name__} has no compute_reward, as goal environments have; pass "
                "Hindsight(buffer, reward) a function of achieved and desired goals"
            )

        def reward(achieved: NDArray[Any], desired: NDArray[Any]) -> Any:
            return judges.compute_reward(achieved, desired, {})

        def terminated(achieved: NDArray[Any], desired: NDArray[Any]) -> Any:
            pairs = zip(achieved, desired, strict=True)
            return np.array([bool(judges.compute_terminated(*pair, {})) for pair in pairs])

        ends = terminated if hasattr(judges, "compute_terminated") else None
        return cls(buffer, reward, **{"terminated": ends, **settings})

    def add(
        self,
        *,
        obs: Any,
        action: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any = REQUIRED,
        truncated: Any = REQUIRED,
        final_obs: Any = None,
        **own: Any,
    ) -> None:
        """Write one step of every environment, and the hindsight of episodes that end with it.

        As `ReplayBuffer.add`; what is given on a GPU is copied to the host, which waits.

        Raises:
            InputError: as there, or what `reward` and `terminated` of the constructor gave is none,
                `[R]`. Nothing has changed then, nor where they raise.
        """
        own_names = self.buffer._own
        if truncated is REQUIRED or terminated is REQUIRED or own.keys() != own_names:
            ends = {"terminated": terminated, "truncated": truncated}
            raise InputError(wrong_names("this buffer's", own_names, own, "final_obs", **ends))
        self._packer.pack(obs, action, reward, next_obs, terminated, truncated, final_obs, own)
        ended = (self._packer.ends != 0).max(1).tolist()
        real = [lane for lane, is_fake in enumerate(self._reset_due) if not is_fake]
        for lane in real:
            self._waiting[lane].put(self._steps[lane])
        lanes = [lane for lane in real if ended[lane]]
        rows = [self._rows(lane, number, new=1) for number, lane in enumerate(lanes)]
        self.buffer.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=next_obs,
            terminated=terminated,
            truncated=truncated,
            final_obs=final_obs,
            **own,
        )
        for lane in real:
            self._waiting[lane].length += 1
        self._reset_due = [
            self._has_resets and ends and not is_fake
            for ends, is_fake in zip(ended, self._reset_due, strict=True)
        ]
        self._write(lanes, rows)

    def end_episode(self, env: int | None = None) -> None:
        """Close the episode of one lane (None: of all) here, as truncated, and write its hindsight.

        As `ReplayBuffer.end_episode`.

        Raises:
            InputError: no such lane; or as `add` says of rewards. Nothing has changed then.
        """
        closed = self.buffer._lanes(env)
        lanes = [lane for lane in closed if self._waiting[lane].length]
        rows = [self._rows(lane, number, new=0) for number, lane in enumerate(lanes)]
        self.buffer.end_episode(env)
        for lane in closed:
            self._reset_due[lane] = False
        self._write(lanes, rows)

    def state_dict(self) -> dict[str, Any]:
        """The episodes that have not ended, and where the random choice stands.

        A note that `ReplayBuffer.save` takes.
        """
        waiting = [
            episode.columns(self._layout, episode.length) if episode.length else None
            for episode in self._waiting
        ]
        return {"episodes": self.episodes, "reset_due": list(self._reset_due), "waiting": waiting}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave, with a buffer of the same fields and environments.

        Raises:
            InputError: that is of no such buffer; nothing has changed then.
        """
        num_envs = len(self._waiting)
        expected = f"state_dict() of hindsight with the same fields and {num_envs} environments"
        try:
            episodes, due = state["episodes"], [bool(is_due) for is_due in state["reset_due"]]
            waiting = [_Episode.of(self._layout, columns) for columns in state["waiting"]]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"state is no {expected}: {error!r}") from None
        if not is_whole(episodes, 0) or not len(due) == len(waiting) == num_envs:
            raise InputError(f"state is no {expected}")
        self.episodes, self._reset_due, self._waiting = episodes, due, waiting

    def __repr__(self) -> str:
        return f"Hindsight({self._strategy}, goals={self._goals}, {self.buffer!r})"

    def _rows(self, lane: int, number: int, *, new: int) -> dict[str, Any]:
        """An episode under other goals: ready-made rows, as `ReplayBuffer.extend` takes them.

        Args:
            lane: whose; its episode ends with its last step.
            number: of the episode among those that end now; the choice of goals follows from it.
            new: steps behind its length that are of it too.
        """
        episode = self._waiting[lane]
        length = episode.length + new
        columns = episode.columns(self._layout, length)
        if not columns["terminated"][-1]:
            columns["truncated"][-1] = True
        which = (self.episodes + number) % 2**32
        taken = goal_steps(self._strategy, length, self._goals, self._seed, which)
        rows = relabelled(columns, taken, self._gammas, self._reward, self._terminated)
        return {name: _nested(tree, rows) for name, tree in self._layout.tree.items()}

    def _write(self, lanes: list[int], rows: list[dict[str, Any]]) -> None:
        """Episodes that have ended, once more."""
        for lane, of_lane in zip(lanes, rows, strict=True):
            self._waiting[lane].length = 0
            self.episodes += 1
            self.buffer.extend(**of_lane, env=lane)

    def _require_goals(self) -> None:
        """Refuse a buffer whose rows cannot be given other goals."""
        names = [f"obs.{name}" for name in (ACHIEVED, DESIRED)]
        if missing := [name for name in names if name not in self._layout.columns]:
            raise ConfigError(
                f"hindsight needs observations that are dicts with {ACHIEVED} and {DESIRED}; this "
                f"buffer has no {' and no '.join(missing)}"
            )
        achieved, desired = (self._layout.columns[name] for name in names)
        if achieved.field != desired.field or achieved.conversion != NO_CONVERSION:
            raise ConfigError(
                f"{ACHIEVED} and {DESIRED} are fields of one shape and dtype, without store=; "
                f"given {achieved.field} and {desired.field}"
            )
        if self.buffer._state.keeps_frames and self.buffer.n_step > 1:
            raise ConfigError(
                "hindsight of stacks whose frames are kept once needs n_step=1: it would end the "
                "episodes of other environments; leave stack= out"
            )


def _given_columns(layout: RowLayout) -> dict[str, Column]:
    """Those of a step, without what the buffer fills in."""
    filled_in = "lane", "prev", "next", "discount"
    return {name: column for name, column in layout.columns.items() if name not in filled_in}


def _nested(tree: Any, columns: Mapping[str, Any]) -> Any:
    """Columns in the dicts that a field has."""
    if isinstance(tree, str):
        return columns[tree]
    return {key: _nested(branch, columns) for key, branch in tree.items()}


def _checked(name: str, judge: Judge) -> Judge:
    """A function of the user's that is held to what it should give."""
    kinds, words = ("biuf", "numbers") if name == "reward" else ("b", "truth values (bool)")

    def checked(achieved: NDArray[Any], desired: NDArray[Any]) -> NDArray[Any]:
        given = judge(achieved, desired)
        try:
            values = np.asarray(given)
        except (ValueError, TypeError, RuntimeError) as error:
            raise InputError(f"{name}(achieved, desired) gave no array: {error}") from None
        if values.shape != (len(achieved),) or values.dtype.kind not in kinds:
            raise InputError(
                f"{name}(achieved, desired) gave {values.dtype} of shape {values.shape} for "
                f"goals of shape {desired.shape}; expected {words}, one for each: "
                f"({len(achieved)},)"
            )
        return values

    return checked
