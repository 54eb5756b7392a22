"""Any calls on a buffer that tees, beside a twin made of lists: every step is on disk, once."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from relive import Field, ReplayBuffer, TrajectoryStore
from relive.ops import words as w
from relive.writing import episodes, tee
from tests.properties.episodes_twin import EpisodesTwin, Step, by_env, without_empty

if TYPE_CHECKING:
    from collections.abc import Iterator

FIELDS = {"obs": Field(), "action": Field((), torch.int64)}
few = st.integers(0, 2)  # so that an observation often is the one before
endings = st.sampled_from([(False, False)] * 4 + [(True, False), (False, True), (True, True)])
steps = st.builds(
    lambda obs, action, reward, next_obs, ending: Step(obs, action, reward, next_obs, *ending),
    *(few, st.integers(-(2**60), 2**60), st.integers(-9, 9), few, endings),
)
lanes = st.integers(0, 2)
calls = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(steps, min_size=3, max_size=3)),
        st.tuples(st.just("add"), st.lists(steps, min_size=3, max_size=3)),
        st.tuples(st.just("extend"), lanes, st.lists(steps, max_size=9)),
        st.tuples(st.just("extend_all"), st.lists(st.lists(steps, min_size=3, max_size=3))),
        st.tuples(st.just("rows"), st.lists(steps, max_size=3)),
        st.tuples(st.just("end_episode"), lanes),
        st.tuples(st.just("clear")),
        st.tuples(st.just("flush")),
        st.tuples(st.just("tee_again")),
        st.tuples(st.just("open_again")),
        st.tuples(st.just("append"), st.lists(steps, max_size=9)),
    ),
    max_size=40,
)


@contextmanager
def small_pieces() -> Iterator[None]:
    """Everything that happens at a megabyte happens at once."""
    with mock.patch.object(tee, "STAGED", 400), mock.patch.object(episodes, "RUN", 90):
        yield


class Pair:
    """A buffer that tees into a store, and the twin of the store."""

    def __init__(self, folder: Path, num_envs: int, autoreset: str, n_step: int) -> None:
        self.folder, self.num_envs = folder, num_envs
        self.buffer = ReplayBuffer(
            7, FIELDS, num_envs=num_envs, autoreset=autoreset, n_step=n_step, kernels="cpu"
        )
        self.store = TrajectoryStore(folder, FIELDS)
        self.buffer.tee(self.store)
        self.twin = EpisodesTwin(num_envs, autoreset)
        self.appended: list[int] = []

    def add(self, given: list[Step]) -> None:
        given = given[: self.num_envs]
        final = {}
        if self.buffer._home.settings.resets == "same_step":  # the true one is elsewhere
            final["final_obs"] = np.array([step.next_obs for step in given], np.float32)
        shown = [
            step._replace(next_obs=77) if final and (step.terminated or step.truncated) else step
            for step in given
        ]
        self.buffer.add(**columns(shown, (self.num_envs,)), **final)
        for env, step in enumerate(given):
            self.twin.step(env, step)

    def extend(self, env: int, given: list[Step]) -> None:
        env %= self.num_envs
        self.buffer.extend(**columns(given, (len(given),)), env=env)
        for step in given:
            self.twin.step(env, step)
        if given:  # no steps close nothing
            self.twin.end_episode(env)

    def extend_all(self, given: list[list[Step]]) -> None:
        flat = [step for now in given for step in now[: self.num_envs]]
        self.buffer.extend(**columns(flat, (len(given), self.num_envs)), env=None)
        for number, step in enumerate(flat):
            self.twin.step(number % self.num_envs, step)
        for env in range(self.num_envs if given else 0):
            self.twin.end_episode(env)

    def rows(self, given: list[Step]) -> None:
        rows = columns(given, (len(given),))
        self.buffer.extend(**rows, discount=1.0 - rows["terminated"], env=0)

    def end_episode(self, env: int) -> None:
        self.buffer.end_episode(env % self.num_envs)
        self.twin.end_episode(env % self.num_envs)

    def clear(self) -> None:
        self.buffer.clear()
        self.twin.interrupt()

    def flush(self) -> None:
        self.store.flush()
        read = TrajectoryStore(self.folder, mode="r")
        assert without_empty(self.twin.ended) == by_env(read)
        assert len(read) == len(self.store)

    def tee_again(self) -> None:
        self.buffer.tee(self.store)
        self.twin.interrupt()

    def open_again(self) -> None:
        self.buffer.tee(None)
        self.store.close()
        self.twin.interrupt()
        self.store = TrajectoryStore(self.folder)
        self.buffer.tee(self.store)

    def append(self, given: list[Step]) -> None:
        lane = EpisodesTwin(1, "disabled")
        for step in given:
            lane.step(0, step)
        lane.end_episode(0)
        count = self.store.append(**columns(given, (len(given),)), env=9)
        assert count == len(lane.ended[0])
        self.twin.ended.setdefault(9, []).extend(lane.ended[0])

    def check(self) -> None:
        assert by_env(self.store) == without_empty(self.twin.ended)
        ended = (episode for lane in self.twin.ended.values() for episode in lane)
        assert self.store.num_steps == sum(len(episode.steps) for episode in ended)
        assert self.store.stats()["open"] == sum(map(bool, self.twin.open))
        due = self.buffer._state.lanes[:, w.LANE_RESET].tolist()
        assert due == list(map(int, self.twin.due))


def columns(given: list[Step], shape: tuple[int, ...]) -> dict[str, Any]:
    """Arguments of `add` and `extend`."""
    values = zip(*given, strict=True) if given else [[]] * len(Step._fields)
    dtypes = [np.float32, np.int64, np.float32, np.float32, bool, bool]
    arrays = (np.array(v, d).reshape(shape) for v, d in zip(values, dtypes, strict=True))
    return dict(zip(Step._fields, arrays, strict=True))


@given(
    calls=calls,
    num_envs=st.integers(1, 3),
    autoreset=st.sampled_from(["disabled", "next_step", "same_step"]),
    n_step=st.integers(1, 3),
)
def test_a_store_holds_every_step_that_a_buffer_was_given(calls, num_envs, autoreset, n_step):
    with tempfile.TemporaryDirectory() as folder, small_pieces():
        pair = Pair(Path(folder) / "store", num_envs, autoreset, n_step)
        for name, *arguments in calls:
            getattr(pair, name)(*arguments)
        pair.check()
        pair.open_again()
        pair.check()
        pair.buffer.check()
        pair.buffer.tee(None)
        pair.store.close()
