"""Episodes on disk: every step that was ever given, in whole episodes that are there for good.

T  steps of an episode
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from relive.arguments import REQUIRED, wrong_names
from relive.declared import is_whole, plain
from relive.description import describe, undescribe
from relive.episode import OURS, Episode
from relive.errors import ConfigError, CorruptError, InputError, UnsupportedError, shown
from relive.fields import RowLayout
from relive.locks import fork_safe_lock
from relive.ops import words as w
from relive.storage import episode_files as files
from relive.storage.episode_index import Index
from relive.storage.episode_runs import RunLayout
from relive.storage.files import folder_at
from relive.storage.writer_lock import Lock
from relive.writing.episodes import bytes_of_columns
from relive.writing.packer import truth
from relive.writing.recorder import Recorder
from relive.writing.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from torch import Tensor

    from relive.buffer import ReplayBuffer
    from relive.fields import Fields
    from relive.writing.tee import Tee

Mode = Literal["a", "r"]


class TrajectoryStore:
    """Whole episodes in a folder, to which more can be appended.

    Nothing is sampled from it and nothing in it is overwritten. Episodes come from `append`, and
    from buffers: after `buffer.tee(store)` every step a buffer is given goes here too. `fill`
    writes them into a buffer again.

    One process at a time writes to a store, any number read it meanwhile. Everything that a reader
    finds is whole: an episode is there once it has ended and has been flushed. What a killed
    process had not flushed is lost; steps it had flushed of an episode that had not ended become,
    when the store is next opened to write, an episode that is "unfinished".

    A store that writes may be used by any number of threads. In a forked child it can be read only.

    Args:
        path: of a folder, which is made if there is none.
        fields: as for `ReplayBuffer`; None for those of the store that is there.
        mode: "a" to append and read, "r" only to read: nothing there is touched.

    Raises:
        InputError: no store is there and no fields are given; something else is there.
        ConfigError: the fields are not those of the store.
        UnsupportedError: another process writes to it.
        CorruptError: it is damaged; to write, also its data must be there to the end.
    """

    def __init__(self, path: str | Path, fields: Fields | None = None, *, mode: Mode = "a") -> None:
        if not isinstance(mode, str) or mode not in ("a", "r"):
            raise ConfigError(
                f"mode is 'a' to append and read, or 'r' to read; given {shown(mode)}"
            )
        self._path = folder_at(path).absolute()
        self._recorder: Recorder | None = None
        self._left_out = 0  # damaged episodes
        given = None if fields is None else RowLayout(fields)
        if mode == "r":
            self._rest = self._read_all(given)
            return
        if not files.is_made(self._path):
            if fields is None:
                raise files.none_there(self._path)
            self._path.mkdir(parents=True, exist_ok=True)
        held = Lock(self._path, "read it with mode='r', or write to another store")
        try:
            if fields is not None and not files.is_made(self._path):
                files.make(self._path, describe({"fields": dict(fields)}))
            self._rest = self._read_all(given)
            self._recorder = Recorder(self._path, held, self._runs, self._index, self._rest)
        except BaseException:
            held.release()
            raise

    def _read_all(self, given: RowLayout | None) -> int:
        """Settings and index; returns how many bytes at its end are no entry."""
        settings = files.read_settings(self._path)
        try:
            self._layout = RowLayout(undescribe({"fields": settings.get("fields")})["fields"])
        except (TypeError, ConfigError) as error:
            raise CorruptError(f"the fields of the store are damaged: {error}") from None
        if given is not None and (
            wrong := [*_differences(given, self._layout), *_differences(self._layout, given)]
        ):
            raise ConfigError(
                f"the store in {self._path} has other fields: {'; '.join(dict.fromkeys(wrong))}"
            )
        self._runs, self._index = RunLayout(self._layout), Index()
        self._reading = fork_safe_lock()
        raw, rest = files.read_entries(self._path, 0)
        self._index.add(raw)
        return rest

    # Writing

    def append(
        self,
        *,
        obs: Any,
        action: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any = REQUIRED,
        truncated: Any = None,
        env: int = 0,
        **own: Any,
    ) -> int:
        """Write one or more whole episodes, one after the other.

        They are cut where a step is terminated or truncated; the last one is closed at the end, as
        truncated if it has not ended. All of them go to the files at once, as if flushed.

        Args:
            obs: As in `ReplayBuffer.extend`, with a leading axis T.
            action: As `obs`.
            reward: `[T]` float.
            next_obs: As `obs`; always the true one.
            terminated: `[T]` bool.
            truncated: The same; none if left out.
            env: a number that the episodes carry, of the environment they are from.
            own: The other fields of the store, as `obs`.

        Returns:
            How many episodes were written.

        Raises:
            InputError: a wrong name, shape, dtype or number, or the store is closed; nothing has
                changed then.
            UnsupportedError: the store was opened to read only, or is a fork's.
            OSError: as the file system says; no episode of the call is there then.
        """
        expected = set(self._layout.fields) - {"obs", "action"}
        if terminated is REQUIRED or own.keys() != expected:
            ends = {"terminated": terminated}
            raise InputError(wrong_names("the store's", expected, own, "truncated", **ends))
        env = plain(env)
        if not is_whole(env, 0, 2**31):
            raise InputError(f"env is a whole number in [0, 2^31); given {shown(env)}")
        recorder = self._writing()
        given = {"obs": obs, "action": action, "reward": reward, "next_obs": next_obs}
        given |= {"terminated": terminated, **own}
        if truncated is not None:
            given["truncated"] = truncated
        stream = Stream(self._layout, given, num_lanes=None)
        with recorder.guard:
            recorder.write_out()
            lane = recorder.lane(env, resets=False, writes=True)
            try:
                for piece in stream.pieces():
                    lane.take(bytes_of_columns(self._layout, piece.columns, piece.steps))
                lane.cut()
                recorder.write_out()
            except BaseException:
                recorder.take_back()
                raise
        return lane.num_ended

    def flush(self, *, sync: bool = False) -> None:
        """Hand everything so far to the system: others see it, and it survives this process.

        That includes steps of episodes that have not ended, which nobody sees yet. Without a call,
        this happens whenever about a megabyte is waiting.

        Args:
            sync: also wait until it is on the disk, where it survives a loss of power.

        Raises:
            UnsupportedError: the store was opened to read only, or is a fork's.
            InputError: the store is closed.
            OSError: as the file system says; what could not be written goes on waiting.
            CorruptError: the files have been removed.
        """
        sync = truth("sync", sync)
        self._writing().write_out(sync=sync)

    def close(self) -> None:
        """Flush down to the disk and let another process write; reading goes on working.

        Episodes that buffers have not ended are "unfinished" then, and such a buffer refuses its
        next step until `buffer.tee(None)`. Closing twice does nothing.

        Raises:
            OSError: as the file system says; the store is still open then, and nothing is lost.
            CorruptError: the files have been removed; the store is closed then.
        """
        if self._recorder is not None:
            self._recorder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # Reading

    def refresh(self) -> int:
        """Look for episodes that another process has flushed since; returns how many.

        Until then a store opened to read stays as it was opened. One that writes knows all of its
        own.

        Raises:
            CorruptError: the index is damaged.
        """
        before = self._index.num_episodes
        if self._settled():
            return self._index.num_episodes - before
        with self._reading:
            raw, _ = files.read_entries(self._path, self._index.num_entries)
            self._index.add(raw)
            return self._index.num_episodes - before

    def __len__(self) -> int:
        """Episodes that have ended."""
        self._settled()
        return self._index.num_episodes

    @property
    def num_steps(self) -> int:
        """Steps of all of them."""
        self._settled()
        return self._index.num_steps

    @property
    def path(self) -> Path:
        """The folder."""
        return self._path

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a step, as given when the store was made."""
        return dict(self._layout.fields)

    def episode(self, number: int) -> Episode:
        """One episode; its steps are read when they are first asked for.

        Args:
            number: 0 for the first one written, -1 for the last; a number never changes.

        Raises:
            InputError: there is no such episode.
        """
        count, number = len(self), plain(number)
        if not is_whole(number, -count, count):
            raise InputError(
                f"there are {count} episodes, numbered from 0; given {shown(number)}"
                + ("" if self._recorder else " (refresh() looks for new ones)")
            )
        place = number % count
        with self._lock():
            return Episode(self._path, self._layout, place, self._index.episode(place))

    def __iter__(self) -> Iterator[Episode]:
        """Every episode that is there now, first to last, one at a time."""
        return map(self.episode, range(len(self)))

    def fill(
        self,
        buffer: ReplayBuffer,
        where: Callable[[Episode], bool] | None = None,
        *,
        limit: int | None = None,
        env: int = 0,
        damaged: Literal["raise", "skip"] = "raise",
    ) -> tuple[int, int]:
        """Write episodes into a buffer, first to last, as if each were given to `extend`.

        So they are folded as the buffer folds, and none runs into the next. The buffer's fields
        must be among those of the store, with the same shapes and dtypes; they may be stored in
        other dtypes, and be fewer.

        Args:
            buffer: anything it holds stays, as far as there is room.
            where: only episodes for which it is true. What it asks of an episode besides length,
                return, lane and how it ended is read from the disk.
            limit: at most so many episodes.
            env: the buffer's lane to write to; it must be between two episodes.
            damaged: "skip" leaves episodes out whose steps cannot be read, and counts them in
                `stats()["damaged_left_out"]`.

        Returns:
            How many episodes were written, and how many steps.

        Raises:
            InputError: fields that do not fit, a lane in the middle of an episode, a buffer that
                tees into this store; nothing has changed then.
            CorruptError: an episode is damaged; those before it have been written, and the message
                says how many.
        """
        _check_choice(where, limit, damaged)
        if not hasattr(buffer, "_home"):
            raise InputError(f"fill writes into a ReplayBuffer; given {shown(buffer)}")
        if wrong := _differences(self._layout, buffer._home.layout, stored=False):
            raise InputError(f"the buffer needs what the store has not: {'; '.join(wrong)}")
        if self._recorder is not None and self._recorder.has(buffer._tee):
            raise InputError("the buffer tees into this store; call buffer.tee(None) first")
        require_between_episodes(buffer, env)
        episodes = steps = 0
        for episode in self:
            if episodes == limit:
                break
            try:
                if where is not None and not where(episode):
                    continue
                episode._read()
            except CorruptError as error:
                if damaged == "skip":
                    self._left_out += 1
                    continue
                raise CorruptError(
                    f"{error}; the {episodes} episodes ({steps} steps) before it have been "
                    "written, damaged='skip' leaves it out"
                ) from None
            _write(buffer, episode, env)
            episodes, steps = episodes + 1, steps + len(episode)
        return episodes, steps

    def check(self) -> None:
        """Read everything and verify every checksum; costs a pass over the files.

        Raises:
            CorruptError: names the first episode that is damaged.
        """
        for episode in self:
            episode._read()

    def stats(self) -> dict[str, int]:
        """Counters.

        episodes, steps, bytes: what is there. unfinished: episodes of which nobody said how they
        ended. open: episodes that have not ended yet. bytes_left_out: what a killed writer left
        behind the last whole run, noticed when the store was opened. dropped_reset_rows: fake steps
        of autoreset "next_step", and ready_made_rows: rows that are no steps, both given to buffers
        that tee here since it was opened. damaged_left_out: episodes that `fill` has skipped.
        """
        self._settled()
        with self._lock():
            recorder = self._recorder
            return {
                "episodes": self._index.num_episodes,
                "steps": self._index.num_steps,
                "bytes": files.size(self._path),
                "unfinished": self._index.unfinished,
                "open": len(self._index.open_runs()),
                "bytes_left_out": recorder.rest if recorder else self._rest,
                "dropped_reset_rows": recorder.dropped() if recorder else 0,
                "ready_made_rows": recorder.ready_made_rows if recorder else 0,
                "damaged_left_out": self._left_out,
            }

    def __reduce__(self) -> Any:
        """Pickled is where it lies; what comes out of it reads."""
        if self._recorder is not None and self._recorder.is_open:
            raise UnsupportedError(
                "a store that writes cannot be pickled or copied; open it with mode='r' where it "
                "is needed"
            )
        return _reopened, (type(self), self._path)

    def __repr__(self) -> str:
        mode = "'a'" if self._recorder is not None and self._recorder.is_open else "'r'"
        return (
            f"TrajectoryStore({str(self._path)!r}, {self._index.num_episodes} episodes, "
            f"{self._index.num_steps} steps, mode={mode})"
        )

    def _writing(self) -> Recorder:
        if self._recorder is None:
            raise UnsupportedError(
                "this store was opened with mode='r', to read; open it with mode='a' to append"
            )
        self._recorder.require_open()
        return self._recorder

    def _settled(self) -> bool:
        """Whether this store writes; then everything it was given is in the index."""
        if self._recorder is None or not self._recorder.is_open:
            return False
        self._recorder.write_out()
        return True

    def _lock(self) -> Any:
        return self._reading if self._recorder is None else self._recorder.guard

    def _tee(self, layout: RowLayout, steps: Tensor, due: list[bool], *, resets: bool) -> Tee:
        """For a buffer of some layout; see `Tee`.

        Raises:
            InputError: the buffer lacks a field, or has another one; the store is closed.
            UnsupportedError: the store was opened to read only, or is a fork's.
        """
        if wrong := _differences(layout, self._layout):
            raise InputError(f"the store needs what the buffer has not: {'; '.join(wrong)}")
        return self._writing().tee(layout, steps, due, resets=resets)


