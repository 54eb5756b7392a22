"""From memory of a GPU into that of the host, when the GPU has failed but can still be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relive.ops.state import CHANGING, CHANGING_FRAMES, FROM_SETTINGS
from relive.storage.checks import check

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.state import State

PIECE = 1 << 24  # bytes of rows that are copied at once


def evacuate(tensors: dict[str, Tensor], target: State) -> None:
    """Copy everything of a state on a GPU into a new one of the same settings in host memory.

    Takes no memory of the GPU. Rows are padded as they are in the new state.

    Raises:
        CorruptError: what was there cannot be; the new state means nothing then.
    """
    words = tensors["words"].cpu()
    target.words[CHANGING] = words[CHANGING]
    target.frame_words[CHANGING_FRAMES] = tensors["frame_words"].cpu()[CHANGING_FRAMES]
    for name, own in target.tensors().items():
        if name in ("rows", "pending"):
            _copy_rows(tensors[name], own)
        elif name not in ("words", "frame_words", *FROM_SETTINGS):
            own.copy_(tensors[name])
    check(target)


def _copy_rows(given: Tensor, target: Tensor) -> None:
    """Rows along the first axis, some at a time."""
    nbytes = min(given.shape[-1], target.shape[-1])
    step = max(1, PIECE // (given[0].numel() or 1))
    for first in range(0, len(given), step):
        piece = given[first : first + step].cpu()
        target[first : first + step, ..., :nbytes] = piece[..., :nbytes]
