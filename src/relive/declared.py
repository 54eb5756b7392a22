"""Settings that are what their dataclass declares: a choice, a switch, a number, a path, a part."""

from __future__ import annotations

import types
from dataclasses import fields
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from relive.closest import unknown
from relive.errors import ConfigError, shown

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from typing import TypeGuard

WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number (a Python int)",
    float: "a number",
    str: "text",
    Path: "a path",
    type(None): "None",
    tuple[int, ...]: "whole numbers in a tuple",
}


def plain(value: Any) -> Any:
    """A number or truth value of NumPy as Python's; anything else as it is.

    >>> plain(np.int64(3)), plain(np.bool_(True)), plain("3")
    (3, True, '3')
    """
    if not isinstance(value, np.generic) or isinstance(value, np.timedelta64):  # to it an integer
        return value
    for kind, python in ((np.integer, int), (np.floating, float), (np.bool_, bool)):
        if isinstance(value, kind):
            return python(value)
    return value


def is_whole(value: Any, least: int, stop: int | None = None) -> TypeGuard[int]:
    """Whether a value is a whole number in [least, stop), without an end if that is None.

    >>> is_whole(3, 0, 4), is_whole(4, 0, 4), is_whole(True, 0), is_whole(3.0, 0)
    (True, False, False, False)
    """
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return is_number and least <= value and (stop is None or value < stop)


def take_plain(settings: Any) -> None:
    """Makes numbers of NumPy in a frozen dataclass Python's; first thing in its `__post_init__`."""
    for field in fields(settings):
        object.__setattr__(settings, field.name, plain(getattr(settings, field.name)))


def hold_to_types(settings: object, prefix: str = "", *, but: Container[str] = ()) -> None:
    """Refuses what a field of a frozen dataclass does not declare.

    A path may be given as text, a tuple as a list, a number or truth value as one of NumPy's, as
    sweeps give them; they become what they stand for.

    Args:
        settings: The dataclass, in its `__post_init__`.
        prefix: What errors write before the name of a field.
        but: Fields that somebody else looks at.

    Raises:
        ConfigError: Of the first that is something else: says what was given and what there is.
    """
    for name, kinds in _declared(type(settings)).items():
        if name in but:
            continue
        given = getattr(settings, name)
        taken = _plain(given, kinds)
        if not any(_is(taken, kind) for kind in kinds):
            raise ConfigError(_refusal(f"{prefix}{name}", given, kinds))
        if taken is not given:
            object.__setattr__(settings, name, taken)


def from_file(kind: type, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of a dataclass as a file has them, to be given to it.

    Runs of versions that did not hold settings to their types may have whole numbers with a point,
    as of `log_every=1e4`; they become ints.
    """
    whole = {name for name, kinds in _declared(kind).items() if int in kinds and float not in kinds}
    return {
        name: int(value)
        if name in whole and isinstance(value, float) and value.is_integer()
        else value
        for name, value in plain.items()
    }


def _declared(kind: type) -> dict[str, tuple[Any, ...]]:
    """Of each field of a dataclass what it may be."""
    return {name: _alternatives(hint) for name, hint in get_type_hints(kind).items()}


def _alternatives(hint: Any) -> tuple[Any, ...]:
    """Of a union its members, of anything else that alone."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _plain(value: Any, kinds: tuple[Any, ...]) -> Any:
    if Path in kinds and isinstance(value, str | PathLike):
        return Path(value)
    if tuple[int, ...] in kinds and isinstance(value, list | tuple):
        return tuple(_plain(item, (int,)) for item in value)
    value = plain(value)
    if isinstance(value, bool | int | float | np.timedelta64):
        return value
    if int in kinds and isinstance(value, Integral):
        return int(value)
    return float(value) if float in kinds and isinstance(value, Real) else value


def _is(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return isinstance(value, str) and value in get_args(kind)
    if get_origin(kind) is tuple:
        return isinstance(value, tuple) and all(_is(item, int) for item in value)
    if kind in (int, float):  # a truth value is a number to Python, and a mistake here
        number = int if kind is int else int | float
        return isinstance(value, number) and not isinstance(value, bool)
    return isinstance(value, kind)


def _refusal(name: str, given: object, kinds: tuple[Any, ...]) -> str:
    choices = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    is_choice = all(kind is type(None) or get_origin(kind) is Literal for kind in kinds)
    if is_choice and isinstance(given, str):
        return unknown(name, given, choices, most=len(choices))
    words = [
        WORDS.get(kind) or f"{kind.__name__}(...)"
        for kind in kinds
        if get_origin(kind) is not Literal and kind is not type(None)
    ]
    words += [repr(word) for word in choices] + ["None"] * (type(None) in kinds)
    *others, last = words
    expected = f"{', '.join(others)} or {last}" if others else last
    return f"{name} is {expected}; given {shown(given)}"
