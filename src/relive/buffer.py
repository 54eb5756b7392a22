"""The replay buffer connects its parts and does nothing else.

Its home has all that is on its device: packer and stream check and pack what is given, `write`
folds it into rows of the ring, `sample` draws rows from it, `update` changes their priorities; they
share one state. Around that stand a lock, the guard against a GPU that fails, saves and a tee.

B  rows of a batch      E  environments (lanes)      T  steps in time      N  capacity, in rows
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from relive.arguments import REQUIRED, wrong_names
from relive.batch import Batch
from relive.declared import is_whole, plain
from relive.description import describe, require_same, undescribe
from relive.devices import known_device
from relive.errors import (
    ConfigError,
    CorruptError,
    InputError,
    NotReadyError,
    UnsupportedError,
    shown,
)
from relive.fallback import Fallback, falls_back, reads
from relive.fields import Fields, fields_of
from relive.gpu.capture import NotNowError, is_captured, outside_capture, require_no_capture
from relive.gpu.transfer import finish
from relive.gpu.turns import Turns
from relive.home import Home
from relive.locks import fork_safe_lock
from relive.ops import words as w
from relive.ops.sample.reference import beta
from relive.ops.window import reference as windows
from relive.sampling import Recent, Sampler, Uniform
from relive.sampling.id_range import id_range
from relive.sampling.prefetch import Prefetch
from relive.sampling.split import split_ids
from relive.settings import Settings
from relive.storage import checks, demonstrations, loading, memory, ring, statistics
from relive.storage.files import folder_at
from relive.storage.saving import Saver
from relive.storage.sending import Sender
from relive.trajectories import TrajectoryStore
from relive.writing import autoreset as resets
from relive.writing.packer import truth, vector, whole_batch

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from relive.gpu.failures import DeviceFailure
    from relive.ops.state import State
    from relive.schedules import Schedule
    from relive.settings import Autoreset, Kernels, OnFailure, RowsOn
    from relive.writing.stream import Piece, Stream
    from relive.writing.tee import Tee


class ReplayBuffer:
    """A ring of transitions to sample from.

    Every row written gets the next of a sequence of 64-bit ids, never reused; once `capacity` rows
    are held, a new row takes the place of the oldest. n-step returns are folded when rows are
    written, in one lane per environment: the newest n - 1 steps of an unfinished episode are not in
    the ring yet (`end_episode` puts them there).

    Any number of threads may use one buffer: a lock is held during each call.

    Args:
        capacity: rows in total, for all environments together.
        fields: `{"obs": Field(...), "action": Field(...), **own}`, see `fields_of`; observations
            may be nested dicts.
        sampler: `Uniform()`, `Proportional(...)` or `RankBased(...)`.
        window: None for all rows, or `Recent(...)` for the newest; works with every sampler.
        demo_fraction: of each batch drawn from demonstrations, once some are pinned; a number in
            [0, 1] or a schedule. None: demonstrations and all other rows are one pool.
        num_envs: environments that one `add` writes a step of.
        n_step: steps folded into one row.
        gamma: discount of one step; batches carry gamma^k as `discount`.
        autoreset: how a vector environment resets; must be named for several environments.
        device: where the buffer lives.
        rows_on: "host" for rows in pinned host memory, which kernels on a GPU read and write across
            the bus, with priorities and all else on the GPU; for buffers larger than the card.
        seed: of the buffer's own random numbers.
        track_reuse: count ages and reuse of what is sampled, for `stats` (4 bytes a row).
        kernels: "auto", or "reference" for the slow plain-torch definition of every operation.
        on_failure: what to do when memory is missing on a GPU, or a kernel can't be compiled or
            started: "raise" what CUDA says, or go on on the "cpu" with all rows and priorities,
            and a warning (`failure` tells it too). Batches go where they went.

    Raises:
        ConfigError: a setting that cannot work, or more memory than is free.
        UnsupportedError: a device that this version has no kernels for, or a capture under way.
        DeviceLostError: from any call, with on_failure="cpu": what was on the GPU is gone.
    """

    def __init__(
        self,
        capacity: int,
        fields: Fields,
        *,
        sampler: Sampler = Uniform(),
        window: Recent | None = None,
        demo_fraction: Schedule | None = 0.5,
        num_envs: int = 1,
        n_step: int = 1,
        gamma: float = 0.99,
        autoreset: Autoreset | None = None,
        device: str | torch.device = "cpu",
        rows_on: RowsOn = "device",
        seed: int = 0,
        track_reuse: bool = False,
        kernels: Kernels = "auto",
        on_failure: OnFailure = "raise",
    ) -> None:
        settings = Settings(
            capacity=capacity,
            fields=fields,
            sampler=sampler,
            window=window,
            demo_fraction=demo_fraction,
            num_envs=num_envs,
            n_step=n_step,
            gamma=gamma,
            autoreset=autoreset,
            device=device,
            rows_on=rows_on,
            track_reuse=track_reuse,
            kernels=kernels,
            on_failure=on_failure,
        )
        require_no_capture(known_device(settings.device), "ReplayBuffer(...)")
        self._num_envs, self._n_step = settings.num_envs, settings.n_step
        self._tee: Tee | None = None
        self._home = Home.made(settings)
        self._own = frozenset(fields) - {"obs", "action"}
        self._sender = Sender(self._home.batch_layout)
        lock = fork_safe_lock()
        on_gpu = self.device.type != "cpu"
        self._lock = Turns(lock, self.device, self._home.memory) if on_gpu else lock
        self._saver = Saver(self._state, self._lock)
        self.reseed(seed)

    def _move_to_cpu(self, why: str, tensors: dict[str, Tensor]) -> DeviceFailure:
        """Live in host memory from now on, with what these tensors of the state hold.

        Raises:
            ConfigError: there is no room; nothing has changed then.
            CorruptError: that is the state of no buffer; nothing has changed then.
        """
        turns, before = self._lock, self._home
        home = before.moved(why, tensors)
        if turns.was_captured:  # replays of a graph go on writing there
            self._kept = before
        if self._tee is not None:
            self._tee.move(home.intake.steps)
        self._saver.move(home.state, turns.lock)
        self._home, self._lock = home, turns.lock
        assert home.failure is not None  # it has moved
        return home.failure

    @property
    def _state(self) -> State:
        return self._home.state

    @classmethod
    def for_env(
        cls,
        env: Any,
        capacity: int,
        *,
        fields: Fields | None = None,
        stack: int | None = None,
        **settings: Any,
    ) -> Self:
        """A buffer for a Gymnasium environment or vector environment.

        Spaces, number of environments and autoreset mode are read from it; everything else is as in
        the constructor.

        Args:
            fields: other fields than `fields_of(env)`, for instance with some of your own.
            stack: frames of an observation, as in `fields_of`; each is kept once.

        Raises:
            ConfigError: as the constructor, or the environment says that it resets otherwise.
        """
        if fields is None:
            fields = fields_of(env, stack=stack)
        elif stack is not None:
            raise ConfigError("where fields= is given, that of the observation has the stack=")
        own = getattr(env, "num_envs", None)
        count = settings.setdefault("num_envs", own or 1)
        if "autoreset" not in settings and (own or count == 1):  # a single one tells of no copies
            settings["autoreset"] = resets.mode_of(env)
        elif own:
            resets.require_mode(env, settings["autoreset"])
        return cls(capacity, fields, **settings)

    # Writing

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
        """Write one step of every environment; copies what it is given.

        All values have a leading axis E; it may be left out when there is one environment (told by
        the reward). With n-step returns a row carries `own` fields of the first step of its window.

        Numbers are stored as they are, NaN and infinite ones too. One such reward makes a loss NaN
        as often as its row is drawn: where an environment may give any, ask before
        (`numpy.isfinite(reward).all()`), as `relive train` does.

        Args:
            obs: `[E, *shape]`, an array, tensor, number or list; or a dict of such.
            action: As `obs`.
            reward: `[E]` float.
            next_obs: as `obs`; with autoreset "same_step" it may be the next episode's first where
                one has ended.
            terminated: `[E]` bool.
            truncated: `[E]` bool; where both are true the step counts as terminated.
            final_obs: the last observations of episodes that ended, for autoreset "same_step"
                (`infos.get("final_obs")`).
            own: the other fields the buffer was made with.

        Raises:
            InputError: a wrong name, shape or dtype, or a missing final observation; nothing has
                changed then.
        """
        if (
            truncated is REQUIRED
            or terminated is REQUIRED
            or ((own or self._own) and own.keys() != self._own)
        ):
            ends = {"terminated": terminated, "truncated": truncated}
            raise InputError(wrong_names("this buffer's", self._own, own, "final_obs", **ends))
        given = obs, action, reward, next_obs, terminated, truncated, final_obs, own
        if self._home.guard is None:
            self._add(*given)
        else:
            kind = "add", isinstance(reward, Tensor) and not reward.is_cpu
            self._home.guard.call(self, kind, lambda: self._add(*given))

    def _add(
        self,
        obs: Any,
        action: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any,
        truncated: Any,
        final_obs: Any,
        own: dict[str, Any],
    ) -> None:
        with self._lock:
            tee = self._tee
            self._home.intake.take(
                obs,
                action,
                reward,
                next_obs,
                terminated,
                truncated,
                final_obs,
                own,
                on_host=tee is not None,
            )
            if self._saver.active:
                self._require_no_save("add")
                self._saver.make_way(self._home.intake.next_id, self._num_envs)
            if tee is not None:
                tee.take()
            try:
                self._home.intake.write()
            except Exception:
                if tee is not None:
                    tee.put_back()
                raise

    def extend(
        self,
        *,
        obs: Any,
        action: Any,
        reward: Any,
        next_obs: Any,
        terminated: Any = REQUIRED,
        truncated: Any = None,
        discount: Any = None,
        env: int | None = 0,
        **own: Any,
    ) -> None:
        """Write many steps in one call, in time order; any number, also more than the capacity.

        The steps are folded like those of `add`, going on from whatever the lane holds, and the
        last episode is closed at the end, as truncated if it has not ended. With `discount` the
        rows are ready-made: they are stored as they are, with their own return and discount.

        Args:
            obs: As in `add`, with a leading axis T for one stream, or `[T, E]` with `env=None`.
            action: As `obs`.
            reward: `[T]` or `[T, E]` float.
            next_obs: As `obs`; always the true one.
            terminated: `[T]` or `[T, E]` bool.
            truncated: The same; none if left out.
            discount: `[T]` or `[T, E]`; gamma^k of ready-made rows, in [0, 1] and 0 where
                terminated. Tensors on a GPU are not looked at.
            env: the lane of the stream; None for all lanes at once.
            own: The other fields the buffer was made with, as `obs`.

        Raises:
            InputError: a wrong name, shape, dtype or lane, or a discount that is none; nothing has
                changed then.
        """
        if terminated is REQUIRED or own.keys() != self._own:
            usual = "truncated", "discount"
            ends = {"terminated": terminated}
            raise InputError(wrong_names("this buffer's", self._own, own, *usual, **ends))
        lanes = self._lanes(env)
        given = {
            "obs": obs,
            "action": action,
            "reward": reward,
            "next_obs": next_obs,
            "terminated": terminated,
            **own,
        }
        if truncated is not None:
            given["truncated"] = truncated
        if discount is not None:
            given["discount"] = discount
        axis = None if env is not None else self._num_envs
        with self._lock:
            tee, ready_made = self._tee, discount is not None
            stream = self._stream(given, axis)
            for piece in stream.pieces():
                if self._saver.active:
                    self._require_no_save("extend")
                    self._saver.make_way(self._home.intake.next_id, piece.steps)
                if tee is not None and ready_made:
                    tee.skip(piece.steps)
                elif tee is not None:
                    tee.extend(piece.columns, piece.steps, lanes, close=piece.is_last)
                self._write_piece(piece, lanes, ready_made=ready_made)

    @reads
    def _stream(self, given: dict[str, Any], num_lanes: int | None) -> Stream:
        return self._home.intake.stream(given, num_lanes, on_host=self._tee is not None)

    @falls_back
    def _write_piece(self, piece: Piece, lanes: range, *, ready_made: bool) -> None:
        if self._home.batches_on is not None:  # it may have been cut when the buffer was there
            piece = piece.in_host_memory()
        self._home.intake.extend(piece, lanes, ready_made=ready_made)

    @outside_capture
    @falls_back
    def end_episode(self, env: int | None = None) -> None:
        """Close the episode of one lane (None: of all) here, as truncated.

        Waiting n-step windows become rows. Call it when you reset an environment yourself before
        its episode has ended.

        Raises:
            InputError: no such lane.
        """
        lanes = self._lanes(env)
        with self._lock:
            if self._saver.active:
                self._saver.make_way(self._home.intake.next_id, 0)
            if self._tee is not None:
                self._tee.end_episode(lanes)
            self._home.intake.end_episode(lanes)

    @outside_capture
    def tee(self, store: TrajectoryStore | None, *, lose: bool = False) -> None:
        """From now on give every step to a store too; None: to none any more.

        Steps go there as they are given, not folded, each episode with its true last observation
        and without fake reset steps. `end_episode` ends an episode there as well, `clear` leaves
        the one that is going on unfinished, as does another `tee`. Ready-made rows
        (`extend(discount=)`) are no steps: the store counts them. Copies of the buffer, loaded and
        `grown` ones have no store.

        Args:
            store: open to append; its fields must be among those of this buffer.
            lose: the store so far gets nothing more, and nothing of the episodes that are going on:
                the way out where it cannot be written any more.

        Raises:
            InputError: fields that do not fit, no store, or a closed one; nothing has changed then.
            UnsupportedError: the store was opened to read only.
            CorruptError, OSError: the store so far cannot be written, or has no room to end its
                episodes; steps go there still.
        """
        if store is not None and not isinstance(store, TrajectoryStore):
            raise InputError(f"tee takes a TrajectoryStore or None; given {shown(store)}")
        with self._lock:
            before, after = self._tee, None
            if store is not None:
                due = self._state.lanes[:, w.LANE_RESET].tolist()
                resets = self._home.settings.resets == "next_step"
                steps = self._home.intake.steps
                after = store._tee(self._home.layout, steps, due, resets=resets)
            try:
                if before is not None:
                    before.leave() if lose else before.finish()
            except BaseException:
                if after is not None:
                    after.leave()
                raise
            self._tee = after

    # Sampling

    def ready(self, batch_size: int = 1) -> bool:
        """Whether at least `batch_size` >= 1 rows are held and something can be drawn."""
        batch_size = whole_batch(batch_size)
        with self._lock:
            return self._home.intake.ready(batch_size)

    def sample(
        self,
        batch_size: int,
        *,
        out: Batch | None = None,
        train: bool = True,
        device: str | torch.device | None = None,
    ) -> Batch:
        """Draw rows, with replacement.

        Args:
            batch_size: B >= 1; may exceed the number of rows.
            out: a batch of `empty_batch(batch_size)` to write into. What was computed from it must
                have been differentiated before (autograd raises otherwise).
            train: False draws from a stream of its own and leaves progress, age and reuse alone.
            device: where the batch goes, in one copy; None leaves it where the buffer lives.

        From a buffer on the CPU to a CUDA device the rows are drawn into pinned memory, and their
        copy is queued on the current stream of that device: the host does not wait for it, unless
        four batches of this size are under way already (then for the oldest). From a CUDA device to
        the CPU, and with `out`, the host waits.

        Returns:
            A batch that the caller owns; nothing writes into it while anything of it is held.

        Raises:
            NotReadyError: nothing can be drawn yet.
            InputError: a bad batch size, or a batch of another size.
            UnsupportedError: no such device; or a batch from the CPU, or to it, while the current
                stream is being captured in a CUDA graph. Nothing has been drawn then.
        """
        size, train = whole_batch(batch_size), truth("train", train)
        if self._home.guard is not None:
            kind = "sample", size, train, False
            return self._home.guard.call(self, kind, lambda: self._send(size, out, train, device))
        return self._send(size, out, train, device)

    def _send(
        self, size: int, out: Batch | None, train: bool, device: str | torch.device | None
    ) -> Batch:
        """Draw a batch, wherever it goes."""
        if device is None and out is None:
            device = self._home.batches_on
        if device is None:
            return self._sample(size, out, train, None)
        target = known_device(device)
        if target.type == "cpu":
            require_no_capture(self._home.device, "sample(device='cpu')")
        if out is None and target.type == "cuda" and self._home.device.type == "cpu":
            with self._lock:
                return self._sender.send(
                    size,
                    target,
                    lambda batch: self._fill(batch, 0, size, train=train),
                )
        batch = self._sample(size, out, train, None)
        # Numbers on their way to the CPU would be read before they are there.
        return batch.to(target, non_blocking=target.type == "cuda")

    def batches(
        self,
        batch_size: int,
        *,
        ahead: int = 0,
        device: str | torch.device | None = None,
        train: bool = True,
    ) -> Prefetch:
        """Batches without end, `ahead` of them drawn and on their way before they are asked for.

            batches = buffer.batches(256, ahead=1, device="cuda")
            for step in range(1_000_000):
                ...
                agent.update(next(batches))

        `next` first draws what is missing ahead, then gives the oldest batch; with `ahead=0` it is
        `sample`. While you train on one batch the next ones are copied to the device on a stream of
        their own; your stream waits for the copy, the host does not. There are no threads: the
        same calls give the same batches.

        A batch was drawn `ahead` calls of `next` before you get it, with the rows, priorities and
        window of that moment; beta and progress are that much further on. A row may have been
        overwritten meanwhile: `update_priorities` then skips and counts it. Whoever drops the
        iterator loses the batches drawn ahead; its `state_dict()` holds them, for resuming exactly.

        Args:
            batch_size: B >= 1.
            ahead: batches drawn before they are asked for, >= 0; with 1 the copy is hidden already.
            device: as in `sample`.
            train: as in `sample`.

        Returns:
            An iterator for one thread. Its `next` raises what `sample` raises, and draws nothing
            then; it can be asked again. Batches drawn ahead on a CUDA device cannot be captured.

        Raises:
            InputError: a bad batch size, or `ahead` that is none.
            UnsupportedError: no such device.
        """
        target = self._home.device if device is None else known_device(device)
        size, train = whole_batch(batch_size), truth("train", train)
        return Prefetch(self, size, target, ahead=ahead, train=train)

    def sample_range(
        self, batch_size: int, start: int | Tensor, stop: int | Tensor, *, out: Batch | None = None
    ) -> Batch:
        """Draw from the rows with ids in [start, stop) only, whatever the window.

        Weighted as the buffer's sampler says, within that range. Does not count as a training
        sample and has the random stream of `sample(train=False)`. Rows of the range that have been
        overwritten are left out and counted (`stats()["range_rows_gone"]`).

        Args:
            start: the first id, >= 0. On CUDA a 0-d tensor is read on the device, anew in every
                replay of a captured call; a number cannot be captured.
            stop: one past the last id.

        Raises:
            InputError: a range of no rows, a bad batch size or a batch of another size.
            NotReadyError: all priorities in the range are 0.
        """
        size = whole_batch(batch_size)
        if self._home.guard is not None:
            kind = "sample", size, False, True
            draw = partial(self._sample_range, size, start, stop, out)
            return self._home.guard.call(self, kind, draw)
        return self._sample_range(size, start, stop, out)

    def _sample_range(
        self, size: int, start: int | Tensor, stop: int | Tensor, out: Batch | None
    ) -> Batch:
        with self._lock:
            self._require_no_save("sample_range")
            ids = id_range(start, stop, self._home.device)
            batch = self._sample(size, out, False, ids)
        return batch if out is not None else self._home.there(batch)

    def _sample(
        self, batch_size: int, out: Batch | None, train: bool, ids: tuple[int, int] | Tensor | None
    ) -> Batch:
        if out is not None:
            self._home.require_fits(out, batch_size)
        with self._lock:
            batch = self._home.batches.lend(batch_size) if out is None else out
            self._fill(batch, 0, batch_size, train=train, ids=ids)
            if out is not None and not out._arena.is_inference():
                increment_version(out._arena)
        return batch

    def _fill(
        self,
        batch: Batch,
        first: int,
        count: int,
        *,
        train: bool,
        ids: tuple[int, int] | Tensor | None = None,
    ) -> None:
        """Draw `count` rows into a batch, from its row `first` on."""
        if self._home.guard is None:
            self._draw(batch, first, count, train, ids)
            return
        kind = "sample", (first, count, len(batch)), train, ids is not None
        again = partial(self._draw, batch, first, count, train, ids)
        self._home.guard.call(self, kind, again)

    def _draw(
        self,
        batch: Batch,
        first: int,
        count: int,
        train: bool,
        ids: tuple[int, int] | Tensor | None,
    ) -> None:
        """The same from where the buffer is now."""
        with self._lock:
            self._require_no_save("sample")
            self._home.draw(batch, first, count, train=train, ids=ids)

    def empty_batch(self, batch_size: int) -> Batch:
        """A batch to be filled by `sample(batch_size, out=...)`; its values mean nothing yet."""
        size = whole_batch(batch_size)
        return self._home.empty_batch(size)

    @outside_capture
    @reads
    def rows(self, ids: Any) -> Batch:
        """The rows with these ids, weights 1. On CUDA it waits for the device.

        Raises:
            InputError: an id that is not held (any more).
        """
        with self._lock:
            wanted = ring.known_ids(self._state, ids)
            batch = self._home.batches.make(len(wanted))
            batch.ids.copy_(wanted)
            batch.weights.fill_(1.0)
            self._home.ops.gather(self._state, wanted, batch._arena)
        return self._home.there(batch)

    @outside_capture
    def all(self) -> Batch:
        """Every row held, in the order of `live_ids()`, weights 1. On CUDA it waits.

        Raises:
            NotReadyError: there is none.
        """
        with self._lock:
            if not len(self):
                raise NotReadyError("no rows are held" + self._home.waiting())
            return self.rows(self.live_ids())

    @outside_capture
    @reads
    def live_ids(self) -> Tensor:
        """Ids of the rows held, ascending, so oldest first: int64 `[len(buffer)]`.

        On CUDA it waits for the device.
        """
        with self._lock:
            return windows.held_ids(self._state)

    def split(self, holdout: float, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Ids for training, and ids held out, each ascending: int64.

        Which side an id is on follows from the id and the seed alone, so a row never changes sides
        while others are added.

        Args:
            holdout: probability in [0, 1] of being held out.
            seed: any 64-bit integer.

        Raises:
            InputError: a probability or seed that is none.
        """
        return split_ids(self.live_ids(), holdout, seed)

    # Priorities

    @property
    def prioritized(self) -> bool:
        """Whether `update_priorities` means something for this buffer."""
        return self.sampler.prioritized

    def update_priorities(self, ids: Any, td_errors: Any = None, *, priorities: Any = None) -> None:
        """Set priorities of rows from their TD errors.

        leaf = (|td_error| + eps)^alpha. Rows overwritten since they were drawn are skipped and
        counted; of several errors for one id the last decides; NaN and infinite errors follow
        `bad_priority`.

        Args:
            ids: `[B]` integers, `batch.ids`.
            td_errors: `[B]` floats; the sign does not matter. Detached, rounded to float32.
            priorities: instead of errors, what `priorities(ids)` returned.

        Raises:
            UnsupportedError: the buffer is not prioritized.
            InputError: shapes that differ, ids that were never given out, or (with
                bad_priority="raise") a bad number; nothing has changed then.
        """
        if not self.sampler.prioritized:
            raise UnsupportedError(
                "this buffer draws uniformly and has no priorities; ask buffer.prioritized first, "
                "or make it with sampler=Proportional()"
            )
        if (td_errors is None) == (priorities is None):
            raise InputError("update_priorities takes either td_errors or priorities=")
        if isinstance(ids, Batch):
            raise InputError("ids: given a batch, expected those of its rows; pass batch.ids")
        if self._home.guard is not None:
            kind = "update", len(ids) if hasattr(ids, "__len__") else 0, priorities is None
            self._home.guard.call(self, kind, lambda: self._update(ids, td_errors, priorities))
        else:
            self._update(ids, td_errors, priorities)

    def _update(self, ids: Any, td_errors: Any, priorities: Any) -> None:
        if priorities is None:
            values = vector("td_errors", td_errors, torch.float32, self._home.device)
        else:
            values = vector("priorities", priorities, torch.float32, self._home.device)
        wanted = vector("ids", ids, torch.int64, self._home.device)
        if wanted.numel() != values.numel():
            raise InputError(
                f"given {len(wanted)} ids and {len(values)} values, expected as many of each"
            )
        with self._lock:
            self._require_no_save("update_priorities")
            outcome = self._home.ops.update(
                self._state, wanted, values, as_leaves=priorities is not None
            )
            if outcome == w.UNKNOWN_ID:
                raise InputError(
                    f"ids lie in [0, {self._state.word(w.NEXT_ID)}), the ids given out so far; "
                    f"given {int(wanted.min())}...{int(wanted.max())}; pass batch.ids"
                )
            if outcome == w.NOT_A_PRIORITY:
                raise InputError(
                    "an error is NaN or infinite (or a priority negative): bad_priority is 'raise'"
                )

    @falls_back
    def resort(self) -> None:
        """Sort rows by |td error| now, and count `resort_every` updates from here.

        `update_priorities` does so by itself, but for the updates that replays of a CUDA graph
        make: the host does not see those. The host does not wait, and a sort can be captured, in a
        graph of its own.

        Raises:
            UnsupportedError: the sampler is not `RankBased`.
        """
        if not self._home.settings.sampler.ranked:
            raise UnsupportedError("only a buffer with sampler=RankBased(...) is sorted by rank")
        with self._lock:
            self._require_no_save("resort")
            self._home.ops.sort_by_rank(self._state)

    @outside_capture
    @reads
    def priorities(self, ids: Any) -> Tensor:
        """What is stored of each row: float32 `[B]`. Writing it back changes nothing.

        On CUDA it waits for the device.

        With `Proportional` the leaf, (|td error| + eps)^alpha; with `RankBased` |td error|,
        infinite for a row that has never been updated.

        Raises:
            UnsupportedError: the buffer is not prioritized.
            InputError: an id that is not held (any more).
        """
        if not self.prioritized:
            raise UnsupportedError("this buffer draws uniformly and has no priorities")
        with self._lock:
            state = self._state
            slots = windows.slots_of(state, ring.known_ids(state, ids))
            return (state.errors if self.sampler.ranked else state.leaves)[slots]

    @property
    @outside_capture
    @reads
    def beta(self) -> float | None:
        """Exponent of the importance weights now; None if the buffer is not prioritized.

        On CUDA it waits for the device; `stats()` tells it without.
        """
        with self._lock:
            return beta(self._state) if self.prioritized else None

    # Demonstrations

    @outside_capture
    def pin_demonstrations(
        self, count: int, *, batch_size: int | None = None, reserve: int = 0
    ) -> None:
        """Make the rows written so far demonstrations: they are never overwritten.

        From then on `demo_fraction` of every batch is drawn from them (all of it until another row
        exists), spread evenly over the batch, and the rest from the other rows, through the window.

        Args:
            count: `len(buffer)`, said again because it must be meant.
            batch_size: refuse unless so many other rows fit.
            reserve: room for rows pinned later with `pin`.

        Raises:
            InputError: not all rows so far (since `clear`, `grown` or a load into another capacity,
                if there was one), steps that wait for their windows, or no room for other rows;
                nothing has changed then.
        """
        online = 1 if batch_size is None else whole_batch(batch_size)
        with self._lock:
            demonstrations.pin_first(self._state, count, reserve, online)
            self._home.intake.refresh()

    @outside_capture
    @falls_back
    def pin(self, ids: Any) -> Tensor:
        """Copy rows, with their priorities, to the demonstrations: an intervention, say.

        Args:
            ids: of rows that are held; there must be room in `reserve`.

        Returns:
            The ids of the copies: int64 `[B]`.

        Raises:
            InputError: an id that is not held, or no room; nothing has changed then.
        """
        with self._lock:
            wanted = ring.known_ids(self._state, ids)
            pinned = demonstrations.pin_copies(self._state, self._home.ops, wanted)
            self._home.intake.refresh()
        return pinned

    # State

    @overload
    def save(
        self, path: str | Path, *, note: Any = ..., background: Literal[False] = ...
    ) -> None: ...

    @overload
    def save(
        self, path: str | Path, *, note: Any = ..., background: Literal[True]
    ) -> Future[None]: ...

    def save(
        self, path: str | Path, *, note: Any = None, background: bool = False
    ) -> Future[None] | None:
        """Write everything into the folder `path`: rows, priorities, waiting steps, random state.

        Where this buffer was saved there before (or loaded from there), only rows written since are
        added. A save that is interrupted leaves the one before it whole. Other calls wait
        meanwhile, unless it is in the background: then the buffer as it is now is written while
        training goes on, rows that are about to be overwritten are copied first, and `clear` and
        the next save wait for its end, as does the program.

        Args:
            note: kept beside the buffer in the same step, for `saved_note`: the state dicts of an
                agent and its optimiser, say, or where training stands. Dicts with str or int keys,
                lists, tuples, numbers, strings, None, tensors and arrays.
            background: come back as soon as priorities have been copied.

        Returns:
            None; in the background a future whose `result()` waits for the end, and raises what
            went wrong.

        Raises:
            InputError: a note that cannot be kept; nothing has been written then.
            OSError: as the file system says.
        """
        later = truth("background", background)
        require_no_capture(self._home.device, "save")
        folder = folder_at(path)
        if self._home.guard is not None:
            return self._home.guard.call_unlocked(self, self._save, folder, note, later)
        return self._save(folder, note, later)

    def _save(self, folder: Path, note: Any, later: bool) -> Future[None] | None:
        return self._saver.save(
            folder,
            self._described(),
            note,
            background=later,
            counts_rows=self._home.intake.next_id is not None,
        )

    @staticmethod
    def saved_note(path: str | Path) -> Any:
        """The note that was saved beside a buffer, tensors on the CPU.

        Raises:
            InputError: no saved buffer is there, or one of another format.
            CorruptError: it is damaged.
        """
        return loading.load_note(folder_at(path))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        capacity: int | None = None,
        device: str | torch.device | None = None,
        rows_on: RowsOn | None = None,
        kernels: Kernels = "auto",
        on_failure: OnFailure | None = None,
    ) -> Self:
        """The buffer that was saved in a folder, as it was.

        Args:
            capacity: None for that of the saved buffer; with less, the newest rows are kept.
            device: where it lives now; None for where it lived.
            rows_on: where on it; None for where they were, if that can be there.
            kernels: As in the constructor.
            on_failure: As there; None for what was said then.

        Raises:
            InputError: no saved buffer is there, or one of another format.
            CorruptError: a file is missing, cut or has changed; says which.
            ConfigError: a capacity without room for the demonstrations and one more row.
            UnsupportedError: a device that this version has no kernels for.
        """
        folder = folder_at(path)
        capacity = plain(capacity)
        if capacity is not None:
            memory.check_count("capacity", capacity)
        manifest = loading.read_settings(folder)
        if manifest["settings"] is None:
            raise InputError(f"{folder} holds a note, but no buffer was saved with it")
        settings = undescribe(manifest["settings"])
        if capacity is not None:
            loading.require_room(manifest, capacity)
        if rows_on is None and device is not None and known_device(device).type == "cpu":
            rows_on = "device"
        where: dict[str, Any] = {
            "kernels": kernels,
            "device": device,
            "rows_on": rows_on,
            "on_failure": on_failure,
        }
        wanted = {"capacity": capacity, **where}
        wanted = {name: value for name, value in wanted.items() if value is not None}
        try:
            buffer = cls(**{**settings, **wanted})
        except (TypeError, RecursionError) as error:
            raise CorruptError(f"the settings of the buffer are damaged: {error}") from None
        try:
            with buffer._lock:  # kernels are launched on its device, whichever is current
                loading.load(buffer._state, buffer._home.ops, folder, manifest)
                buffer._home.intake.refresh()
        except CorruptError:
            if loading.read_settings(folder) == manifest:
                raise
            # saved again while it was being read
            return cls.load(path, capacity=capacity, **where)
        same_rows = manifest["row_bytes"] == buffer._home.row_layout.row_bytes
        if same_rows and buffer.capacity == settings["capacity"]:
            buffer._saver.note(folder, manifest)  # the next save adds to what is there
        return buffer

    @outside_capture
    @reads
    def state_dict(self) -> dict[str, Any]:
        """Everything, for `torch.save`: copies of all tensors, and the settings as plain values.

        `save` needs less memory, is checked, and adds to what is there.
        """
        with self._lock:
            finish(self._home.device)
            tensors = {name: tensor.clone() for name, tensor in self._state.tensors().items()}
        return {"settings": self._described(), "tensors": tensors}

    @outside_capture
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` of a buffer with the same settings gave, on any device.

        Raises:
            InputError: this is no such thing; nothing has changed then.
            ConfigError: settings differ; says which, and nothing has changed.
            OSError: the disk of the store that it tees into is full; nothing has changed.
        """
        if not isinstance(state, dict) or state.keys() != {"settings", "tensors"}:
            raise InputError("state is what state_dict() gave, with settings and tensors")
        require_same(state["settings"], self._described())
        with self._saver.idle():
            self._take_over(state["tensors"])

    @falls_back
    def _take_over(self, tensors: dict[str, Tensor]) -> None:
        tensors = ring.repadded(self._state, tensors)
        checks.require_sound(self._state, tensors)
        if self._tee is not None:  # first: where its disk is full, nothing has changed
            self._tee.interrupt()
        self._state.take(tensors)
        self._home.intake.refresh()
        self._saver.forget()
        if self._tee is not None:
            self._tee.set_resets(self._state.lanes[:, w.LANE_RESET].tolist())

    def _described(self) -> dict[str, Any]:
        """The settings, as JSON."""
        return describe(self._home.settings.arguments())

    @outside_capture
    def grown(self, capacity: int) -> Self:
        """A larger buffer with everything that this one has.

        Rows with their ids and priorities, waiting steps, demonstrations, random state, progress
        and counters.

        Raises:
            ConfigError: a smaller capacity, or more memory than is free.
        """
        capacity = plain(capacity)
        if not isinstance(capacity, int) or capacity < self.capacity:
            raise ConfigError(f"capacity grows from {self.capacity}; given {shown(capacity)}")
        same = self._home.settings.arguments()
        larger = type(self)(**{**same, "capacity": capacity, "on_failure": "raise"})
        larger._home.settings = replace(larger._home.settings, on_failure=same["on_failure"])
        larger._home.guard = self._home.guard and Fallback(self._home.device)
        with self._lock:
            ring.copy_into(self._state, larger._state, larger._home.ops)
            larger._home.intake.refresh()
        return larger

    @outside_capture
    def start_sweep(self, updates: int) -> None:
        """Begin a sweep of the shrinking window `Recent(...)`, of `updates` >= 1 training samples.

        Raises:
            UnsupportedError: the buffer has no such window.
            InputError: no whole number of at least 1.
        """
        if self._home.settings.window is None or self._home.settings.window.count is not None:
            raise UnsupportedError("only window=Recent(eta=...) has sweeps")
        updates = plain(updates)
        if not is_whole(updates, 1, 2**62):
            raise InputError(f"updates is a whole number >= 1; given {shown(updates)}")
        with self._lock:
            self._state.put(w.SWEEP_LENGTH, updates)
            self._state.put(w.SWEEP, 0)

    @outside_capture
    def clear(self) -> None:
        """Drop every row, waiting step and priority; ids, random state and progress go on.

        A save under way in the background is waited for.
        """
        with self._saver.idle():
            if self._tee is not None:
                self._tee.interrupt()
            self._clear()

    @falls_back
    def _clear(self) -> None:
        ring.clear(self._state)
        self._home.intake.forget()

    @outside_capture
    def reseed(self, seed: int) -> None:
        """Start the random streams of a seed (any 64-bit integer) from their beginning."""
        seed = plain(seed)
        if not is_whole(seed, -(2**63), 2**63):
            raise ConfigError(f"seed is a signed 64-bit integer; given {shown(seed)}")
        with self._lock:
            self._state.put(w.SEED, seed)
            self._state.put(w.DRAWS, 0)
            self._state.put(w.EVAL_DRAWS, 0)

    @outside_capture
    def set_progress(self, t: int) -> None:
        """Say that `t` training samples have been drawn, for schedules."""
        t = plain(t)
        if not is_whole(t, 0, 2**61):
            raise InputError(f"progress is a whole number in [0, 2^61); given {shown(t)}")
        with self._lock:
            self._state.put(w.PROGRESS, t)

    @outside_capture
    @reads
    def stats(self, *, wait: bool = False) -> dict[str, Any]:
        """Counters since the buffer was made, and where its schedules stand.

        `relive.storage.statistics.stats`, and a table in the reference, say what each means. On
        CUDA these are the numbers of an earlier call: each sends for new ones and returns the
        newest that have arrived, those of the new buffer at first.

        Args:
            wait: on CUDA wait for the numbers of now. On the CPU they always are.
        """
        wait = truth("wait", wait)
        with self._lock:
            numbers = statistics.gather(self._state)
            if self._home.numbers is not None and not wait:
                self._home.numbers.ask(numbers)
                numbers = self._home.numbers.latest()
        return statistics.stats(numbers.cpu())

    @outside_capture
    @reads
    def check(self) -> None:
        """Verify every invariant of the ring and the tree; costs a pass over the buffer.

        Raises:
            CorruptError: names the first that is broken.
        """
        with self._lock:
            checks.check(self._state)

    def memory(self) -> memory.MemoryPlan:
        """The bytes this buffer holds, by component."""
        return memory.plan(
            self.capacity,
            self._home.settings.fields,
            sampler=self._home.settings.sampler,
            num_envs=self._num_envs,
            n_step=self._n_step,
            batch_size=0,
            track_reuse=self._home.settings.track_reuse,
            device=self._home.device.type,
            rows_on=self._home.settings.rows_on,
        )

    @outside_capture
    @reads
    def __len__(self) -> int:
        with self._lock:
            return windows.num_rows(self._state)

    @property
    def capacity(self) -> int:
        """Most rows held, for all environments together."""
        return self._state.rows.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the buffer lives."""
        return self._home.device

    @property
    def failure(self) -> DeviceFailure | None:
        """What drove the buffer from its GPU to the CPU, with on_failure="cpu"; None if nothing.

        It has the `device` that failed, the `reason`, and how many `rows` and `nbytes` were kept.
        """
        return self._home.failure

    @property
    def is_saving(self) -> bool:
        """Whether a save is under way in the background; no call can be captured meanwhile."""
        return self._saver.active

    @property
    def num_envs(self) -> int:
        """Environments that one `add` writes a step of."""
        return self._num_envs

    @property
    def n_step(self) -> int:
        """Steps folded into one row."""
        return self._n_step

    @property
    def gamma(self) -> float:
        """Discount of one step."""
        return self._home.settings.gamma

    @property
    def sampler(self) -> Sampler:
        """How rows are drawn."""
        return self._home.settings.sampler

    @property
    def window(self) -> Recent | None:
        """Which rows are drawn from; None: all."""
        return self._home.settings.window

    @outside_capture
    def __reduce__(self) -> Any:
        """Pickle and copy everything, rows too."""
        with self._lock:  # arrays: torch would send tensors to a process as open files
            finish(self._home.device)
            tensors = self._state.tensors().items()
            arrays = {name: tensor.to("cpu", copy=True).numpy() for name, tensor in tensors}
        return _unpickled, (type(self), self._home.settings.arguments(), arrays)

    def __repr__(self) -> str:
        held = "?" if is_captured(self._home.device) else len(self)
        frames = "frames kept once, " if self._state.keeps_frames else ""
        return (
            f"ReplayBuffer({held} of {self.capacity} rows, {self._home.settings.sampler}, "
            f"num_envs={self._num_envs}, n_step={self._n_step}, {frames}{self._home.device})"
        )

    def _require_no_save(self, call: str) -> None:
        """A save in the background uses the device beside a capture, which CUDA does not allow."""
        if self._saver.active and is_captured(self._home.device):
            raise NotNowError(
                f"{call} cannot be captured in a CUDA graph while a save is under way; call it "
                "before or after that"
            )

    def _lanes(self, env: int | None) -> range:
        if env is None:
            return range(self._num_envs)
        env = plain(env)
        if not is_whole(env, 0, self._num_envs):
            raise InputError(
                f"env is one of 0...{self._num_envs - 1}, or None for all; given {shown(env)}"
            )
        return range(env, env + 1)


def _unpickled(
    kind: type[ReplayBuffer], settings: dict[str, Any], arrays: dict[str, Any]
) -> ReplayBuffer:
    """A buffer with these settings and memory."""
    buffer = kind(**settings)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    buffer._state.take(ring.repadded(buffer._state, tensors))
    buffer._home.intake.refresh()
    return buffer
