"""Frames that are kept once: batches are those of stacks stored whole, rows go when frames do."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import settings

from relive import Field, Proportional, RankBased, ReplayBuffer, Uniform
from relive.ops import words as w
from tests.equivalence.states import assert_same_batch, assert_same_state
from tests.properties.frames_twin import FramesTwin

if TYPE_CHECKING:
    from pathlib import Path

EFFORT = settings.default.max_examples
GAMMA = 0.5  # a row's discount tells how many steps it has
PIXELS = 3


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What the buffers are made with, and how the environments behave."""

    stack: int = 4
    capacity: int = 60
    num_envs: int = 1
    n_step: int = 1
    autoreset: str = "disabled"
    sampler: Any = field(default_factory=Uniform)
    end: float = 0.1  # probability that an episode ends
    padding: str = "first"  # what is in front of an episode's first frame: it, or "zero"
    store: Field | None = None
    colours: int = 256  # few: frames are often equal

    def buffer(self, kernels: str, *, once: bool) -> ReplayBuffer:
        shape, stack = (self.stack, PIXELS), self.stack if once else None
        image = Field(shape, torch.uint8, stack=stack)
        if self.store is not None:
            image = Field(shape, stack=stack, store=self.store.store)
        fields = {
            "obs": {"image": image, "place": Field()},
            "action": Field((), torch.int64),
            "tag": Field((), torch.int32),
        }
        return ReplayBuffer(
            self.capacity,
            fields,
            num_envs=self.num_envs,
            n_step=self.n_step,
            gamma=GAMMA,
            autoreset=self.autoreset,
            sampler=self.sampler,
            kernels=kernels,
            seed=3,
            track_reuse=True,
        )


SPECS = {
    "one environment": Spec(),
    "short episodes": Spec(end=0.7, capacity=1000),
    "short episodes, padded with zeros": Spec(end=0.7, capacity=500, padding="zero"),
    "three steps": Spec(n_step=3, capacity=2000, end=0.5, sampler=Proportional()),
    "no stack: next observations are kept once": Spec(stack=1, n_step=2, end=0.3, capacity=100),
    "a pair, frames often equal": Spec(stack=2, colours=2, sampler=RankBased(resort_every=5)),
    "three environments, next step": Spec(
        num_envs=3, n_step=3, autoreset="next_step", end=0.4, capacity=1500, sampler=Proportional()
    ),
    "four environments, same step": Spec(
        num_envs=4,
        n_step=2,
        autoreset="same_step",
        end=0.4,
        capacity=2500,
        sampler=Proportional(new_priority="max_current", normalize="batch"),
    ),
    "two environments, converted": Spec(
        num_envs=2, autoreset="disabled", store=Field((1,), store=torch.uint8), end=0.3
    ),
}


class Worlds:
    """Environments whose observations are stacks of random frames."""

    def __init__(self, spec: Spec, seed: int) -> None:
        self.spec, self.rng, self.tag = spec, np.random.default_rng(seed), 0
        self.stacks = [self.first() for _ in range(spec.num_envs)]
        self.resets = [False] * spec.num_envs

    def frame(self) -> np.ndarray:
        return self.rng.integers(0, self.spec.colours, PIXELS, dtype=np.uint8)

    def first(self) -> np.ndarray:
        frame = self.frame()
        padding = frame if self.spec.padding == "first" else np.zeros_like(frame)
        return np.stack([padding] * (self.spec.stack - 1) + [frame])

    def step(self, lane: int, *, autoreset: str) -> dict[str, Any]:
        """One step of an environment, as `add` takes it."""
        obs, rng = self.stacks[lane], self.rng
        terminated, truncated = (bool(rng.random() < self.spec.end) for _ in range(2))
        if rng.random() < 0.02:  # nothing says that stacks go on from each other
            obs = self.rng.permutation(obs)
        after = np.concatenate([obs[1:], self.frame()[None]])
        if rng.random() < 0.02:
            after = self.first()
        final = after
        if self.resets[lane]:  # a fake step
            after, terminated, truncated = self.first(), False, False
        over = terminated or truncated
        self.resets[lane] = over and autoreset == "next_step"
        begins = over and autoreset != "next_step"
        self.stacks[lane] = self.first() if begins else after
        if begins and autoreset == "same_step":
            after = self.stacks[lane]
        self.tag += 1
        return {
            "obs": {"image": obs, "place": np.float32(self.tag)},
            "action": self.tag % 5,
            "reward": float(rng.normal()),
            "next_obs": {"image": after, "place": np.float32(self.tag + 0.5)},
            "terminated": terminated,
            "truncated": truncated,
            "tag": self.tag,
            "final": {"image": final, "place": np.float32(self.tag + 0.5)} if over else None,
        }