def _differences(source: RowLayout, target: RowLayout, *, stored: bool = True) -> list[str]:
    """What the target has that the source has not: columns, or other forms of them."""
    found = []
    for name, column in target.columns.items():
        if name == "next_obs" or name.startswith("next_obs."):  # it follows from the observation
            continue
        field = column.field
        other = source.columns[name].field if name in source.columns else None
        if other is None:
            found.append(f"{name} is missing")
        elif (other.shape, other.dtype) != (field.shape, field.dtype) or (
            stored and other.stored_dtype != field.stored_dtype
        ):
            found.append(f"{name} is {_said(other)}, not {_said(field)}")
    return found


def _said(field: Any) -> str:
    return f"{field.dtype} {list(field.shape)}" + (
        f" stored as {field.stored_dtype}" if field.stored_dtype != field.dtype else ""
    )


def _check_choice(where: Any, limit: Any, damaged: Any) -> None:
    """Refuse what does not say which episodes to take."""
    if damaged not in ("raise", "skip"):
        raise InputError(f"damaged is 'raise' or 'skip'; given {shown(damaged)}")
    limit = plain(limit)
    if limit is not None and not is_whole(limit, 0):
        raise InputError(f"limit is a whole number >= 0; given {shown(limit)}")
    if where is not None and not callable(where):
        raise InputError(f"where is a function of an episode, or None; given {shown(where)}")


