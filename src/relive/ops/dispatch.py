"""Which implementation of the operations runs where, and why one is missing."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from relive.errors import ConfigError, UnsupportedError, shown

if TYPE_CHECKING:
    import torch

OPERATIONS = {
    "write": "write",
    "extend": "write",
    "flush": "write",
    "sample": "sample",
    "can_draw": "sample",
    "gather": "sample",
    "update": "update",
    "set_leaves": "tree",
    "rebuild": "tree",
}
KERNELS = ("auto", "reference", "cpu")


class Operations(NamedTuple):
    """The operations of one implementation; the `reference` modules document them."""

    write: Any
    extend: Any
    flush: Any
    sample: Any
    can_draw: Any
    gather: Any
    update: Any
    set_leaves: Any
    rebuild: Any


def operations(device: torch.device, kernels: str = "auto") -> Operations:
    """The operations for a device.

    Args:
        kernels: "auto" (the fastest for the device), "cpu" (Numba) or "reference" (plain torch, any
            device, slow).

    Raises:
        ConfigError: unknown kernels.
        UnsupportedError: kernels that do not run on this device.
    """
    if not isinstance(kernels, str) or kernels not in KERNELS:
        raise ConfigError(f"kernels is one of {', '.join(KERNELS)}; given {shown(kernels)}")
    name = "cpu" if kernels == "auto" else kernels
    if name == "cpu" and device.type != "cpu":
        raise UnsupportedError(
            f"there are no kernels for {device} yet; keep the buffer on device='cpu' and move its "
            "batches: "
            f"buffer.sample(batch_size, device='{device}')"
        )
    if name == "cpu" and os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        raise UnsupportedError(
            "NUMBA_DISABLE_JIT is set, and kernels are nothing without compilation; unset it, or "
            "take kernels='reference'"
        )
    return Operations(
        **{
            operation: getattr(import_module(f"relive.ops.{folder}.{name}"), operation)
            for operation, folder in OPERATIONS.items()
        }
    )
