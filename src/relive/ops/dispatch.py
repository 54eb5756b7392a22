"""Which implementation of the operations runs where, and why one is missing."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from relive.errors import ConfigError, UnsupportedError, shown

if TYPE_CHECKING:
    import torch

    from relive.ops.state import State

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
    "sort_by_rank": "rank",
    "intern": "frames",
    "evict": "frames",
}
KERNELS = ("auto", "reference", "cpu")
HOST_KNOWS = {
    "can_draw"
}  # on a GPU: rows are counted as they are given, see `relive.writing.arrivals`


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
    sort_by_rank: Any
    intern: Any
    evict: Any


def operations(device: torch.device, kernels: str = "auto") -> Operations:
    """The operations for a device.

    Args:
        kernels: "auto" (the fastest for the device), "cpu" (Numba) or "reference" (plain torch, any
            device, slow). On "cuda" the kernels are Triton's, and `can_draw` is None.

    Raises:
        ConfigError: unknown kernels.
        UnsupportedError: kernels that do not run on this device.
    """
    if not isinstance(kernels, str) or kernels not in KERNELS:
        raise ConfigError(f"kernels is one of {', '.join(KERNELS)}; given {shown(kernels)}")
    name = device.type if kernels == "auto" else kernels
    if name == "cpu" and device.type != "cpu":
        raise UnsupportedError(f"kernels='cpu' run on the CPU, the buffer is on {device}")
    if name == "cpu" and os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        raise UnsupportedError(
            "NUMBA_DISABLE_JIT is set, and kernels are nothing without compilation; unset it, or "
            "take kernels='reference'"
        )
    if name == "cuda" and find_spec("triton") is None:
        raise UnsupportedError(
            f"kernels for {device} are written in Triton, which is not installed: pip install "
            "triton; or keep the buffer on device='cpu' and move its batches: "
            f"buffer.sample(batch_size, device='{device}')"
        )
    return Operations(
        **{
            operation: None
            if name == "cuda" and operation in HOST_KNOWS
            else getattr(import_module(f"relive.ops.{folder}.{name}"), operation)
            for operation, folder in OPERATIONS.items()
        }
    )


def prepare(state: State) -> None:
    """Make what kernels for a GPU need beside a new state, and note what they are compiled with.

    So that no later call waits or asks for memory of its own that stays.
    """
    import_module("relive.ops.sample.cuda").prepared(state)
    if len(state.leaves):
        import_module("relive.ops.decide.cuda").stamps_of(state)
    if state.keeps_frames:
        import_module("relive.ops.frames.cuda").shape_of(state)
    if len(state.errors):
        import_module("relive.ops.rank.cuda").read_updates(state)
