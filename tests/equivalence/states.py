"""Whether two buffers are in the same state, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from relive.ops import words as w

if TYPE_CHECKING:
    from torch import Tensor

    from relive import Batch, ReplayBuffer
    from relive.ops.state import State


def assert_same_state(a: ReplayBuffer, b: ReplayBuffer) -> None:
    """All tensors are equal, but for addresses and for bytes of lanes that hold no step."""
    for name, tensor in comparable(a._state).items():
        assert same_bits(tensor, comparable(b._state)[name]), name


def assert_same_batch(a: Batch, b: Batch) -> None:
    for name in a.keys():  # noqa: SIM118 - a batch is no dict
        _assert_same_field(a[name], b[name], name)


def _assert_same_field(a: Any, b: Any, name: str) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys(), name
        for part in a:
            _assert_same_field(a[part], b[part], f"{name}.{part}")
    else:
        assert same_bits(a, b), name


def comparable(state: State) -> dict[str, Tensor]:
    tensors = state.tensors()
    tensors["words"] = state.words[w.CAPACITY :].clone()
    tensors["words"][w.FRAMES - w.CAPACITY : w.STACKS + 1 - w.CAPACITY] = 0
    waiting = [
        state.pending[lane, (start + k) % state.word(w.N_STEP)]
        for lane, (count, start, *_) in enumerate(state.lanes.tolist())
        for k in range(count)
    ]
    tensors["pending"] = torch.stack(waiting) if waiting else torch.empty(0)
    return tensors


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Like `torch.equal`, but NaNs are equal to themselves and signs of zeros count."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
