"""Rows of arbitrary bytes, as NumPy has them.

What a batch must hold is NumPy's own indexing of these. Floats are of any bits: NaNs with payloads,
-0.0, denormals, infinities.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from relive import Field

# Unsigned integers of the same size, whose bits a dtype without one of NumPy's has.
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
SPECIAL = {  # -0.0, denormals, NaNs with payloads (quiet and signalling), infinities
    torch.float16: [0x8000, 0x0001, 0x83FF, 0x7E01, 0xFFAB, 0x7D01, 0x7C00],
    torch.bfloat16: [0x8000, 0x0001, 0x807F, 0x7FC1, 0xFFAB, 0x7F81, 0x7F80],
    torch.float32: [0x80000000, 1, 0x807FFFFF, 0x7FC00123, 0xFFABCDEF, 0x7F800001, 0x7F800000],
    torch.float64: [1 << 63, 1, (1 << 63) + 5, 0x7FF8 << 48 | 77, 0xFFFA << 48, 0x7FF0 << 48 | 1],
}
# A reward is a number on its way through n-step returns: a signalling NaN would become quiet.
REWARDS = [0x80000000, 1, 0x807FFFFF, 0x7FC00123, 0xFFEBCDEF, 0x7F800000, 0x00400000]


def bits(field: Field, rows: int, rng: np.random.Generator) -> np.ndarray:
    """Random bits of a field's values as they are stored: unsigned integers [rows, *shape]."""
    dtype = field.stored_dtype
    kind = UNSIGNED[dtype.itemsize]
    shape = (rows, *field.shape)
    if dtype == torch.bool:
        return rng.integers(0, 2, shape, kind)
    found = rng.integers(0, np.iinfo(kind).max, shape, kind, endpoint=True)
    if dtype in SPECIAL:
        special = rng.choice(np.array(SPECIAL[dtype], kind), shape)
        found = np.where(rng.random(shape) < 0.3, special, found)
    return found


def given(field: Field, stored: np.ndarray, *, as_tensor: bool) -> Any:
    """What a buffer is given to store these bits: an array where NumPy has the dtype."""
    name = str(field.stored_dtype).removeprefix("torch.")
    if hasattr(np, name) and not as_tensor:
        return stored.view(np.dtype(name))
    signed = stored.view(f"i{stored.dtype.itemsize}")
    return torch.from_numpy(signed).view(field.stored_dtype)


def sampled(field: Field, stored: np.ndarray) -> np.ndarray:
    """What a batch holds of these bits: bytes, or float32 where they are stored narrower."""
    stored = stored.reshape(len(stored), -1)
    if field.store == torch.uint8:
        return stored.astype(np.float32) / np.float32(255)
    if field.store == torch.float16:
        return stored.view(np.float16).astype(np.float32)
    if field.store == torch.bfloat16:
        return (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.view(np.uint8)


def same(field: Field, found: torch.Tensor, expected: np.ndarray) -> bool:
    """Whether a field of a batch is that, bit for bit.

    Of a NaN that comes from a narrower float only that it is one: torch itself keeps or drops the
    payload, depending on how many values it converts at once.
    """
    ours = found.cpu().contiguous().view(len(found), -1)
    if field.store is None:
        return np.array_equal(ours.view(torch.uint8).numpy(), expected)
    bits_of = [np.where(np.isnan(v), np.nan, v).view(np.uint32) for v in (ours.numpy(), expected)]
    return np.array_equal(*bits_of)


class Written:
    """Rows for a buffer, and what each field of them is made of.

    Attributes:
        fields: name -> field, or dict of them.
        stored: dotted name -> bits [rows, *shape], next observations and rewards too.
    """

    def __init__(self, fields: dict[str, Any], rows: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.fields, self.rows = {**fields, "next_obs": fields["obs"]}, rows
        self.flat = dict(_flat(self.fields))
        self.stored = {name: bits(field, rows, rng) for name, field in self.flat.items()}
        self.flat["reward"] = Field()
        self.stored["reward"] = rng.choice(np.array(REWARDS, np.uint32), rows)

    def steps(self, *, as_tensor: bool = False, device: str = "cpu") -> dict[str, Any]:
        """Arguments of `extend`."""

        def value(name: str, field: Any) -> Any:
            if isinstance(field, dict):
                return {key: value(f"{name}.{key}", part) for key, part in field.items()}
            found = given(field, self.stored[name], as_tensor=as_tensor)
            return found.to(device) if isinstance(found, torch.Tensor) else found

        others: dict[str, Any] = {
            "reward": self.stored["reward"].view(np.float32),
            "terminated": np.zeros(self.rows, bool),
        }
        if as_tensor:
            others = {name: torch.from_numpy(v).to(device) for name, v in others.items()}
        return {**{name: value(name, field) for name, field in self.fields.items()}, **others}

    def differences(self, batch: Any, rows: np.ndarray) -> list[str]:
        """Fields of a batch that are not the bytes of these rows."""
        wrong = []
        for name, field in self.flat.items():
            found = batch[name.split(".")[0]]
            for key in name.split(".")[1:]:
                found = found[key]
            if not same(field, found, sampled(field, self.stored[name])[rows]):
                wrong.append(name)
        return wrong


def _flat(fields: dict[str, Any], path: str = "") -> Any:
    for name, field in fields.items():
        if isinstance(field, dict):
            yield from _flat(field, f"{path}{name}.")
        else:
            yield path + name, field
