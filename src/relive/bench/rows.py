"""The rows that every side stores: a row is known by its reward, so it can be told right or wrong.

Workers load this file by its path, so it needs NumPy only.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Rows = dict[str, NDArray[Any]]

PERIOD = 251  # values of an element, so that uint8 holds them
STRIDE = 7  # from row to row
EPISODE = 1000
LARGEST_TAG = 2**23  # the reward is the tag, and float32 holds it
DRAWS_IN_POOL = 2**18  # rows that prepared updates touch: more than a core's caches hold
CALLS_IN_POOL = 2**12
ROWS_IN_POOL, BYTES_IN_POOL = 2**11, 2**24
BYTES_IN_CHUNK = 2**26


class Task:
    """Shape, size and content of the rows, equal for all sides.

    Row number `tag` is known by its reward; everything else follows from the tag, so a row that was
    read can be told right or wrong. Its `next_obs` is the `obs` of the row after it.
    """

    def __init__(
        self, capacity: int, obs_shape: list[int], obs_dtype: str, action_shape: list[int]
    ) -> None:
        self.capacity = capacity
        self.obs_shape, self.action_shape = tuple(obs_shape), tuple(action_shape)
        self.obs_dtype = np.dtype(obs_dtype)
        self._obs = self._windows(self.obs_shape, self.obs_dtype)
        self._action = self._windows(self.action_shape, np.dtype(np.float32))
        self.rng = np.random.default_rng(0)

    @staticmethod
    def _windows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        size = int(np.prod(shape))
        return sliding_window_view((np.arange(size + PERIOD) % PERIOD).astype(dtype), size)

    def of_tags(self, tags: NDArray[Any]) -> Rows:
        """The rows with these tags."""
        tags = np.asarray(tags, dtype=np.int64) % LARGEST_TAG
        return {
            "obs": self._obs[STRIDE * tags % PERIOD].reshape(-1, *self.obs_shape),
            "action": self._action[STRIDE * tags % PERIOD].reshape(-1, *self.action_shape),
            "reward": tags.astype(np.float32),
            "next_obs": self._obs[STRIDE * (tags + 1) % PERIOD].reshape(-1, *self.obs_shape),
            "terminated": tags % EPISODE == EPISODE - 1,
            "truncated": np.zeros(len(tags), dtype=bool),
        }

    def rows(self, first: int, count: int) -> Rows:
        """Consecutive rows."""
        return self.of_tags(np.arange(first, first + count))

    def chunks(self, largest: int = 2**14) -> Iterator[Rows]:
        """The rows that fill the ring, in order."""
        size = self._obs.shape[1] * self.obs_dtype.itemsize
        count = max(1, min(largest, BYTES_IN_CHUNK // size))
        for first in range(0, self.capacity, count):
            yield self.rows(first, min(count, self.capacity - first))

    def steps(self, count: int, form: Callable[[Any], Any]) -> Iterator[Any]:
        """Endless new rows in the form that a side takes, `count` for each call.

        One row comes as from one environment: without a leading axis, numbers of Python.
        """
        size = self._obs.shape[1] * self.obs_dtype.itemsize
        calls = max(2, min(ROWS_IN_POOL, BYTES_IN_POOL // size) // count)
        pool = [self.rows(self.capacity + i * count, count) for i in range(calls)]
        return cycle([form(single(rows) if count == 1 else rows) for rows in pool])

    @staticmethod
    def endless(pool: list[Any]) -> Iterator[Any]:
        """The pool over and over."""
        return cycle(pool)

    def errors(self, count: int) -> NDArray[np.float32]:
        """TD errors: of both signs, over a few decades."""
        errors = self.rng.lognormal(0.0, 1.0, count) * self.rng.choice([-1.0, 1.0], count)
        rounded: NDArray[np.float32] = errors.astype(np.float32)
        return rounded

    def updates(self, count: int, form: Callable[[Any, Any], Any], draw: Any) -> Iterator[Any]:
        """Endless updates of drawn rows: `form(drawn, errors)` of `draw()`, each drawn once."""
        calls = min(CALLS_IN_POOL, max(2, min(DRAWS_IN_POOL, 2 * self.capacity) // count))
        return cycle([form(draw(), self.errors(count)) for _ in range(calls)])

    def check(self, batch: Rows, count: int) -> None:
        """Raise unless these are `count` rows as they were written."""
        expected = self.of_tags(batch["reward"].reshape(-1))
        for name, values in batch.items():
            if name == "weights":
                if values.size != count or not np.all((values > 0) & (values < 1 + 1e-4)):
                    raise ValueError(
                        f"weights lie in (0, 1]; found {values.min()}...{values.max()}"
                    )
                continue
            wanted = expected[name]
            if len(values) != count or values.size != wanted.size:
                raise ValueError(f"{name} has shape {values.shape} for {count} rows")
            if not np.array_equal(values.reshape(wanted.shape), wanted):
                raise ValueError(f"{name} of the batch is not what was written")


def single(rows: Rows) -> dict[str, Any]:
    """The first row as an environment gives it."""
    first = {name: values[0] for name, values in rows.items()}
    numbers = ("reward", "terminated", "truncated")
    return {name: x.item() if name in numbers else x for name, x in first.items()}
