"""Buffers of every kind, and every call that reaches a kernel, as data.

A case is what a public method hands to an operation: its name and arguments, taken down while the
method runs on a buffer that has been in use. The kernels can then be run, counted or compiled with
just that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from relive import Field, Linear, Proportional, RankBased, Recent, ReplayBuffer, Uniform
from relive.ops import words as w
from relive.ops.dispatch import OPERATIONS, Operations, operations
from relive.ops.rank.reference import sort_by_rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.ops.state import State

FIELDS = {"obs": Field((3,)), "action": Field((), torch.int64)}
IMAGES = {"obs": Field((2, 5), store=torch.uint8), "action": Field((2,), store=torch.bfloat16)}
STACKS = {"obs": Field((3, 5), store=torch.uint8, stack=3), "action": Field((), torch.int64)}

SETTINGS: dict[str, dict[str, Any]] = {
    "uniform": {"sampler": Uniform()},
    "uniform, reuse tracked": {"sampler": Uniform(), "track_reuse": True},
    "uniform, fewer bits": {"sampler": Uniform(), "fields": IMAGES},
    "proportional": {"sampler": Proportional()},
    "proportional, no normaliser": {"sampler": Proportional(normalize=None, stratified=False)},
    "proportional, largest now": {
        "sampler": Proportional(normalize="batch", new_priority="max_current", bad_priority="max")
    },
    "proportional, uniform share": {"sampler": Proportional(uniform_share=0.1, demo_bonus=0.5)},
    "proportional, one pool": {"sampler": Proportional(), "demo_fraction": None},
    "proportional, mixture": {
        "sampler": Proportional(mixture_weights=True),
        "demo_fraction": Linear(0.5, 0.1, 100),
    },
    "proportional, newest": {"sampler": Proportional(), "window": Recent(20)},
    "ranks": {"sampler": RankBased(resort_every=1000)},  # sorted by a case of its own
    "sweeps": {"sampler": Uniform(), "window": Recent(c_min=5)},
    "many lanes": {
        "sampler": Proportional(),
        "num_envs": 6,
        "n_step": 3,
        "autoreset": "next_step",
        "track_reuse": True,
    },
    "stacks": {"sampler": Uniform(), "fields": STACKS},
    "stacks, many lanes": {
        "sampler": Proportional(new_priority="max_current"),
        "fields": STACKS,
        "num_envs": 2,
        "n_step": 2,
        "autoreset": "next_step",
        "track_reuse": True,
    },
}
CAPACITY = 150
PINNED = {"proportional, one pool", "proportional, mixture", "sweeps"}
BATCH, LARGE_BATCH = 20, 5000


@dataclass(frozen=True)
class Case:
    """A call of an operation; the state is its first argument."""

    name: str
    operation: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def run(self, implementation: dict[str, Callable[..., Any]], state: State) -> Any:
        """Do it."""
        return implementation[self.operation](state, *self.arguments, **self.options)

    def on_device(self) -> Case:
        """The same with the range of ids in device memory, where a captured call reads it."""
        ids = self.options.get("ids")
        options = self.options if ids is None else {**self.options, "ids": torch.tensor(ids)}
        return replace(self, options=options)


def cuda_operations() -> dict[str, Callable[..., Any]]:
    """The operations that have kernels, by name."""
    return {
        operation: getattr(import_module(f"relive.ops.{folder}.cuda"), operation)
        for operation, folder in OPERATIONS.items()
        if operation != "can_draw"  # the host keeps a lower bound
        and find_spec(f"relive.ops.{folder}.cuda") is not None
        and hasattr(import_module(f"relive.ops.{folder}.cuda"), operation)
    }


def used_buffer(kind: str) -> ReplayBuffer:
    """A buffer of a kind that has wrapped, with priorities and, of some kinds, demonstrations."""
    settings = {"fields": FIELDS, **SETTINGS[kind]}
    fields = settings.pop("fields")
    buffer = ReplayBuffer(CAPACITY, fields, kernels="reference", **settings)
    if kind in PINNED:
        buffer.extend(**steps(buffer, 30))
        buffer.pin_demonstrations(30)
    buffer.extend(**steps(buffer, CAPACITY + 20))
    if buffer.prioritized:
        ids = buffer.live_ids()
        buffer.update_priorities(ids, torch.linspace(-1, 2, len(ids)))
    if buffer.sampler.ranked:
        sort_by_rank(buffer._state)
    return buffer


def steps(buffer: ReplayBuffer, *axes: int) -> dict[str, torch.Tensor]:
    """Steps with these leading axes, as tensors; some end an episode."""
    number = torch.arange(1.0, torch.Size(axes).numel() + 1).view(axes)
    values = {
        name: (number.view(*axes, *[1] * len(field.shape)) / 512).expand(*axes, *field.shape)
        for name, field in buffer._home.layout.fields.items()
    }
    return {
        "obs": values["obs"].contiguous(),
        "action": values["action"].to(buffer._home.layout.fields["action"].dtype).contiguous(),
        "reward": number / 7,
        "next_obs": values["obs"].flip(-1).contiguous(),
        "terminated": number % 7 == 0,
        "truncated": number % 5 == 0,
    }


def cases(buffer: ReplayBuffer) -> list[Case]:
    """One of every call, for the rows that the buffer holds now; what writes rows comes last."""
    ids = buffer.live_ids()
    calls: dict[str, Callable[[], Any]] = {
        "sample": lambda: buffer.sample(BATCH),
        "sample one": lambda: buffer.sample(1),
        "sample, not for training": lambda: buffer.sample(BATCH, train=False),
        "sample_range": lambda: buffer.sample_range(BATCH, int(ids[-9]), int(ids[-2])),
        "rows": lambda: buffer.rows(ids[:BATCH]),
    }
    if buffer.prioritized:
        some, many = ids[torch.arange(BATCH) % len(ids)], ids[torch.arange(LARGE_BATCH) % len(ids)]
        ones, many_ones = torch.ones(BATCH), torch.ones(LARGE_BATCH)
        calls |= {
            "update": lambda: buffer.update_priorities(some, ones),
            "update of many": lambda: buffer.update_priorities(many, many_ones),
            "write back": lambda: buffer.update_priorities(some, priorities=ones),
        }
    found = [case for name, call in calls.items() for case in cases_of(buffer, name, call)]
    if buffer.prioritized:
        slots = torch.arange(10, 10 + BATCH)
        found.append(Case("set_leaves", "set_leaves", (slots, ones), {}))
        found.append(Case("rebuild", "rebuild", (), {}))
    if buffer.sampler.ranked:
        found.append(Case("sort", "sort_by_rank", (), {}))
    for name, call in writes(buffer).items():
        found += cases_of(buffer, name, call)
    if buffer._state.keeps_frames:
        return [*found, Case("evict", "evict", (), {})]
    return [*found, add_on_device(buffer)]


def cases_of(buffer: ReplayBuffer, name: str, call: Callable[[], Any]) -> list[Case]:
    """The operations of a public call, as cases of its name; of the second one on with a number."""
    taken = taken_down(buffer, call)
    return [Case(name if k == 0 else f"{name}, {k}", *one) for k, one in enumerate(taken)]


def writes(buffer: ReplayBuffer) -> dict[str, Callable[[], Any]]:
    """The calls that write rows."""
    envs, discount = buffer.num_envs, torch.zeros(40)
    return {
        "add": lambda: buffer.add(**steps(buffer, envs)),
        "extend": lambda: buffer.extend(**steps(buffer, 40)),
        "extend all lanes": lambda: buffer.extend(**steps(buffer, 40, envs), env=None),
        "extend with rows": lambda: buffer.extend(**steps(buffer, 40), discount=discount),
        "end_episode": lambda: buffer.end_episode(0),
    }


def add_on_device(buffer: ReplayBuffer) -> Case:
    """One step of every lane that lies on the device: not packed, and no episode is closed."""
    one_time = steps(buffer, 1, buffer.num_envs)
    ((name, arguments, options),) = taken_down(buffer, lambda: buffer.extend(**one_time, env=None))
    return Case("add what is on the device", name, arguments, {**options, "close": False})


def taken_down(
    buffer: ReplayBuffer, call: Callable[[], Any]
) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """The operations of a public call, with arguments but for the state; they are not done."""
    seen: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def take_down(operation: str) -> Callable[..., int]:
        def note(_: State, *arguments: Any, **options: Any) -> int:
            seen.append((operation, arguments, options))
            return w.OK

        return note

    own, intake = buffer._home.ops, buffer._home.intake
    stacks = buffer._state.stacks.clone()  # which lanes let go of without an operation
    buffer._home.ops = intake._ops = Operations(**{name: take_down(name) for name in OPERATIONS})
    try:
        call()
    finally:
        buffer._home.ops = intake._ops = own
        buffer._state.stacks.copy_(stacks)
    return seen


def reference_operations() -> dict[str, Callable[..., Any]]:
    """The definitions, by name."""
    return operations(torch.device("cpu"), "reference")._asdict()
