"""Tensors on their way from one device to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from relive.gpu.capture import refuse_capture

if TYPE_CHECKING:
    from torch import Tensor


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on a device: itself if it is there, else a copy.

    From host memory to a GPU the host does not wait: the copy is made of a pinned one, which torch
    keeps until it has been read; so the tensor may change at once, also one that is pinned itself.
    From a GPU to the host it waits.

    Raises:
        UnsupportedError: it is in host memory, and a CUDA graph is being captured on the device.
    """
    if tensor.device == device:
        return tensor
    if device.type == "cuda" and tensor.is_cpu:
        refuse_capture(device)
        staged = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
        return staged.copy_(tensor).to(device, non_blocking=True)
    return tensor.to(device)


def finish(device: torch.device) -> None:
    """Wait for what the current stream of a GPU has been given: host memory may be read then."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()
