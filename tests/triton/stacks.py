"""Buffers of stacked frames that live the same life on a GPU and on the CPU, bit for bit.

Frames have few different contents, so that they are often equal by chance, in any place. Steps of a
lane go on from the last one, but not always.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relive import Field, NotReadyError, Proportional, RankBased, ReplayBuffer, Uniform
from relive.ops import words as w
from tests.triton.sameness import assert_same_batch_there, assert_same_buffer_there

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.triton.pretended import Device

SHAPES = {  # of a frame, and how it is stored
    "bytes": {"shape": (5,), "dtype": torch.uint8},
    "words": {"shape": (2, 2), "dtype": torch.int32},
    "narrow": {"shape": (3,), "store": torch.uint8},
    "wide": {"shape": (1031,), "dtype": torch.uint8},
}


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a buffer is made with, and what its frames are."""

    frame: str = "bytes"
    stack: int = 3
    capacity: int = 12
    num_envs: int = 1
    n_step: int = 1
    autoreset: str = "disabled"
    sampler: Any = field(default_factory=Uniform)
    at_once: int = 4  # STEPS_AT_ONCE
    different: int = 2  # contents of frames
    nested: bool = False
    rows_on: str = "device"

    def fields(self, *, stacked: bool = True) -> dict[str, Any]:
        frame = dict(SHAPES[self.frame])
        shape = (self.stack, *frame.pop("shape"))
        stacks = Field(shape, **frame, stack=self.stack if stacked else None)
        obs = {"camera": stacks, "arm": Field((2,))} if self.nested else stacks
        return {"obs": obs, "action": Field((), torch.int64), "tag": Field((), torch.uint8)}

    def buffer(self, *, stacked: bool = True, **settings: Any) -> ReplayBuffer:
        return ReplayBuffer(
            self.capacity,
            self.fields(stacked=stacked),
            sampler=self.sampler,
            num_envs=self.num_envs,
            n_step=self.n_step,
            autoreset=self.autoreset,
            track_reuse=True,
            **settings,
        )


SPECS = {
    "one lane": Spec(),
    "n steps": Spec(n_step=3, sampler=Proportional(), frame="narrow"),
    "fakes": Spec(num_envs=3, n_step=3, autoreset="next_step", capacity=20, nested=True),
    "same step": Spec(
        num_envs=2,
        n_step=2,
        autoreset="same_step",
        sampler=Proportional(new_priority="max_current", normalize="batch"),
        capacity=15,
    ),
    "ranks": Spec(sampler=RankBased(resort_every=3), frame="words", num_envs=2),
    "wide": Spec(frame="wide", stack=2, capacity=6, nested=True),
    "one frame": Spec(stack=1, n_step=2, frame="words"),
    "rows on the host": Spec(rows_on="host", n_step=2, sampler=Proportional()),
}
ALL_NEW = 200  # contents: no two frames are equal, and rows are dropped early
DROPPING = {
    "rows are dropped, uniform": Spec(capacity=120, at_once=2, different=ALL_NEW),
    "rows are dropped, fakes": Spec(
        capacity=160,
        at_once=2,
        different=ALL_NEW,
        num_envs=2,
        n_step=2,
        stack=2,
        autoreset="next_step",
        sampler=Proportional(new_priority="max_current", normalize="batch"),
    ),
    "rows are dropped, ranks": Spec(
        capacity=140, at_once=6, different=ALL_NEW, sampler=RankBased(resort_every=4), nested=True
    ),
}


class Steps:
    """Random steps of every lane."""

    def __init__(self, spec: Spec, seed: int) -> None:
        self.spec, self.rng = spec, np.random.default_rng(seed)
        self.last = self.stacks(spec.num_envs)

    def stacks(self, *axes: int) -> Any:
        rng, spec = self.rng, self.spec
        frame = SHAPES[spec.frame]["shape"]
        content = rng.integers(0, spec.different, (*axes, spec.stack, *[1] * len(frame)))
        padded = rng.random((*axes, *[1] * (1 + len(frame)))) < 0.2
        content = np.where(padded, content[..., :1, *[slice(None)] * len(frame)], content)
        stacks = np.broadcast_to(content, (*axes, spec.stack, *frame)).copy()
        if spec.different == ALL_NEW:  # by their first byte or two not told apart
            stacks[..., -1] = rng.integers(0, ALL_NEW, stacks.shape[:-1])
        return stacks.astype(np.int32 if spec.frame == "words" else np.uint8)

    def given(self, camera: Any) -> Any:
        if not self.spec.nested:
            return camera
        arm = self.rng.normal(size=(*camera.shape[: -1 - len(self.frame())], 2))
        return {"camera": camera, "arm": arm.astype(np.float32)}

    def frame(self) -> tuple[int, ...]:
        return SHAPES[self.spec.frame]["shape"]

    def step(self, lanes: range) -> dict[str, Any]:
        """One of some lanes, without what is nested."""
        rng, count = self.rng, len(lanes)
        own = slice(lanes.start, lanes.stop)

        def often(share: float) -> Any:
            return rng.random((count, *[1] * (1 + len(self.frame())))) < share

        share = 0.1 if self.spec.different == ALL_NEW else 0.8
        obs = np.where(often(share), self.last[own], self.stacks(count))
        moved = np.concatenate([obs[:, 1:], self.stacks(count)[:, :1]], 1)
        next_obs = np.where(often(share), moved, self.stacks(count))
        self.last[own] = next_obs
        return {
            "obs": obs,
            "action": rng.integers(0, 9, count),
            "tag": rng.integers(0, 255, count, np.uint8),
            "reward": rng.normal(size=count).astype(np.float32),
            "next_obs": next_obs,
            "terminated": rng.random(count) < 0.1,
            "truncated": rng.random(count) < 0.1,
        }

    def add(self) -> dict[str, Any]:
        spec = self.spec
        step = self.step(range(spec.num_envs))
        if spec.autoreset == "same_step":
            step["final_obs"] = self.given(step["next_obs"])
            self.last = self.stacks(spec.num_envs)
            step["next_obs"] = self.last.copy()
        return self.nest(step)

    def extend(self, lanes: range | int, times: int) -> dict[str, Any]:
        own = lanes if isinstance(lanes, range) else range(lanes, lanes + 1)
        steps = [self.step(own) for _ in range(times)]
        values = {name: np.stack([step[name] for step in steps]) for name in steps[0]}
        if not isinstance(lanes, range):
            values = {name: value[:, 0] for name, value in values.items()}
        return self.nest(values)

    def nest(self, step: dict[str, Any]) -> dict[str, Any]:
        return {**step, **{name: self.given(step[name]) for name in ("obs", "next_obs")}}


