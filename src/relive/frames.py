"""Stacks of frames that are kept once: which bytes are where.

A stack of k frames overlaps with the next in k - 1 of them. So the frames lie in a ring of their
own, and a row has in place of a stack the ids of its frames, int64 [k]:

    packed step     ... obs [k, frame] ...     ... next_obs [k, frame] ...
    row             ... obs [k] int64 ...      ... next_obs [k] int64 ...
    frames          [F, frame]

How many frames a row needs depends on what is given: one, and another where an episode begins, as
long as each stack goes on from the last. F has room for SPARE more than one a row; where that does
not do, the oldest rows are dropped before their time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch

from relive.errors import ConfigError
from relive.fields import SEPARATOR, Column, Field, Fields, RowLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SPARE = 8  # one frame more for so many rows: episodes of eight steps
FRAME_ALIGNMENT = 64  # bytes; a cache line
STEPS_AT_ONCE = 64  # whose frames are looked at together, or one of every environment


@dataclass(frozen=True, slots=True)
class FrameLayout:
    """Where the frames of a buffer lie.

    Attributes:
        stack: k, frames of a stack.
        nbytes: of a frame.
        room: F, frames there is room for.
        step_obs, step_next: first bytes of both stacks in a packed step.
        row_obs, row_next: first bytes of both lists of ids in a row.
        moves: first byte in a step, first byte in a row, and number, of all other bytes.
        rows_behind, frames_behind: see `ops.frames.reference`.
    """

    stack: int
    nbytes: int
    room: int
    step_obs: int
    step_next: int
    row_obs: int
    row_next: int
    moves: tuple[tuple[int, int, int], ...]
    rows_behind: int
    frames_behind: int

    @property
    def pitch(self) -> int:
        """Bytes from one frame to the next."""
        return -(-self.nbytes // FRAME_ALIGNMENT) * FRAME_ALIGNMENT

    @classmethod
    def of(
        cls, step: RowLayout, row: RowLayout, capacity: int, num_envs: int, n_step: int
    ) -> FrameLayout | None:
        """That of a buffer; None if it has no stacks.

        Args:
            step, row: layouts of a packed step, and of a row.
        """
        name = stack_in(step.fields)
        if name is None:
            return None
        after = "next_" + name
        obs, next_obs = step.columns[name], step.columns[after]
        stack = obs.field.stack or 1
        calls = n_step + stack + 2  # the steps of a window, those that share a frame, and this one
        frames_behind = calls * most_frames(stack, num_envs)
        at_once = most_frames(stack, most_at_once(num_envs))
        return cls(
            stack=stack,
            nbytes=obs.nbytes // stack,
            room=room_of_rows(capacity) + frames_behind + at_once,
            step_obs=obs.offset,
            step_next=next_obs.offset,
            row_obs=row.columns[name].offset,
            row_next=row.columns[after].offset,
            moves=tuple(_moves(step, row, {name, after})),
            rows_behind=calls * n_step * num_envs,
            frames_behind=frames_behind,
        )


def room_of_rows(capacity: int) -> int:
    """Frames there is room for besides those that steps on their way may need."""
    return capacity + capacity // SPARE


def most_frames(stack: int, steps: int) -> int:
    """How many frames steps have at most, where none of them is known."""
    return 2 * stack * steps


def most_at_once(num_envs: int) -> int:
    """Most steps whose frames are looked at together."""
    return max(num_envs, STEPS_AT_ONCE)


def at_once(num_lanes: int) -> int:
    """How many steps of a stream for some lanes are: whole times."""
    return max(1, STEPS_AT_ONCE // num_lanes) * num_lanes


def stack_in(fields: Mapping[str, Any]) -> str | None:
    """The dotted name of the field with `stack`; None if there is none.

    Raises:
        ConfigError: there are several, or it is no observation.
    """
    found = [name for name, field in _walk(fields) if field.stack is not None]
    if not found:
        return None
    if len(found) > 1 or found[0].split(SEPARATOR)[0] != "obs":
        raise ConfigError(
            f"stack= is for one field, in the observation; given for {', '.join(found)}; leave it "
            "out of the others: they are stored whole"
        )
    return found[0]


def as_stored(fields: Fields) -> Fields:
    """Fields as a row has them: ids of frames in place of stacks."""
    return {
        name: (
            as_stored(field)
            if not isinstance(field, Field)
            else replace(field, shape=(field.stack,), dtype=torch.int64, store=None, stack=None)
            if field.stack is not None
            else field
        )
        for name, field in fields.items()
    }


def _walk(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Field]]:
    for name, field in fields.items():
        if isinstance(field, Field):
            yield prefix + name, field
        else:
            yield from _walk(field, f"{prefix}{name}{SEPARATOR}")


def _moves(step: RowLayout, row: RowLayout, stacks: set[str]) -> Iterator[tuple[int, int, int]]:
    """Runs of columns that lie behind each other in both, without a stack between them."""
    pairs = [(column, row.columns[name]) for name, column in step.columns.items()]

    def shift(pair: tuple[Column, Column]) -> int | None:
        here, there = pair
        return None if here.name in stacks else there.offset - here.offset

    for distance, run in groupby(pairs, shift):
        if distance is not None:
            columns = [here for here, _ in run]
            begin, last = columns[0].offset, columns[-1]
            yield begin, begin + distance, last.offset + last.nbytes - begin
