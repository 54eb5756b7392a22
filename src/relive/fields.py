"""What a transition is made of, and how it lies in one packed row.

A row is a run of bytes, each field at an aligned offset:

    lane prev next | reward discount terminated truncated | obs.. action own.. | next_obs..
    int32 x 3        float32 x 2     bool x 2               the step's own       the last step's

`lane` is the environment that wrote the row; `prev` and `next` are distances in ids to the row
before and after it in the same episode of that lane (0 = none: the episode starts or ends here, or
the row after it has not been written yet). With n-step returns the last part comes from the last
step of the window, all else from its first. Rows are padded to 16 bytes (32 on CUDA).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from relive.arrays import NUMPY_DTYPES, REAL_DTYPES
from relive.declared import is_whole, plain
from relive.errors import ConfigError, shown

# Stored with every row, arguments of `add`, or what a batch has besides its fields.
RESERVED = {
    *("next_obs", "reward", "terminated", "truncated", "discount", "weights", "ids"),
    *("lane", "prev", "next", "final_obs", "env", "self", "to", "keys", "device"),
}
# How a stored dtype becomes float32.
NO_CONVERSION, FROM_UINT8, FROM_FLOAT16, FROM_BFLOAT16 = 0, 1, 2, 3
CONVERSIONS = {
    torch.uint8: FROM_UINT8,
    torch.float16: FROM_FLOAT16,
    torch.bfloat16: FROM_BFLOAT16,
}
STACK_ALIGNMENT = 16  # bytes; frames are compared, many bytes at a time
MOST_AXES = 30  # NumPy has 32; a batch and its lanes take two
LAST_LINK = 2**31 - 1  # largest distance that a link holds
WRAPPERS = {  # for a space that is no field
    "observation": "FlattenObservation(env) makes a Box of a Tuple, which every agent takes",
    "action": "TransformAction gives another one: agents take a Discrete or a Box",
}
SEPARATOR = "."  # of the names in a dict observation: obs.position


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a transition.

    Attributes:
        shape: without any batch axis.
        dtype: of the field in a batch.
        store: dtype in the buffer, if another; `dtype` is float32 then. uint8 is for values k/255:
            they come back exactly, other values in [0, 1] as the nearest such number (255 x is
            rounded to float32 first: what lies next to the middle of two may become either), and
            arrays of uint8 are taken as the k themselves. float16 and bfloat16 round. What the
            stored dtype cannot hold (outside [0, 1], beyond the largest float16) becomes the
            nearest it can, NaN becomes 0 in uint8; both are counted by `stats`.
        stack: of an observation: how many frames its first axis has, oldest first. Each frame is
            then kept once, however many stacks it is in.
    """

    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    store: torch.dtype | None = None
    stack: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.shape, tuple | list | torch.Size):
            raise ConfigError(
                f"a field's shape is a tuple, ({shown(self.shape)},) say; given {shown(self.shape)}"
            )
        shape = tuple(map(plain, self.shape))
        if not all(is_whole(n, 1) for n in shape):
            raise ConfigError(f"a field's shape is a tuple of sizes >= 1; given {shown(shape)}")
        if len(shape) > MOST_AXES or math.prod(shape) >= 2**56:
            raise ConfigError(
                f"a field has at most {MOST_AXES} axes and 2^56 values; given {shown(shape)}"
            )
        if not isinstance(self.dtype, torch.dtype) or self.dtype not in REAL_DTYPES:
            raise ConfigError(f"a field's dtype is a real torch.dtype; given {shown(self.dtype)}")
        if not isinstance(self.store, torch.dtype | None) or (
            self.store not in (None, self.dtype)
            and (self.store not in CONVERSIONS or self.dtype != torch.float32)
        ):
            raise ConfigError(
                "a float32 field is stored as torch.uint8, torch.float16 or torch.bfloat16, any "
                f"other as it is; given dtype={self.dtype}, store={shown(self.store)}"
            )
        object.__setattr__(self, "shape", shape)
        stack = plain(self.stack)
        if stack is not None and not (is_whole(stack, 1) and shape and shape[0] % stack == 0):
            raise ConfigError(
                "a field's stack says how many frames its first axis has, a divisor of its size; "
                f"given stack={shown(stack)}, shape={shown(shape)}"
            )
        if stack is not None and len(shape) > 2 and shape[0] != stack == shape[-1]:
            raise ConfigError(
                f"the frames of a stack lie along its first axis; of shape={shown(shape)} they "
                f"seem to lie along the last: give them as {shown((stack, *shape[:-1]))}"
            )
        object.__setattr__(self, "stack", stack)

    @property
    def nbytes(self) -> int:
        """Bytes of one value in a batch."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def stored_dtype(self) -> torch.dtype:
        """Dtype in the buffer."""
        return self.dtype if self.store is None else self.store


Fields = Mapping[str, "Field | Fields"]


@dataclass(frozen=True, slots=True)
class Column:
    """A field at its place.

    Attributes:
        name: its dotted path.
        offset: bytes from the start of the row.
        nbytes: bytes of a stored value.
        array_dtype: dtype of an array of stored values; None where NumPy has none.
        conversion: from what is stored to what a batch holds.
    """

    name: str
    field: Field
    offset: int
    nbytes: int
    array_dtype: np.dtype[Any] | None
    conversion: int


class RowLayout:
    """Where each field of `fields` lies in a packed row.

    Attributes:
        columns: every stored field by dotted name, in row order.
        row_bytes: bytes of a row, a multiple of `alignment`.
        next_offset, next_bytes: the run of bytes that the last step of an n-step window provides.
        tree: the nesting of the fields as given, leaves replaced by dotted names.
    """

    def __init__(self, fields: Fields, alignment: int = 16) -> None:
        if not isinstance(fields, Mapping):
            raise ConfigError(f"fields is a mapping of names to Fields; given {shown(fields)}")
        for name in fields:
            if not isinstance(name, str) or name.startswith("_") or not name.isidentifier():
                raise ConfigError(
                    f"a field's name is a public Python identifier; given {shown(name)}"
                )
        for name in ("obs", "action"):
            if name not in fields:
                raise ConfigError(f"fields needs {name!r}; given {sorted(fields)}")
        if taken := sorted(RESERVED & set(fields)):
            raise ConfigError(
                f"the names {taken} are relive's own and are always stored; rename them"
            )
        self.fields: dict[str, Any] = dict(fields)
        self.columns: dict[str, Column] = {}
        self._end = 0
        scalar, flag, link = Field(), Field((), torch.bool), Field((), torch.int32)
        for name, field in (
            ("lane", link),
            ("prev", link),
            ("next", link),
            ("reward", scalar),
            ("discount", scalar),
            ("terminated", flag),
            ("truncated", flag),
        ):
            self._place(name, field)
        self.tree: dict[str, Any] = {}
        for name, given in fields.items():
            self.tree[name] = self._place_all(name, given)
        self._end = -(-self._end // 8) * 8
        self.next_offset = self._end
        self.tree["next_obs"] = self._place_all("next_obs", fields["obs"])
        self.next_bytes = self._end - self.next_offset
        self.row_bytes = -(-self._end // alignment) * alignment
        for name in ("reward", "terminated", "truncated", "discount"):
            self.tree[name] = name

    def _place(self, name: str, field: Field) -> str:
        dtype = field.stored_dtype
        alignment = dtype.itemsize if field.stack is None else STACK_ALIGNMENT
        offset = -(-self._end // alignment) * alignment
        nbytes = math.prod(field.shape) * dtype.itemsize
        conversion = NO_CONVERSION if dtype == field.dtype else CONVERSIONS[dtype]
        self.columns[name] = Column(
            name, field, offset, nbytes, NUMPY_DTYPES.get(dtype), conversion
        )
        self._end = offset + nbytes
        return name

    def _place_all(self, name: str, field: Field | Fields) -> Any:
        if isinstance(field, Field):
            return self._place(name, field)
        if not isinstance(field, Mapping) or not field:
            raise ConfigError(
                f"field {name!r} is a Field or a mapping of fields; given {shown(field)}"
            )
        if wrong := [key for key in field if not isinstance(key, str) or SEPARATOR in key]:
            raise ConfigError(
                f"the keys of field {name!r} are strings with no dots; given {shown(wrong)}"
            )
        return {key: self._place_all(f"{name}{SEPARATOR}{key}", field[key]) for key in field}


def fields_of(env: Any, *, stack: int | None = None) -> dict[str, Any]:
    """The fields of a Gymnasium environment, or of one environment of a vector environment.

    Floats are stored as float32 (whatever the space says), other observations in the dtype of their
    space; discrete actions as int64, continuous ones as float32. A dict space gives a dict of
    fields.

    Args:
        stack: how many frames an observation has along its first axis, those of
            `gymnasium.wrappers.FrameStackObservation` say: each frame is then kept once.

    Raises:
        ConfigError: no environment, or a space that is no field (Tuple, Text, Sequence, Graph); or
            observations that are no such stacks.
    """
    obs = _fields_of_space(_space(env, "observation"), "observation")
    return {
        "obs": obs if stack is None else stacked(obs, stack),
        "action": _fields_of_space(_space(env, "action"), "action"),
    }


def stacked(obs: Any, stack: int) -> Field:
    """The field of an observation as one of `stack` frames.

    Raises:
        ConfigError: it is a dict of fields, or has no such number of frames.
    """
    if not isinstance(obs, Field):
        raise ConfigError(
            "stack= is for an observation that is one array; of a dict give the field of the "
            "stack its own: Field(shape, dtype, stack=4)"
        )
    return replace(obs, stack=stack)


def _space(env: Any, what: str) -> Any:
    for name in (f"single_{what}_space", f"{what}_space"):
        space = getattr(env, name, None)
        if space is not None:
            return space
    raise ConfigError(f"an environment has an {what}_space; given {shown(env)}")


def _fields_of_space(space: Any, what: str) -> Any:
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return {key: _fields_of_space(sub, what) for key, sub in space.spaces.items()}
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        dtype = torch_dtype(space.dtype)
        return Field(tuple(space.shape), torch.float32 if dtype.is_floating_point else dtype)
    if isinstance(space, spaces.Discrete):
        return Field((), torch.int64)
    raise ConfigError(
        f"the {what} space {space} is none of Box, Discrete, MultiDiscrete, MultiBinary or a Dict "
        f"of these; gymnasium.wrappers.{WRAPPERS[what]}"
    )


def torch_dtype(dtype: Any) -> torch.dtype:
    """The torch dtype of a NumPy dtype."""
    found = getattr(torch, np.dtype(dtype).name, None)
    if not isinstance(found, torch.dtype):
        raise ConfigError(f"dtype {dtype} has no counterpart in torch")
    return found