def _write(buffer: ReplayBuffer, episode: Episode, env: int) -> None:
    """Give an episode to a buffer, as a stream of its own."""
    source, target = episode._layout, buffer._home.layout
    given = {}
    for name in (*target.fields, "next_obs", *OURS):
        given[name] = _for_buffer(episode, target.tree[name], source, target)
    with buffer._lock:
        require_between_episodes(buffer, env)
        buffer.extend(**given, env=env)


def require_between_episodes(buffer: ReplayBuffer, env: int) -> None:
    """Refuse a lane whose next step goes on from others, or is a fake one."""
    if env is None:
        raise InputError("env is one lane of the buffer; given None")
    lane = buffer._state.lanes[buffer._lanes(env)[0]]
    if lane[w.LANE_COUNT] > 0 or lane[w.LANE_LAST] >= 0 or lane[w.LANE_RESET] > 0:
        raise InputError(
            f"lane {env} of the buffer is in the middle of an episode; fill the buffer before its "
            "first step, or call end_episode() and reset the environment"
        )


def _for_buffer(episode: Episode, tree: Any, source: RowLayout, target: RowLayout) -> Any:
    """A field as the buffer's `extend` takes it: the very bytes where both store it alike."""
    if not isinstance(tree, str):
        return {k: _for_buffer(episode, branch, source, target) for k, branch in tree.items()}
    same = source.columns[tree].field.stored_dtype == target.columns[tree].field.stored_dtype
    return episode._values(tree, stored=same)


def _reopened(kind: type[TrajectoryStore], path: Path) -> TrajectoryStore:
    return kind(path, mode="r")
