"""Rows for training and rows held out."""

from __future__ import annotations

import torch
from torch import Tensor

from relive.declared import is_whole, plain
from relive.errors import InputError, shown
from relive.ops.philox.batched import Philox


def split_ids(ids: Tensor, holdout: float, seed: int) -> tuple[Tensor, Tensor]:
    """Ids (int64 [B]) for training and ids held out; see `ReplayBuffer.split`."""
    holdout, seed = plain(holdout), plain(seed)
    if isinstance(holdout, bool) or not isinstance(holdout, int | float) or not 0 <= holdout <= 1:
        raise InputError(f"holdout lies in [0, 1]; given {shown(holdout)}")
    if not is_whole(seed, -(2**63), 2**63):
        raise InputError(f"seed is a signed 64-bit integer; given {shown(seed)}")
    philox = Philox(ids.device)
    philox.reseed(seed)
    high, low, _, _ = philox.words(ids, torch.zeros_like(ids))
    bits = (high << 21) | (low >> 11)  # 53, which float64 holds
    is_out = bits.to(torch.float64) < holdout * 2.0**53
    return ids[~is_out], ids[is_out]
