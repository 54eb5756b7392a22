"""What a buffer is made with, as JSON: names and numbers, nothing that runs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch

from relive.errors import ConfigError, CorruptError, shown
from relive.fields import Field
from relive.sampling import Proportional, RankBased, Recent, Uniform
from relive.schedules import Linear

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS: dict[str, Any] = {
    kind.__name__: kind for kind in (Uniform, Proportional, RankBased, Recent, Linear)
}
FIELD = "Field"
PLACES = ("device", "rows_on", "kernels", "on_failure")  # of no number


def describe(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings of a buffer as JSON."""
    return {name: _plain(value) for name, value in settings.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Field):
        store = value.store and str(value.store).removeprefix("torch.")
        dtype = str(value.dtype).removeprefix("torch.")
        plain = {"kind": FIELD, "shape": list(value.shape), "dtype": dtype, "store": store}
        return plain if value.stack is None else {**plain, "stack": value.stack}
    if type(value).__name__ in KINDS:
        named = {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"kind": type(value).__name__, **named}
    if isinstance(value, dict):
        return {"kind": "dict", "entries": [[key, _plain(part)] for key, part in value.items()]}
    return value


def undescribe(plain: dict[str, Any]) -> dict[str, Any]:
    """The settings again.

    Raises:
        CorruptError: this is not what `describe` gave.
    """
    try:
        return {name: _value(part) for name, part in plain.items()}
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptError(f"the settings of the buffer are damaged: {error}") from None


def require_same(given: dict[str, Any], own: dict[str, Any]) -> None:
    """Refuse a state of a buffer with other settings; where it is, and how, may differ.

    Raises:
        ConfigError: names each that differs.
    """
    if not isinstance(given, dict):
        raise ConfigError(f"the settings of a buffer are a dict; given {shown(given)}")
    differing = [
        words
        for name in {**own, **given}
        if name not in PLACES
        for words in _differences(own.get(name), given.get(name), name)
    ]
    if differing:
        raise ConfigError("the buffer was made with other settings: " + "; ".join(differing))


def _differences(own: Any, given: Any, name: str) -> Iterator[str]:
    """What differs, of fields each part by itself."""
    if _same(own, given):
        return
    ours, theirs = _parts(own), _parts(given)
    if ours is None or theirs is None:
        yield f"{name} is {own}, given {shown(given)}"
        return
    for part in {**ours, **theirs}:
        yield from _differences(ours.get(part), theirs.get(part), f"{name}.{part}")


def _parts(plain: Any) -> dict[str, Any] | None:
    """The parts of described fields, or of one; None of anything else."""
    try:
        if isinstance(plain, dict) and plain["kind"] == FIELD:
            return plain
        return dict(plain["entries"]) if plain["kind"] == "dict" else None
    except (LookupError, TypeError, ValueError, RuntimeError):  # nothing that was described
        return None


def _same(own: Any, given: Any) -> bool:
    try:
        return bool(own == given)
    except (ValueError, TypeError, RuntimeError):  # arrays and the like
        return False


def _value(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    named = dict(plain)
    kind = named.pop("kind")
    if kind == "dict":
        return {key: _value(part) for key, part in named["entries"]}
    if kind == FIELD:
        store = named["store"] and _dtype(named["store"])
        return Field(tuple(named["shape"]), _dtype(named["dtype"]), store, named.get("stack"))
    return KINDS[kind](**{name: _value(part) for name, part in named.items()})


def _dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"{name} is no dtype")
    return dtype
