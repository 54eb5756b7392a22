"""What an update of any agent hands back, and how it gets the gradient of several batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from relive.batch import Batch
from relive.errors import InputError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    class Gradient(Protocol):
        """Parameters that take the gradient of a loss: `FlatParameters`, or who goes by hand."""

        def take_grad(
            self, outputs: Sequence[Tensor], slopes: Sequence[Tensor], *, add: bool = False
        ) -> None:
            """Puts it in the place of the last one, or adds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateResult:
    """The outcome of one update; nothing in it has been read back from the device.

    Attributes:
        td_error: How wrong each row was, before the weight and before the step: non-negative,
            float `[B]`, batch after batch if there were several. What
            `ReplayBuffer.update_priorities` is given.
        metrics: Name to 0-dimensional tensor, the same names at every update.
    """

    td_error: Tensor
    metrics: dict[str, Tensor]


class Loss(NamedTuple):
    """A mean over rows, and where backpropagation starts.

    Attributes:
        mean: float `[]`.
        outputs: Of networks, through which it depends on their parameters.
        slopes: Its derivative by each of them.
    """

    mean: Tensor
    outputs: tuple[Tensor, ...]
    slopes: tuple[Tensor, ...]

    @classmethod
    def with_graph(cls, mean: Tensor) -> Loss:
        """One that backpropagation starts from itself."""
        return cls(mean, (mean,), (torch.ones_like(mean),))


def compile_terms(agent: Any, backend: str) -> None:
    """Has the losses of an agent, with the networks in them, compiled at their first call.

    Draws, the optimiser and what moves targets stay as they are: they are few launches, and write
    where others read.

    Args:
        agent: Changed in place.
        backend: Of `torch.compile`.
    """
    for name in ("_terms", "_critic_terms", "_policy_terms"):
        if (terms := getattr(agent, name, None)) is not None:
            setattr(agent, name, _compiled(terms, backend))
    for name in ("critic_backprop", "actor_backprop"):
        if (backprop := getattr(agent, name, None)) is not None:
            backprop.by_hand = False


def _compiled(terms: Callable[[Batch], tuple[Any, ...]], backend: str) -> Any:
    compiled = torch.compile(terms, backend=backend)

    def of(batch: Batch) -> tuple[Any, ...]:
        for name in batch.keys():  # noqa: SIM118 - a batch is no dict
            batch[name]  # its views are made here: compiled, they are taken for other tensors
        result: tuple[Any, ...] = compiled(batch)
        return result

    return of


def batches_on(device: torch.device, batches: Sequence[Batch]) -> tuple[Batch, ...]:
    """Batches where an agent learns.

    Raises:
        InputError: Something else among them.
    """
    for batch in batches:
        if not isinstance(batch, Batch):
            raise InputError(
                f"an update takes Batches, update(buffer.sample(256)) say; given {shown(batch)}"
            )
    return tuple(batch.to(device) for batch in batches)


def accumulate(
    batches: Sequence[Batch],
    terms_of: Callable[[Batch], tuple[Loss, *tuple[Tensor, ...]]],
    gradient: Gradient,
) -> list[Tensor]:
    """Takes the gradient of the mean loss over the rows of all batches.

    As if they were one batch, but with the memory of one after the other.

    Args:
        batches: At least one.
        terms_of: Of one batch: its loss, then tensors `[B, ...]` to keep.
        gradient: Of the only parameters that get one.

    Returns:
        The mean loss, and what was kept, of all rows; none of them has a gradient.

    Raises:
        InputError: No batch.
    """
    if not batches:
        raise InputError("an update takes at least one batch; given none")
    rows = sum(map(len, batches))
    parts: list[list[Tensor]] = []
    for batch in batches:
        loss, *kept = terms_of(batch)
        mean, slopes = loss.mean, loss.slopes
        if len(batches) > 1:
            share = len(batch) / rows
            mean, slopes = mean * share, tuple(slope * share for slope in slopes)
        gradient.take_grad(loss.outputs, slopes, add=bool(parts))
        parts.append([mean.detach(), *(values.detach() for values in kept)])
    if len(parts) == 1:
        return parts[0]
    losses, *columns = zip(*parts, strict=True)
    return [torch.stack(losses).sum(), *map(torch.cat, columns)]