def stacked(steps: list[Any]) -> Any:
    """Steps one beside the other, nested as they are."""
    if isinstance(steps[0], dict):
        return {key: stacked([step[key] for step in steps]) for key in steps[0]}
    return np.stack(steps)


class Trio:
    """The same calls on frames kept once, by kernels and by definition, and on whole stacks."""

    def __init__(self, spec: Spec, seed: int, kernels: tuple[str, ...], folder: Path) -> None:
        self.spec, self.worlds = spec, Worlds(spec, seed)
        self.kernels, self.folder = kernels, folder
        self.once = [spec.buffer(name, once=True) for name in kernels]
        self.whole = spec.buffer("cpu", once=False)
        self.twin = FramesTwin(room=len(self.once[0]._state.frames))
        self.steps: list[list[dict[str, Any]]] = [[] for _ in range(spec.num_envs)]
        self.places: dict[int, tuple[int, int]] = {}  # lane and number of each step
        self.seen = self.evicted = self.compared = 0

    @property
    def buffers(self) -> list[ReplayBuffer]:
        return [*self.once, self.whole]

    def given(self, lane: int, step: dict[str, Any]) -> None:
        after = step["final"] or step["next_obs"]
        if self.spec.autoreset != "same_step":
            after = step["next_obs"]
        stacks = (step["obs"]["image"], after["image"])
        step["needs"] = self.twin.take(lane, *([f.tobytes() for f in stack] for stack in stacks))
        self.places[step["tag"]] = lane, len(self.steps[lane])
        self.steps[lane].append(step)

    def add(self) -> None:
        lanes = range(self.spec.num_envs)
        steps = [self.worlds.step(lane, autoreset=self.spec.autoreset) for lane in lanes]
        for lane, step in zip(lanes, steps, strict=True):
            self.given(lane, step)
        final = [step["final"] for step in steps]
        bare = [{key: value for key, value in step.items() if key in NAMES} for step in steps]
        call = stacked(bare)
        if self.spec.autoreset == "same_step":
            call["final_obs"] = np.array(final, dtype=object)
        for buffer in self.buffers:
            buffer.add(**call)

    def extend(self, env: int | None, count: int, *, ready_made: bool) -> None:
        if count == 0:
            return
        lanes = list(range(self.spec.num_envs)) if env is None else [env]
        others = [lane for lane in range(self.spec.num_envs) if lane not in lanes]
        if self.spec.n_step > 1:
            for lane in range(self.spec.num_envs) if ready_made else others:
                due = self.whole._state.lanes[lane, w.LANE_RESET].clone()
                self.whole.end_episode(lane)
                self.whole._state.lanes[lane, w.LANE_RESET] = due  # a fake step is one still
        self.twin.forget(others)
        rows = [
            [self.worlds.step(lane, autoreset="disabled") for lane in lanes] for _ in range(count)
        ]
        for steps in rows:
            for lane, step in zip(lanes, steps, strict=True):
                self.given(lane, step)
                step["ready_made"] = ready_made
        times = [stacked([{key: step[key] for key in NAMES} for step in steps]) for steps in rows]
        call = stacked(times)
        if env is not None:
            call = first_of(call)
        if ready_made:
            call["discount"] = np.where(call["terminated"], 0, GAMMA).astype(np.float32)
        for buffer in self.buffers:
            buffer.extend(**call, env=env)

    def end_episode(self, env: int | None) -> None:
        for buffer in self.buffers:
            buffer.end_episode(env)

    def clear(self) -> None:
        for buffer in self.buffers:
            buffer.clear()
        self.twin = FramesTwin(room=self.twin.room)

    def update(self) -> None:
        ids = self.once[0].live_ids()
        if self.whole.prioritized and len(ids):
            chosen = torch.from_numpy(self.worlds.rng.choice(ids.numpy(), 7))
            errors = torch.from_numpy(self.worlds.rng.exponential(size=7)).float()
            for buffer in self.buffers:
                buffer.update_priorities(chosen, errors)

    def copied(self, through: Any) -> None:
        self.once = [through(buffer) for buffer in self.once]

    def saved(self) -> None:
        """Each goes on as what was saved of it, into a folder with earlier saves of it."""
        for number, (buffer, kernels) in enumerate(zip(self.once, self.kernels, strict=True)):
            buffer.save(self.folder / str(number))
            self.once[number] = ReplayBuffer.load(self.folder / str(number), kernels=kernels)

    def needs_of(self, ids: torch.Tensor) -> dict[int, int]:
        """The oldest frame of rows that have just been written."""
        batch = self.whole.rows(ids)
        found = {}
        for row, tag, discount in zip(
            ids.tolist(), batch.tag.tolist(), batch.discount.tolist(), strict=True
        ):
            number, at = self.places[tag]
            lane = self.steps[number]
            if lane[at].get("ready_made"):
                last = at
            elif discount:
                last = at + round(-math.log2(discount)) - 1
            else:
                last = next(i for i in range(at, len(lane)) if lane[i]["terminated"])
            found[row] = min(lane[at]["needs"][0], lane[last]["needs"][1])
        return found

    def compare(self, *, long: bool) -> None:
        self.twin.settle()
        held = self.whole.live_ids()
        new = held[held >= self.seen]
        if len(new):
            self.twin.needs |= self.needs_of(new)
        self.seen = self.whole.stats()["added"]
        self.twin.keep(held.tolist())
        self.twin.settle()
        for buffer in self.once:
            live = buffer.live_ids()
            assert live.tolist() == sorted(self.twin.needs)
            evicted = buffer.stats()["evicted_rows"] - self.evicted
            # in a long call rows may be overwritten before their frames are, or after
            assert long or evicted == self.twin.evicted
            if len(live) and (long or self.compared % 5 == 0):
                assert_same_batch(buffer.rows(live), self.whole.rows(live))
        self.compared += 1
        self.evicted += evicted
        self.twin.evicted = 0
        for other in self.once[1:]:
            assert_same_state(self.once[0], other)

    def sample(self) -> None:
        if all(buffer.ready() for buffer in self.once):
            first, *others = [buffer.sample(8) for buffer in self.once]
            for batch in others:
                assert_same_batch(first, batch)
            # what is largest among the rows is asked for after other numbers of steps
            by_largest = getattr(self.spec.sampler, "new_priority", None) == "max_current"
            if self.evicted == 0 and not by_largest:
                assert_same_batch(first, self.whole.sample(8))


