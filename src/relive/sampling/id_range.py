"""The range of ids that `sample_range` draws from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from relive.declared import is_whole, plain
from relive.errors import InputError, shown
from relive.gpu.transfer import moved


def id_range(start: Any, stop: Any, device: torch.device) -> tuple[int, int] | Tensor:
    """A range of ids [start, stop) as kernels of a device take it: on a GPU int64 [2] there.

    Args:
        start: a whole number >= 0, or a tensor of one; on a GPU its value is not looked at.
        stop: as `start`.

    Raises:
        InputError: they are none.
        UnsupportedError: numbers, or tensors elsewhere, while a CUDA graph is captured.
    """
    start, stop = plain(start), plain(stop)
    for name, value in (("start", start), ("stop", stop)):
        if isinstance(value, Tensor):
            if value.ndim or value.dtype != torch.int64 or value.is_meta:
                raise InputError(f"{name} is an id, a 0-d int64 tensor; given {shown(value)}")
        elif not is_whole(value, 0, 2**63):
            raise InputError(f"{name} is an id, a whole number >= 0; given {shown(value)}")
    if device.type == "cpu":
        first, last = int(start), int(stop)
        if min(first, last) < 0:
            raise InputError(f"ids are >= 0; given {first} and {last}")
        return first, last
    if isinstance(start, Tensor) or isinstance(stop, Tensor):
        ends = (
            e if isinstance(e, Tensor) else torch.tensor(e, device="cpu") for e in (start, stop)
        )
        return torch.stack([moved(end, device) for end in ends])
    return moved(torch.tensor([start, stop], device="cpu"), device)