class Life:
    """A buffer on the device and one on the CPU, and one there that has whole stacks."""

    def __init__(
        self,
        spec: Spec,
        device: Device,
        seed: int,
        watched: Callable[[int], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.watched = watched  # a call, by its number
        self.spec, self.device, self.rng = spec, device, np.random.default_rng(seed)
        self.steps = Steps(spec, seed)
        self.cpu = spec.buffer()
        self.gpu = spec.buffer(device="cuda", rows_on=spec.rows_on)
        self.plain = spec.buffer(stacked=False)

    def live(self, number: int) -> None:
        calls = ["add", "extend", "extend_all", "rows", "end", "sample", "update", "clear"]
        shares = [0.5, 0.08, 0.06, 0.04, 0.04, 0.2, 0.07, 0.01]
        for k in range(number):
            with self.watched(k):
                getattr(self, self.rng.choice(calls, p=shares))()
            assert self.gpu._home.intake.rows <= len(self.cpu)
            if k % 5 == 0:
                assert_same_buffer_there(self.device, self.gpu, self.cpu)
        assert_same_buffer_there(self.device, self.gpu, self.cpu)
        self.compare_with_whole_stacks()

    def write(self, name: str, values: dict[str, Any], **options: Any) -> None:
        for buffer in (self.cpu, self.plain):
            getattr(buffer, name)(**values, **options)
        share = self.rng.choice([0.0, 0.5, 1.0])
        given = {
            key: self.there(value) if self.rng.random() < share else value
            for key, value in values.items()
        }
        with self.device.forbid_waits():
            getattr(self.gpu, name)(**given, **options)

    def there(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self.there(one) for key, one in value.items()}
        tensor = torch.from_numpy(np.ascontiguousarray(value))
        return tensor.pin_memory().to("cuda", non_blocking=True)

    def add(self) -> None:
        self.write("add", self.steps.add())

    def extend(self) -> None:
        lane = int(self.rng.integers(self.spec.num_envs))
        if self.spec.num_envs > 1 and self.spec.n_step > 1:  # whose episodes end with that
            for other in set(range(self.spec.num_envs)) - {lane}:
                due = self.plain._state.lanes[other, w.LANE_RESET].clone()
                self.plain.end_episode(other)
                self.plain._state.lanes[other, w.LANE_RESET] = due
        self.write("extend", self.steps.extend(lane, self.times()), env=lane)

    def extend_all(self) -> None:
        lanes = range(self.spec.num_envs)
        self.write("extend", self.steps.extend(lanes, self.times()), env=None)

    def rows(self) -> None:
        lanes = range(self.spec.num_envs)
        values = self.steps.extend(lanes, self.times())
        values["discount"] = np.where(values["terminated"], 0, 0.5).astype(np.float32)
        if self.spec.n_step > 1:
            due = self.plain._state.lanes[:, w.LANE_RESET].clone()
            self.plain.end_episode()
            self.plain._state.lanes[:, w.LANE_RESET] = due
        self.write("extend", values, env=None)

    def times(self) -> int:
        return int(self.rng.integers(1, 2 * self.spec.at_once + 3))

    def end(self) -> None:
        for buffer in (self.cpu, self.gpu, self.plain):
            buffer.end_episode()

    def clear(self) -> None:
        for buffer in (self.cpu, self.gpu, self.plain):
            buffer.clear()

    def sample(self) -> None:
        try:
            expected = self.cpu.sample(6)
        except NotReadyError:
            return
        assert_same_batch_there(self.device, self.gpu.sample(6), expected)

    def update(self) -> None:
        if not self.cpu.prioritized or not len(self.cpu):
            return
        ids = self.cpu.live_ids()[:5]
        errors = torch.from_numpy(self.rng.normal(size=len(ids)).astype(np.float32))
        self.cpu.update_priorities(ids, errors)
        self.gpu.update_priorities(ids.numpy(), errors.numpy())

    def compare_with_whole_stacks(self) -> None:
        ids = self.cpu.live_ids()
        expected, found = self.plain.rows(ids), self.gpu.rows(ids)
        assert_same_batch_there(self.device, found, expected)


def copy_into(targets: Any, values: Any) -> None:
    """Put values where others are, in dicts of dicts."""
    for name, target in targets.items():
        if isinstance(target, dict):
            copy_into(target, values[name])
        else:
            target.copy_(values[name])
