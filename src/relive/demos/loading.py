"""Demonstrations into a buffer: read, chosen, checked, and only then written and pinned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from relive.declared import hold_to_types, is_whole, plain
from relive.demos.demonstration import Demonstration, DoneMeans, LastStep, part, reading
from relive.demos.formats import FormatName, found, is_minari, located, read
from relive.demos.given import given_episodes
from relive.demos.soundness import require_finite_return, require_sound
from relive.errors import ConfigError, InputError, shown
from relive.gpu.capture import require_no_capture
from relive.ops import words as w
from relive.trajectories import require_between_episodes
from relive.writing.packer import whole_batch
from relive.writing.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from minari import MinariDataset

    from relive.buffer import ReplayBuffer


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which episodes to take: those that pass all of it.

    Attributes:
        successful_only: Those that the file calls a success.
        min_return: Those whose return is at least this; None for all.

    Raises:
        ConfigError: A value of a wrong type, or NaN.
    """

    successful_only: bool = False
    min_return: float | None = None

    def __post_init__(self) -> None:
        hold_to_types(self)
        if self.min_return != self.min_return:
            raise ConfigError(f"min_return is a number or None; given {shown(self.min_return)}")

    def __call__(self, episode: Demonstration) -> bool:
        """Whether an episode passes.

        Raises:
            InputError: The file does not say whether it was a success, or its rewards are not
                finite where the return is asked for.
        """
        if self.successful_only and episode.success is None:
            self._require_return(episode)  # success may have been unknown for want of one
            raise InputError(
                f"{episode.name}: the file does not say whether it was a success; choose by the "
                "return instead (min_return)"
            )
        if self.successful_only and not episode.success:
            return False
        if self.min_return is None:
            return True
        self._require_return(episode)
        return episode.episode_return >= self.min_return

    @staticmethod
    def _require_return(episode: Demonstration) -> None:
        try:
            require_finite_return(episode)
        except InputError as error:
            raise InputError(f"{episode.name}: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What came into a buffer.

    Attributes:
        path: Where from; None of episodes that were given.
        format: Of it.
        episodes: Episodes that were written.
        rows: Rows that they are, one a step.
        returns: Of those episodes.
        skipped: Episodes that were read and did not pass, or had no step left.
        dropped_steps: Last steps that were left out (`last_step="drop"`).
        pinned: Whether they were pinned.
        env: Id of the environment they were recorded in, if the file tells.
    """

    path: Path | None
    format: FormatName | None
    episodes: int
    rows: int
    returns: tuple[float, ...]
    skipped: int
    dropped_steps: int
    pinned: bool
    env: str | None


def load(
    buffer: ReplayBuffer,
    source: str | Path | MinariDataset | Iterable[Demonstration | Mapping[str, Any]],
    *,
    where: Callable[[Demonstration], bool] | None = None,
    limit: int | None = None,
    pin: bool = True,
    reserve: int = 0,
    batch_size: int | None = None,
    format: FormatName | None = None,
    last_step: LastStep | None = None,
    done_means: DoneMeans | None = None,
    action_bounds: tuple[Any, Any] | None = None,
) -> Loaded:
    """Write episodes, of a file say, into an empty buffer and pin them.

    Each is given to `extend` as a stream of its own, so n-step returns are folded as the buffer
    folds them and none runs into the next. Of dict observations only what the buffer has is read.
    The episodes are held in memory until all have been read and checked.

    Args:
        buffer: Without rows, unless `pin` is False.
        source: A path or dataset, as in `read`. Or the episodes themselves: each a `Demonstration`,
            or a dict of the arrays that `ReplayBuffer.extend` takes. Instead of `next_obs`, `obs`
            may have one more, the last; `truncated` may be left out; `success seed env` may be
            there, as in `Demonstration`.
        where: A `Filter`, or any function of a `Demonstration`; None takes all.
        limit: At most so many episodes, the first that pass; those behind them are not read.
        pin: Call `pin_demonstrations`. Without, several files can be loaded one after the other;
            then pin all of them: `buffer.pin_demonstrations(len(buffer))`. All rows of one file
            must fit, while rows that are there already make room, the oldest first.
        reserve: As in `pin_demonstrations`. Without `pin` it only has to fit.
        batch_size: Refuse unless so many other rows fit beside them.
        format: As in `read`.
        last_step: As in `read`.
        done_means: As in `read`.
        action_bounds: The least and the largest action, numbers or arrays `[*shape]`; files that
            hold others, scaled differently, are refused. Floats may lie a ten-thousandth of the
            width outside, as they were rounded; whole numbers may not. None takes all.

    Raises:
        InputError: No episode passes, fields that do not fit, values that are not finite, actions
            out of bounds, a buffer that has rows (if `pin`), more rows than there is room for.
        CorruptError: A file that is damaged or not whole.
        UnsupportedError: A pickle, or something else that is not read.
        ConfigError: As `read`.
        MissingExtraError: A package to read it with is not installed. Nothing has changed in any
            of these cases.
    """
    _check(buffer, where, limit)
    options = {"format": format, "last_step": last_step, "done_means": done_means}
    place, episodes = _opened(source, _keys(buffer), options)
    whose, skipped = "" if place is None else f"{place}: ", 0
    chosen: list[Demonstration] = []
    while len(chosen) != limit and (episode := next(episodes, None)) is not None:
        if len(episode) and (where is None or _passes(where, episode, whose)):
            recorded = "" if episode.env is None else f", recorded in {episode.env}"
            with reading(f"{whose}{episode.name}{recorded}"):
                fitted = _fitted(buffer, episode)
                require_sound(fitted, action_bounds)
                chosen.append(fitted)
        else:
            skipped += 1
    if not chosen:
        what = f"none of its {skipped} episodes passes" if skipped else "no episodes in it"
        raise InputError(whose + what)
    rows = sum(map(len, chosen))
    with buffer._lock:
        _require_room(buffer, rows, pin, reserve, batch_size)
        require_between_episodes(buffer, 0)
        for episode in chosen:
            _write(buffer, episode)
        if pin:
            buffer.pin_demonstrations(rows, batch_size=batch_size, reserve=reserve)
    return Loaded(
        path=place,
        format=None if place is None else found(place),
        episodes=len(chosen),
        rows=rows,
        returns=tuple(episode.episode_return for episode in chosen),
        skipped=skipped,
        dropped_steps=sum(episode.dropped for episode in chosen),
        pinned=pin,
        env=chosen[0].env,
    )


def _check(buffer: Any, where: Any, limit: Any) -> None:
    """Refuse arguments that cannot be meant, before anything is read."""
    if not hasattr(buffer, "_home"):
        raise InputError(f"load writes into a ReplayBuffer; given {shown(buffer)}")
    if own := sorted(set(buffer._home.layout.fields) - {"obs", "action"}):
        raise InputError(f"no file has the buffer's own fields {own}; give them to extend yourself")
    if where is not None and not callable(where):
        raise InputError(f"where is a Filter or a function of an episode; given {shown(where)}")
    limit = plain(limit)
    if limit is not None and not is_whole(limit, 1):
        raise InputError(f"limit is a whole number >= 1, or None; given {shown(limit)}")


def _opened(
    source: Any, keys: list[str] | None, options: dict[str, Any]
) -> tuple[Path | None, Iterator[Demonstration]]:
    """Where episodes come from, None if they are given, and the episodes."""
    if isinstance(source, str | PathLike) or is_minari(source):
        place = located(source)
        return place, read(place, keys=keys, **options)
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"{name} {value!r} does nothing with episodes that are given")
    return None, given_episodes(source)


def _keys(buffer: ReplayBuffer) -> list[str] | None:
    """Dotted names of the observations that the buffer has; None where they are no dict."""
    if isinstance(buffer._home.layout.tree["obs"], str):
        return None
    names = (name for name in buffer._home.layout.columns if name.startswith("obs."))
    return [name.removeprefix("obs.") for name in names]


def _passes(where: Callable[[Demonstration], bool], episode: Demonstration, whose: str) -> bool:
    try:
        return bool(where(episode))
    except InputError as error:
        raise InputError(f"{whose}{error}") from None


def _fitted(buffer: ReplayBuffer, episode: Demonstration) -> Demonstration:
    """The episode with values that the buffer takes.

    Raises:
        InputError: A shape, dtype or key that does not fit.
    """
    tree = buffer._home.layout.tree
    fitting = {
        name: _fit(getattr(episode, name), tree[name], buffer)
        for name in ("obs", "action", "next_obs")
    }
    episode = replace(episode, **fitting)
    Stream(buffer._home.layout, _columns(episode, 0, len(episode)), num_lanes=None)
    return episode


def _fit(values: Any, tree: Any, buffer: ReplayBuffer) -> Any:
    """What the buffer has of a field; one number a step is the same as a vector of one."""
    if isinstance(tree, str):
        if isinstance(values, dict):
            raise InputError(
                f"{tree}: the file has a dict of {sorted(values)}, the buffer one array; make the "
                "buffer with fields of those names"
            )
        shape = buffer._home.layout.columns[tree].field.shape
        narrow = not isinstance(values, dict) and {values.shape[1:], shape} == {(), (1,)}
        return values.reshape(len(values), *shape) if narrow else values
    if not isinstance(values, dict) or not tree.keys() <= values.keys():
        return values  # refused where it is checked
    return {key: _fit(values[key], branch, buffer) for key, branch in tree.items()}


def _columns(episode: Demonstration, start: int, stop: int) -> dict[str, Any]:
    names = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
    return {name: part(getattr(episode, name), start, stop) for name in names}


def _require_room(
    buffer: ReplayBuffer, rows: int, pin: bool, reserve: int, batch_size: int | None
) -> None:
    """Refuse rows that would overwrite one another, and what `pin_demonstrations` would refuse."""
    require_no_capture(buffer.device, "load")
    reserve = plain(reserve)
    if not is_whole(reserve, 0):
        raise InputError(f"reserve is a whole number >= 0; given {shown(reserve)}")
    online = int(pin) if batch_size is None else whole_batch(batch_size)
    if pin:
        _require_new(buffer)
    room = buffer._state.word(w.RING_CAPACITY)  # without rows that are pinned, and their reserve
    if rows + reserve + online > room:
        left = max(0, room - rows - reserve)
        short = f"leave {left} of {buffer.capacity} rows for others, fewer than {online}"
        raise InputError(
            f"{rows} demonstrations and reserve={reserve} "
            f"{short if online else f'do not fit into {room} of {buffer.capacity} rows'}; make the "
            "buffer larger, or take fewer episodes"
        )


def _require_new(buffer: ReplayBuffer) -> None:
    waiting = int(buffer._state.lanes[:, w.LANE_COUNT].sum())
    if len(buffer) or waiting:
        raise InputError(
            f"demonstrations come first, but the buffer has {len(buffer)} rows and {waiting} steps "
            "that wait; load into a new buffer, or with pin=False"
        )
    if kept := buffer._state.word(w.RING_START):
        raise InputError(
            f"{kept} rows are kept for pinned ones already; load into a new buffer with reserve=, "
            "or with pin=False"
        )


def _write(buffer: ReplayBuffer, episode: Demonstration) -> None:
    """Give an episode to a buffer; flags before its end (robomimic has them) cut it there."""
    ends = np.flatnonzero(episode.terminated | episode.truncated) + 1
    cuts = sorted({0, *ends.tolist(), len(episode)})
    for start, stop in pairwise(cuts):
        buffer.extend(**_columns(episode, start, stop))