NAMES = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "tag")


def first_of(values: Any) -> Any:
    """Of values of several lanes those of the first: [T, 1, ...] -> [T, ...]."""
    if isinstance(values, dict):
        return {key: first_of(value) for key, value in values.items()}
    return values[:, 0]


def play(spec: Spec, seed: int, calls: int, kernels: tuple[str, ...], folder: Path) -> Trio:
    """Random calls, compared after each."""
    trio = Trio(spec, seed, kernels, folder)
    rng = np.random.default_rng(seed)
    names = ["add", "extend", "end_episode", "clear", "update", "sample", "copied", "saved"]
    for name in rng.choice(names, size=calls, p=[0.6, 0.1, 0.03, 0.005, 0.1, 0.145, 0.01, 0.01]):
        env = int(rng.integers(-1, spec.num_envs))
        lane = None if env < 0 else env
        if name == "extend":
            trio.extend(lane, int(rng.choice([0, 3, 20, 90])), ready_made=bool(rng.random() < 0.3))
        elif name == "end_episode":
            trio.end_episode(lane)
        elif name == "copied":
            trio.copied(copy.deepcopy if rng.random() < 0.5 else through_pickle)
        else:
            getattr(trio, name)()
        trio.compare(long=name == "extend")
    for buffer in trio.once:
        buffer.check()
    return trio


def through_pickle(buffer: ReplayBuffer) -> Any:
    return pickle.loads(pickle.dumps(buffer))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_batches_are_those_of_whole_stacks_and_rows_go_with_their_frames(
    spec: Spec, tmp_path: Path
) -> None:
    trio = play(spec, 1, 3 * EFFORT, ("cpu",), tmp_path)
    assert trio.seen > min(2 * spec.capacity, 500)  # through the seam, of most


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_kernels_keep_frames_where_the_definition_does(spec: Spec, tmp_path: Path) -> None:
    play(spec, 2, EFFORT, ("cpu", "reference"), tmp_path)


@pytest.mark.parametrize("name", [name for name in SPECS if SPECS[name].capacity > 200])
def test_rows_are_dropped_before_their_time_where_episodes_are_short(
    name: str, tmp_path: Path
) -> None:
    trio = Trio(SPECS[name], 1, ("cpu",), tmp_path)
    for _ in range(trio.twin.room // SPECS[name].num_envs):
        trio.add()
        trio.compare(long=False)
    assert trio.evicted > 0
    trio.once[0].check()  # nothing of them is left among the priorities
