"""flashbax: JAX arrays and a tree in JAX; every operation is compiled, the state is donated."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

os.environ["JAX_PLATFORMS"] = "cpu"
import flashbax
import jax
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from relive.bench.rows import Rows, Task
    from relive.bench.worker import Operation

ALPHA, BETA = 0.6, 0.4


class Side:
    """The item buffers, which hold whole transitions; a batch counts once its arrays are there."""

    PACKAGES = ("flashbax", "jax", "numpy")

    def setup(self, task: Task, sampler: str) -> None:
        """Make the buffer and fill it."""
        self.task = task
        self.prioritized = sampler == "per"
        self.key = jax.random.key(0)
        buffer = self._buffer(1, add_sequences=True)
        example = {name: x[0] for name, x in named(task.rows(0, 1)).items()}
        self.state = buffer.init(example)
        add, start = jax.jit(buffer.add, donate_argnums=0), 0
        setter = getattr(buffer, "set_priorities", None)
        update = jax.jit(setter, donate_argnums=0) if setter is not None else None
        for rows in task.chunks():
            count = len(rows["reward"])
            self.state = add(self.state, named(rows))
            if update is not None:
                errors = np.abs(task.errors(count))
                self.state = update(self.state, np.arange(start, start + count), errors)
            start += count

    def close(self) -> None:
        """Drop the buffer."""
        self.state = None

    def add(self, operation: Operation) -> Callable[[], Any]:
        """Write rows."""
        buffer = self._buffer(1, add_sequences=operation.rows > 1)
        add, rows = jax.jit(buffer.add, donate_argnums=0), self.task.steps(operation.rows, named)

        def call() -> None:
            self.state = add(self.state, next(rows))
            jax.block_until_ready(self.state)

        return call

    def sample(self, operation: Operation) -> Callable[[], Any]:
        """Draw rows; splitting the key and the weights are compiled with it."""
        sample = self._sample(operation.rows)

        def call() -> Any:
            self.key, batch, indices = sample(self.state, self.key)
            return jax.block_until_ready(batch), indices

        return call

    def update(self, operation: Operation) -> Callable[[], Any]:
        """Set priorities."""
        sample = self._sample(operation.rows)

        def draw() -> Any:
            self.key, _, indices = sample(self.state, self.key)
            return indices

        buffer = self._buffer(1)
        update = jax.jit(buffer.set_priorities, donate_argnums=0)
        updates = self.task.updates(operation.rows, lambda drawn, e: (drawn, np.abs(e)), draw)

        def call() -> None:
            self.state = update(self.state, *next(updates))
            jax.block_until_ready(self.state)

        return call

    def step(self, operation: Operation) -> Callable[[], Any]:
        """Add 1, sample, update."""
        buffer = self._buffer(1)
        add = jax.jit(buffer.add, donate_argnums=0)
        update = jax.jit(buffer.set_priorities, donate_argnums=0)
        sample, rows = self._sample(operation.rows), self.task.steps(1, named)
        errors = self.task.updates(operation.rows, lambda _, e: np.abs(e), lambda: None)

        def call() -> Any:
            self.state = add(self.state, next(rows))
            self.key, batch, indices = sample(self.state, self.key)
            self.state = update(self.state, indices, next(errors))
            jax.block_until_ready(self.state)
            return jax.block_until_ready(batch), indices

        return call

    def read_sample(self, result: Any) -> Rows:
        """A batch by our names."""
        return {name: np.asarray(array) for name, array in result[0].items()}

    read_step = read_sample

    def _buffer(self, batch_size: int, *, add_sequences: bool = False) -> Any:
        sizes = {"max_length": self.task.capacity, "min_length": 1, "sample_batch_size": batch_size}
        if self.prioritized:
            return flashbax.make_prioritised_item_buffer(
                **sizes, add_sequences=add_sequences, priority_exponent=ALPHA, device="cpu"
            )
        return flashbax.make_item_buffer(**sizes, add_sequences=add_sequences)

    def _sample(self, batch_size: int) -> Callable[[Any, Any], Any]:
        sample, capacity = self._buffer(batch_size).sample, self.task.capacity

        def draw(state: Any, key: Any) -> tuple[Any, Any, Any]:
            key, used = jax.random.split(key)
            drawn = sample(state, used)
            batch, indices = dict(drawn.experience), None
            if self.prioritized:
                weights = (capacity * drawn.probabilities) ** -BETA
                batch["weights"] = weights / weights.max()
                indices = drawn.indices
            return key, batch, indices

        compiled: Callable[[Any, Any], Any] = jax.jit(draw)
        return compiled


def named(rows: dict[str, Any]) -> dict[str, Any]:
    """Rows, or one row, as arrays of fixed dtypes."""
    kinds = {"reward": np.float32, "terminated": np.bool_}
    names = ("obs", "action", "reward", "next_obs", "terminated")
    return {name: np.asarray(rows[name], dtype=kinds.get(name)) for name in names}
