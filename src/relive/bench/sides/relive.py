"""relive: the buffer of this package, drawn uniformly and by priorities with both normalisers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relive import Batch, Field, Proportional, ReplayBuffer, Uniform

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.bench.rows import Rows, Task
    from relive.bench.worker import Operation

ALPHA, BETA, GAMMA = 0.6, 0.4, 0.99
SCALED = "scaled"
FIELDS = ("obs", "action", "reward", "next_obs", "terminated", "truncated", "discount")


class Side:
    """A buffer a variant: "" draws uniformly; "batch" and "buffer" are the `normalize` of PER."""

    PACKAGES = ("relive", "torch", "numpy", "numba")

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.buffers: dict[str, ReplayBuffer] = {}

    def setup(self, task: Task, sampler: str) -> None:
        """Make the buffers and fill them."""
        self.task = task
        for variant in ("batch", "buffer") if sampler == "per" else ("",):
            self.buffers[variant] = self._filled(self._obs(), variant)

    def _obs(self) -> Field:
        return Field(self.task.obs_shape, getattr(torch, self.task.obs_dtype.name))

    def _filled(self, obs: Field, variant: str) -> ReplayBuffer:
        weighting: Any = Uniform()
        if variant:
            normalize: Any = variant
            weighting = Proportional(alpha=ALPHA, beta=BETA, normalize=normalize)
        fields = {"obs": obs, "action": Field(self.task.action_shape)}
        buffer = ReplayBuffer(self.task.capacity, fields, sampler=weighting, gamma=GAMMA)
        start = 0
        for rows in self.task.chunks():
            write: dict[str, Any] = rows
            buffer.extend(**write)
            stop = start + len(rows["reward"])
            if variant:
                buffer.update_priorities(torch.arange(start, stop), self.task.errors(stop - start))
            start = stop
        return buffer

    def close(self) -> None:
        """Drop the buffers."""
        self.buffers = {}

    def add(self, operation: Operation) -> Callable[[], Any]:
        """Write rows: one with `add`, several with `extend`."""
        buffer, count = self.buffers[operation.variant], operation.rows
        steps = self.task.steps(count, lambda rows: rows)
        write = buffer.add if count == 1 else buffer.extend
        return lambda: write(**next(steps))

    def add_envs(self, operation: Operation) -> Callable[[], Any]:
        """Write one step of as many environments as rows are asked for."""
        count = operation.rows
        fields = {"obs": self._obs(), "action": Field(self.task.action_shape)}
        buffer = ReplayBuffer(self.task.capacity, fields, num_envs=count, autoreset="disabled")
        others = {name: other for name, other in self.buffers.items() if not name.endswith("envs")}
        self.buffers = others | {operation.variant: buffer}  # one of them at a time
        for first in range(0, self.task.capacity, count):
            buffer.add(**self.task.rows(first, count))
        add, steps = buffer.add, self.task.steps(count, lambda rows: rows)
        return lambda: add(**next(steps))

    def sample(self, operation: Operation) -> Callable[[], Any]:
        """Draw rows into a new batch."""
        sample, count, fields = self.buffers[operation.variant].sample, operation.rows, views
        return lambda: fields(sample(count))

    def sample_out(self, operation: Operation) -> Callable[[], Any]:
        """Draw rows into the same batch."""
        buffer, count, fields = self.buffers[operation.variant], operation.rows, views
        sample, batch = buffer.sample, buffer.empty_batch(operation.rows)
        return lambda: fields(sample(count, out=batch))

    def scaled(self, operation: Operation) -> Callable[[], Any]:
        """Draw rows of k/255, stored as k, into a new batch."""
        return self.sample(replace(operation, variant=self._scaled()))

    def scaled_out(self, operation: Operation) -> Callable[[], Any]:
        """The same into the same batch."""
        return self.sample_out(replace(operation, variant=self._scaled()))

    def _scaled(self) -> str:
        if SCALED not in self.buffers:
            obs = Field(self.task.obs_shape, store=torch.uint8)
            self.buffers[SCALED] = self._filled(obs, "")
        return SCALED

    def update(self, operation: Operation) -> Callable[[], Any]:
        """Set priorities."""
        buffer, count = self.buffers[operation.variant], operation.rows
        updates = self.task.updates(count, pair, lambda: buffer.sample(count).ids.clone())
        update = buffer.update_priorities
        return lambda: update(*next(updates))

    def step(self, operation: Operation) -> Callable[[], Any]:
        """Add 1, sample into a new batch, update."""
        return self._step(operation, self.sample(operation))

    def step_out(self, operation: Operation) -> Callable[[], Any]:
        """Add 1, sample into the same batch, update."""
        return self._step(operation, self.sample_out(operation))

    def _step(self, operation: Operation, sample: Callable[[], Any]) -> Callable[[], Any]:
        buffer = self.buffers[operation.variant]
        add, update, steps = buffer.add, buffer.update_priorities, self.task.steps(1, dict)
        errors = self.task.updates(operation.rows, lambda _, e: torch.from_numpy(e), lambda: None)

        def call() -> Batch:
            add(**next(steps))
            batch: Batch = sample()
            update(batch.ids, next(errors))
            return batch

        return call

    # What was done is compared with its definition in float64.

    def read_sample(self, batch: Batch) -> Rows:
        """A batch as arrays; `extend` marks its last row as truncated, so that is left out."""
        names = ("obs", "action", "reward", "next_obs", "terminated", "weights")
        return {name: batch[name].numpy() for name in names}

    read_sample_out = read_step = read_step_out = read_sample

    def verify(self, operation: Operation, call: Callable[[], Any]) -> None:
        """Do it once more, and compare more than the rows of a batch."""
        buffer = self.buffers[operation.variant]
        kind = operation.kind.removesuffix("_out")
        getattr(self, f"_verify_{kind}")(operation, buffer, call)
        if kind not in {"sample", "scaled"}:
            buffer.check()

    def _verify_scaled(self, _operation: Operation, _buffer: ReplayBuffer, call: Any) -> None:
        batch = call()
        expected = self.task.of_tags(batch.reward.numpy())
        for name in ("obs", "next_obs"):
            agree(name, batch[name], torch.from_numpy(expected[name]).double() / 255)

    def _verify_add(self, operation: Operation, buffer: ReplayBuffer, call: Any) -> None:
        before = int(buffer.live_ids()[-1])
        call()
        ids = buffer.live_ids()[-operation.rows :]
        agree("ids of new rows", ids, torch.arange(before + 1, before + 1 + operation.rows))
        self.task.check(self.read_sample(buffer.rows(ids)), operation.rows)

    _verify_add_envs = _verify_add

    def _verify_sample(self, operation: Operation, buffer: ReplayBuffer, call: Any) -> None:
        batch = call()
        stored = buffer.rows(batch.ids)
        for name in FIELDS:
            agree(name, batch[name], stored[name])
        agree("discount", batch.discount, GAMMA * ~batch.terminated)
        if operation.variant:
            leaves = buffer.priorities(buffer.live_ids()).double()
            drawn = buffer.priorities(batch.ids).double()
            weights = (len(leaves) * drawn / leaves.sum()) ** -BETA
            smallest = drawn.min() if operation.variant == "batch" else leaves.min()
            weights /= (len(leaves) * smallest / leaves.sum()) ** -BETA
            agree("weights", batch.weights, weights)
        else:
            agree("weights", batch.weights, torch.ones(operation.rows))

    def _verify_update(self, operation: Operation, buffer: ReplayBuffer, _: Any) -> None:
        ids = buffer.sample(operation.rows).ids
        errors = torch.from_numpy(self.task.errors(operation.rows))
        buffer.update_priorities(ids, errors)
        last = {int(row): abs(float(error)) for row, error in zip(ids, errors, strict=True)}
        expected = [(last[int(row)] + 1e-6) ** ALPHA for row in ids]
        agree("priorities", buffer.priorities(ids), torch.tensor(expected, dtype=torch.float64))

    def _verify_step(self, operation: Operation, buffer: ReplayBuffer, call: Any) -> None:
        newest = int(buffer.live_ids()[-1])
        batch = call()
        agree("newest id", buffer.live_ids()[-1], torch.tensor(newest + 1))
        self.task.check(self.read_sample(batch), operation.rows)


def views(batch: Batch) -> Batch:
    """Ask for every field."""
    batch.obs, batch.action, batch.reward, batch.next_obs, batch.terminated  # noqa: B018
    batch.truncated, batch.discount, batch.weights, batch.ids  # noqa: B018
    return batch


def pair(ids: Any, errors: Any) -> tuple[Any, Any]:
    """What an update takes."""
    return ids, torch.from_numpy(errors)


def agree(what: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    """Raise unless two tensors are equal to float32's precision."""
    if not np.allclose(found.double().numpy(), expected.double().numpy(), rtol=2e-6, atol=0):
        raise ValueError(f"{what} differ from their definition")
