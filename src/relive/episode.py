"""One episode of a store, read when it is asked for.

T  steps of the episode
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from relive.errors import CorruptError
from relive.fields import NO_CONVERSION, RowLayout
from relive.ops.convert.reference import decode
from relive.storage import episode_files as files
from relive.storage.episode_index import TERMINATED, UNFINISHED
from relive.storage.episode_runs import RunLayout

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from relive.fields import Column

OURS = ("reward", "terminated", "truncated")  # of every step, besides its fields


class Episode:
    """One episode of a store. Its steps are read when they are first asked for, then kept.

    Fields have the words and dtypes of a `Batch`, with a leading axis T; the user's own are
    attributes too. Where each observation was the next one of the step before, `obs` and `next_obs`
    share their memory.
    """

    __slots__ = ("_columns", "_entries", "_folder", "_layout", "_number")

    def __init__(
        self, folder: Path, layout: RowLayout, number: int, entries: NDArray[np.void]
    ) -> None:
        self._folder, self._layout = folder, layout
        self._number, self._entries = number, entries
        self._columns: dict[str, Any] | None = None

    @property
    def number(self) -> int:
        """Its number in the store."""
        return self._number

    @property
    def length(self) -> int:
        """Steps, T."""
        last = self._entries[-1]
        return int(last["first_step"]) + int(last["steps"])

    @property
    def episode_return(self) -> float:
        """Sum of its rewards, in float64."""
        return float(self._entries[-1]["reward"])

    @property
    def env(self) -> int:
        """The environment it is from."""
        return int(self._entries[-1]["env"])

    @property
    def ended(self) -> str:
        """How: "terminated", "truncated", or "unfinished" where nobody said."""
        how = int(self._entries[-1]["ended"])
        if how == UNFINISHED:
            return "unfinished"
        return "terminated" if how == TERMINATED else "truncated"

    @property
    def obs(self) -> Any:
        """Observations: `[T, *shape]`, or a dict of such tensors."""
        return self["obs"]

    @property
    def action(self) -> Any:
        """Actions: `[T, *shape]`, or a dict of such tensors."""
        return self["action"]

    @property
    def reward(self) -> Tensor:
        """Rewards as given, of single steps. float32 `[T]`."""
        return self._tensor("reward")

    @property
    def next_obs(self) -> Any:
        """The observation after each step, the last one the true final one: as `obs`."""
        return self["next_obs"]

    @property
    def terminated(self) -> Tensor:
        """Whether a step led to a terminal state. bool `[T]`."""
        return self._tensor("terminated")

    @property
    def truncated(self) -> Tensor:
        """Whether a step was cut off by a limit, or by `end_episode`. bool `[T]`."""
        return self._tensor("truncated")

    def keys(self) -> list[str]:
        """Names of the fields."""
        return [*self._layout.fields, "next_obs", *OURS]

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(f"an episode has no field {name!r}; it has {', '.join(self.keys())}")
        return self._values(self._layout.tree[name], stored=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.keys():
            raise AttributeError(f"an episode has no field {name!r}")
        return self[name]

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return (
            f"Episode({self.number}: {self.length} steps, return {self.episode_return:g}, "
            f"{self.ended}, env={self.env})"
        )

    def _tensor(self, name: str) -> Tensor:
        found: Tensor = self[name]
        return found

    def _values(self, tree: Any, *, stored: bool) -> Any:
        """A field, nested as its tree is; `stored` in the dtype in which it is."""
        if not isinstance(tree, str):
            return {key: self._values(branch, stored=stored) for key, branch in tree.items()}
        column = self._layout.columns[tree]
        values = _tensor_of(column, self._read()[tree])
        return values if stored or column.conversion == NO_CONVERSION else decode(values)

    def _read(self) -> dict[str, Any]:
        if self._columns is None:
            runs = RunLayout(self._layout)
            try:
                self._columns = runs.join(
                    self._entries, files.read_payloads(self._folder, self._entries)
                )
            except CorruptError as error:
                raise CorruptError(
                    f"episode {self._number} of the store in {self._folder} is damaged: {error}"
                ) from None
        return self._columns


def _tensor_of(column: Column, values: NDArray[np.uint8]) -> Tensor:
    flat = torch.from_numpy(values.reshape(-1)).view(column.field.stored_dtype)
    return flat.reshape(len(values), *column.field.shape)
