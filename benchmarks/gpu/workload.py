"""The buffers that are checked and measured, and what is written into them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from relive import Field, Linear, Proportional, ReplayBuffer, Uniform

if TYPE_CHECKING:
    from relive.fields import Fields
    from relive.sampling import Sampler

W1: Fields = {"obs": Field((17,)), "action": Field((6,))}
ONE_BYTE: Fields = {"obs": Field((), torch.uint8), "action": Field((), torch.uint8)}
STATES: Fields = {"obs": Field((51,)), "action": Field((1,))}
UNIFORM = Uniform()
PER = Proportional(alpha=0.6, beta=Linear(0.4, 1.0, 500_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How large everything is.

    Attributes:
        rows: Of the rings that are checked and measured.
        leaves: Of the rings that only differ in size.
        rivals: Rows of the rings that others draw from too.
        gathered: Rows of the large gather.
        far: Rows of 448 bytes; so many that their addresses need 64 bits.
        batch: Rows of a batch.
        envs: Environments of an add.
        stream: Steps of an extend.
        draws: That a distribution is judged by.
        lives: Steps of a life that is compared with the CPU's.
        flow: Steps whose data go between host and device.
        busy: Width of the matrices that keep the device busy meanwhile.
        chunk: Rows written at a time.
        rounds, calls: That are timed.
        warm_up: Calls before that.
    """

    rows: int = 1_000_000
    leaves: tuple[int, ...] = (100_000, 1_000_000, 10_000_000, 100_000_000)
    rivals: tuple[int, ...] = (100_000, 1_000_000)
    gathered: int = 1_000_000
    far: int = 6_000_000
    batch: int = 256
    envs: tuple[int, ...] = (1, 64, 4096)
    stream: int = 4096
    draws: int = 10_000
    lives: int = 200
    flow: int = 100
    busy: int = 2048
    chunk: int = 1 << 18
    rounds: int = 15
    calls: int = 50
    warm_up: int = 3


TINY = Scale(
    rows=60,
    leaves=(20, 60),
    rivals=(40,),
    gathered=64,
    far=50,
    batch=8,
    envs=(1, 3),
    stream=5,
    draws=400,
    lives=4,
    flow=3,
    busy=2,
    chunk=64,
    rounds=1,
    calls=1,
    warm_up=1,
)


def steps(fields: Fields, first: int, count: int, device: torch.device) -> dict[str, Tensor]:
    """Rows first..first + count; what is in them follows from their number."""
    number = torch.arange(first, first + count, device=device)
    values = {
        name: (number.view(-1, *[1] * len(field.shape)) % 251)
        .expand(count, *field.shape)
        .to(field.dtype)
        .contiguous()
        for name, field in fields.items()
    }
    return {
        "obs": values["obs"],
        "action": values["action"],
        "reward": (number % 8191).to(torch.float32),
        "next_obs": values["obs"] + 1,
        "terminated": number % 1000 == 999,
    }


def one_time(fields: Fields, first: int, envs: int, device: torch.device) -> dict[str, Tensor]:
    """One step of so many environments, of which no episode ends."""
    step = steps(fields, first, envs, device)
    never = torch.zeros_like(step["terminated"])
    return {**step, "terminated": never, "truncated": never}


def errors(count: int, device: torch.device, seed: int = 0) -> Tensor:
    """TD errors of both signs over a few decades, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.randn(count, generator=generator)
    return (torch.exp(1.5 * spread.abs()) * spread.sign()).to(device)


def full(
    fields: Fields,
    capacity: int,
    sampler: Sampler,
    device: torch.device,
    *,
    chunk: int = 1 << 18,
    **settings: Any,
) -> ReplayBuffer:
    """A ring that is full, with priorities spread over a few decades."""
    buffer = ReplayBuffer(capacity, fields, sampler=sampler, device=device, **settings)
    for first in range(0, capacity, chunk):
        count = min(chunk, capacity - first)
        buffer.extend(**steps(fields, first, count, device))
        if buffer.prioritized:
            ids = torch.arange(first, first + count, device=device)
            buffer.update_priorities(ids, errors(count, device, seed=first))
    return buffer
