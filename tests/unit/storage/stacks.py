"""Stacks of frames, for a buffer that keeps frames once and one that keeps stacks whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relive import Field, ReplayBuffer
from relive.ops import words as w
from relive.ops.frames.reference import oldest_frame
from tests.equivalence.states import assert_same_batch

if TYPE_CHECKING:
    from relive import Batch

STACK, FRAME = 3, (2, 5)


def fields(stack: int | None) -> dict[str, Any]:
    image = Field((STACK, *FRAME), torch.uint8, stack=stack)
    return {"obs": {"image": image, "speed": Field((2,))}, "action": Field((), torch.int64)}


class Game:
    """Steps of environments whose episodes have `length` steps on average; all frames differ."""

    def __init__(self, num_envs: int, length: float, seed: int) -> None:
        self.num_envs, self.length = num_envs, length
        self._rng, self._count = np.random.default_rng(seed), 0
        self._stacks = [self._first() for _ in range(num_envs)]

    def _first(self) -> np.ndarray:
        return np.repeat(self._frames(1), STACK, 0)

    def _frames(self, number: int) -> np.ndarray:
        return self._rng.integers(0, 256, (number, *FRAME), np.uint8)

    def step(self) -> dict[str, Any]:
        """Of every environment, for `add`."""
        before = np.stack(self._stacks)
        after = [np.concatenate([stack[1:], self._frames(1)]) for stack in self._stacks]
        over = self._rng.random((2, self.num_envs)) < 0.5 / self.length
        for lane, ends in enumerate(over.any(0)):
            self._stacks[lane] = self._first() if ends else after[lane]
        numbers = self._count + np.arange(self.num_envs)
        self._count += self.num_envs
        return {
            "obs": {"image": before, "speed": self._speeds()},
            "action": numbers,
            "reward": numbers.astype(np.float32),
            "next_obs": {"image": np.stack(after), "speed": self._speeds()},
            "terminated": over[0],
            "truncated": over[1],
        }

    def steps(self, times: int, env: int | None) -> dict[str, Any]:
        """Many, for `extend`; of all environments where `env` is None."""
        taken = [self.step() for _ in range(times)]

        def joined(*parts: Any) -> Any:
            if isinstance(parts[0], dict):
                return {name: joined(*(part[name] for part in parts)) for name in parts[0]}
            return np.stack(parts) if env is None else np.stack(parts)[:, env]

        return {**joined(*taken), "env": env}

    def _speeds(self) -> np.ndarray:
        return self._rng.normal(size=(self.num_envs, 2))


class Both:
    """A buffer that keeps frames once, and one made without, for the same calls.

    Args:
        whole: rows of the second; None for as many as the first has.
    """

    def __init__(
        self,
        capacity: int = 300,
        *,
        whole: int | None = None,
        length: float = 12,
        num_envs: int = 1,
        **settings: Any,
    ) -> None:
        settings = {"autoreset": "disabled", "num_envs": num_envs, **settings}
        self.once = ReplayBuffer(capacity, fields(STACK), **settings)
        self.whole = ReplayBuffer(whole or capacity, fields(None), **settings)
        self.game = Game(num_envs, length, seed=capacity)

    def add(self, times: int) -> Both:
        for _ in range(times):
            self.call("add", **self.game.step())
        return self

    def extend(self, times: int, env: int | None = None) -> Both:
        self.call("extend", **self.game.steps(times, env))
        return self

    def call(self, name: str, *args: Any, **named: Any) -> None:
        for buffer in (self.once, self.whole):
            getattr(buffer, name)(*args, **named)


def assert_same_rows(once: ReplayBuffer, whole: ReplayBuffer) -> None:
    """One holds rows of the other, bit for bit; all that fit, unless some were dropped early."""
    once.check()
    ids, expected = once.live_ids(), whole.live_ids()
    if not once.stats()["evicted_rows"]:
        assert torch.equal(ids, expected[max(0, len(expected) - once.capacity) :])
    if len(ids):
        assert_same_batch(once.rows(ids), whole.rows(ids))


def assert_same_draws(once: ReplayBuffer, whole: ReplayBuffer) -> None:
    for _ in range(3):
        batches: list[Batch] = [buffer.sample(8) for buffer in (once, whole)]
        assert_same_batch(*batches)
        if once.prioritized:
            for buffer, batch in zip((once, whole), batches, strict=True):
                buffer.update_priorities(batch.ids, batch.reward + 0.5)


def num_frames(buffer: ReplayBuffer) -> int:
    """Frames in the ring."""
    return buffer._state.frame_word(w.NEXT_FRAME) - oldest_frame(buffer._state)
