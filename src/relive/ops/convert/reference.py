"""Floats that are stored in fewer bits.

uint8      k/255 as k: round(255 x) of x in [0, 1], the product in float32, ties to even
float16, bfloat16      rounded to nearest, ties to even
"""

from __future__ import annotations

import torch
from torch import Tensor

from relive.fields import CONVERSIONS

STORED_DTYPES = {conversion: dtype for dtype, conversion in CONVERSIONS.items()}
LARGEST = {torch.float16: 65504.0, torch.bfloat16: torch.finfo(torch.bfloat16).max}


def encode(values: Tensor, store: torch.dtype) -> tuple[Tensor, Tensor]:
    """What is stored of floating-point values, and how many of them do not fit (a 0-d tensor).

    Those become the nearest that fits; NaN becomes 0 in uint8, where there is none. Infinities fit
    a float type.
    """
    if values.dtype.itemsize < 4:  # or it would be rounded twice
        values = values.float()
    if store == torch.uint8:
        outside = ~((values >= 0) & (values <= 1))
        held = torch.nan_to_num(values, nan=0.0).clamp(0, 1)
        return (held * 255).round().to(torch.uint8), outside.sum()
    largest = LARGEST[store]
    outside = values.isfinite() & (values.abs() > largest)
    held = torch.where(outside, values.clamp(-largest, largest), values)
    return held.to(store), outside.sum()


def decode(stored: Tensor) -> Tensor:
    """The float32 values of what is stored: exact."""
    if stored.dtype == torch.uint8:
        return stored.to(torch.float32) / 255
    return stored.to(torch.float32)
