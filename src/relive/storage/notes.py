"""What a user saves beside a buffer: nested values as JSON and a list of arrays.

Numbers, strings, None, lists, tuples, tensors, NumPy arrays and dicts of these, as the state dicts
of modules and optimisers are. Nothing else, so that nothing that is read can run.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relive.arrays import as_tensor
from relive.errors import CorruptError, InputError

KEYS = (str, int)  # of a dict; what JSON would make strings of stays what it is


def flatten(note: Any) -> tuple[Any, list[Tensor]]:
    """A note as JSON, in which tensors and arrays are numbers of the list: CPU copies.

    Raises:
        InputError: names a value that cannot be kept, and where it stands.
    """
    arrays: list[Tensor] = []
    return _plain(note, arrays, "note"), arrays


def _plain(value: Any, arrays: list[Tensor], where: str) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, Tensor | np.ndarray):
        return _kept(value, arrays, where)
    if isinstance(value, list | tuple):
        items = [_plain(item, arrays, f"{where}[{k}]") for k, item in enumerate(value)]
        return items if isinstance(value, list) else {"tuple": items}
    if isinstance(value, dict) and all(isinstance(key, KEYS) for key in value):
        entries = [[k, _plain(v, arrays, f"{where}[{k!r}]")] for k, v in value.items()]
        return {"dict": entries}
    raise InputError(
        f"{where} is a {type(value).__name__}; a note is made of dicts with str or int keys, "
        "lists, tuples, numbers, strings, None, tensors and arrays: save its numbers, not the "
        "object"
    )


def _kept(value: Any, arrays: list[Tensor], where: str) -> dict[str, Any]:
    kind = "tensor" if isinstance(value, Tensor) else "array"
    try:
        given = value.detach() if isinstance(value, Tensor) else as_tensor(value)
    except TypeError:
        raise InputError(
            f"{where} is an array of {value.dtype}; torch has no such numbers"
        ) from None
    try:
        kept = torch.empty(given.shape, dtype=given.dtype, device="cpu").copy_(given)  # dense
    except RuntimeError as error:  # of a type that torch cannot copy, or without memory
        raise InputError(f"{where} cannot be kept: {error}") from None
    arrays.append(kept)
    return {kind: len(arrays) - 1}


def unflatten(plain: Any, arrays: list[Tensor]) -> Any:
    """The note again.

    Raises:
        CorruptError: this is not what `flatten` gave.
    """
    try:
        return _value(plain, arrays)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptError(f"the note is damaged: {error}") from None


def _value(plain: Any, arrays: list[Tensor]) -> Any:
    if isinstance(plain, list):
        return [_value(item, arrays) for item in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "dict":
        return {key: _value(entry, arrays) for key, entry in content}
    if kind == "tuple":
        return tuple(_value(item, arrays) for item in content)
    if kind == "float":
        return float(content)
    if kind not in ("tensor", "array"):
        raise ValueError(f"there is no {kind}")
    return arrays[content] if kind == "tensor" else arrays[content].numpy()
