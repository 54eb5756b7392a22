"""Hindsight experience replay: episodes are written once more, for goals that they did reach.

Andrychowicz et al. 2017 (arXiv:1707.01495). When an episode has ended, k more rows are written for
each of its steps, with another goal each: one that was achieved in the episode. Rewards, ends and
n-step returns are those under that goal, so nothing has to be computed when rows are drawn; rows
have priorities of their own, live where the buffer lives, and are saved with it.

E  environments (lanes)      T  steps of an episode      k  goals of a step      R  rows
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from relive.arguments import REQUIRED, wrong_names
from relive.arrays import as_array, as_tensor
from relive.buffer import ReplayBuffer
from relive.declared import is_whole, plain
from relive.errors import ConfigError, InputError, shown
from relive.fields import NO_CONVERSION
from relive.writing import autoreset as resets
from relive.writing.relabelling import ACHIEVED, DESIRED, STRATEGIES, goal_steps, relabelled
from relive.writing.values import check_columns, packed_form

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Judge = Callable[[NDArray[Any], NDArray[Any]], Any]

Strategy = Literal["future", "final", "episode"]


class _Step(NamedTuple):
    """One step of one lane.

    Attributes:
        columns: values by dotted name, as they are stored, [n, *shape].
        at: which of the n.
    """

    columns: Mapping[str, Any]
    at: int


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
        settings = buffer._home.settings
        self._resets = settings.resets
        self._layout = buffer._home.layout
        self._gammas = [buffer.gamma**k for k in range(buffer.n_step + 1)]
        self._require_goals()
        self._waiting: list[list[_Step]] = [[] for _ in range(buffer.num_envs)]
        self._reset_due = np.zeros(buffer.num_envs, bool)

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

        As `ReplayBuffer.add`, but that values are in host memory.

        Raises:
            InputError: as there; values on a GPU; or what `reward` and `terminated` of the
                constructor gave is none, `[R]`. Nothing has changed then, nor where they raise.
        """
        own_names = self.buffer._own
        if truncated is REQUIRED or terminated is REQUIRED or own.keys() != own_names:
            ends = {"terminated": terminated, "truncated": truncated}
            raise InputError(wrong_names("this buffer's", own_names, own, "final_obs", **ends))
        given = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs}
        given |= {"terminated": terminated, "truncated": truncated, **own}
        columns = self._columns(given)
        ended = columns["terminated"] | columns["truncated"]
        if self._resets == "same_step" and ended.any():
            self._put_final(columns, final_obs, np.flatnonzero(ended).tolist())
        steps = [_Step(columns, lane) for lane in range(len(ended))]
        lanes = [lane for lane in np.flatnonzero(ended).tolist() if not self._reset_due[lane]]
        rows = [
            self._rows([*self._waiting[lane], steps[lane]], self.episodes + number)
            for number, lane in enumerate(lanes)
        ]
        self.buffer.add(**given, final_obs=final_obs)
        for lane, step in enumerate(steps):
            if not self._reset_due[lane]:
                self._waiting[lane].append(step)
        self._reset_due[:] = ended & ~self._reset_due & (self._resets == "next_step")
        self._write(lanes, rows)

    def end_episode(self, env: int | None = None) -> None:
        """Close the episode of one lane (None: of all) here, as truncated, and write its hindsight.

        As `ReplayBuffer.end_episode`.

        Raises:
            InputError: no such lane; or as `add` says of rewards. Nothing has changed then.
        """
        lanes = [lane for lane in self.buffer._lanes(env) if self._waiting[lane]]
        rows = []
        for number, lane in enumerate(lanes):
            rows.append(self._rows(self._waiting[lane], self.episodes + number, cut=True))
        self.buffer.end_episode(env)
        self._reset_due[list(self.buffer._lanes(env))] = False
        self._write(lanes, rows)

    def state_dict(self) -> dict[str, Any]:
        """The episodes that have not ended, and where the random choice stands.

        A note that `ReplayBuffer.save` takes.
        """
        return {
            "episodes": self.episodes,
            "reset_due": self._reset_due.tolist(),
            "waiting": [self._stacked(steps) if steps else None for steps in self._waiting],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what `state_dict` gave, with a buffer of the same fields and environments.

        Raises:
            InputError: that is of no such buffer; nothing has changed then.
        """
        num_envs = len(self._waiting)
        expected = f"state_dict() of hindsight with the same fields and {num_envs} environments"
        try:
            episodes, due, waiting = (state[it] for it in ("episodes", "reset_due", "waiting"))
            fits = is_whole(episodes, 0) and len(due) == len(waiting) == num_envs
            fits = fits and all(it is None or self._fit(it) for it in waiting)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(f"state is no {expected}: {error!r}") from None
        if not fits:
            raise InputError(f"state is no {expected}")
        self.episodes = episodes
        self._reset_due[:] = due
        self._waiting = [
            [] if it is None else [_Step(it, at) for at in range(len(it["reward"]))]
            for it in waiting
        ]

    def __repr__(self) -> str:
        return f"Hindsight({self._strategy}, goals={self._goals}, {self.buffer!r})"

    def _columns(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Values of a step as they are stored, copies: [E, *shape], by dotted name."""
        num_envs = self.buffer.num_envs
        try:
            bare = num_envs == 1 and as_array(given["reward"]).ndim == 0
        except TypeError as error:
            raise InputError(f"reward: not an array of real numbers: {error}") from None
        found = {}
        for column, value in check_columns(self._layout, given, () if bare else (num_envs,)):
            if isinstance(value, Tensor) and not value.is_cpu:
                raise InputError(
                    f"{column.name}: given on {value.device}, expected in host memory: hindsight "
                    "keeps episodes there, and rewards are computed there"
                )
            stored, _ = packed_form(column, value, on_host=True)
            own = as_tensor(stored).clone().reshape(num_envs, *column.field.shape)
            found[column.name] = own if column.array_dtype is None else own.numpy()
        return found

    def _put_final(self, columns: dict[str, Any], final_obs: Any, lanes: list[int]) -> None:
        """Put the last observations of episodes in place of the first of the next ones."""
        value = resets.final_of(self._layout.tree["obs"], final_obs, lanes)
        found = check_columns(self._layout, {"next_obs": value}, (len(lanes),))
        for column, part in found:
            columns[column.name][lanes] = packed_form(column, part, on_host=True)[0]

    def _rows(self, steps: list[_Step], episode: int, *, cut: bool = False) -> dict[str, Any]:
        """An episode under other goals: ready-made rows, as `ReplayBuffer.extend` takes them.

        Args:
            episode: its number, which the choice of goals follows from.
            cut: it ends with its last step, whose flags do not say so.
        """
        columns = self._stacked(steps)
        if cut:
            columns["truncated"][-1] = True
        taken = goal_steps(self._strategy, len(steps), self._goals, self._seed, episode % 2**32)
        rows = relabelled(columns, taken, self._gammas, self._reward, self._terminated)
        return {name: _nested(tree, rows) for name, tree in self._layout.tree.items()}

    def _write(self, lanes: list[int], rows: list[dict[str, Any]]) -> None:
        """Episodes that have ended, once more."""
        for lane, of_lane in zip(lanes, rows, strict=True):
            self._waiting[lane] = []
            self.episodes += 1
            self.buffer.extend(**of_lane, env=lane)

    def _stacked(self, steps: list[_Step]) -> dict[str, Any]:
        """Steps behind each other: [T, *shape], by dotted name."""
        found: dict[str, Any] = {}
        for name, value in steps[0].columns.items():
            values = [step.columns[name][step.at] for step in steps]
            found[name] = torch.stack(values) if isinstance(value, Tensor) else np.stack(values)
        return found

    def _fit(self, columns: Mapping[str, Any]) -> bool:
        """Whether these are steps that `_stacked` gave."""
        wanted = {
            name: column
            for name, column in self._layout.columns.items()
            if name not in ("lane", "prev", "next", "discount")
        }
        count = len(columns["reward"])
        return columns.keys() == wanted.keys() and all(
            tuple(columns[name].shape) == (count, *column.field.shape)
            and as_tensor(columns[name]).dtype == column.field.stored_dtype
            for name, column in wanted.items()
        )

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
