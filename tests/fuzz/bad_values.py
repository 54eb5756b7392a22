"""Values that no one should give, and values that were right until something was done to them."""

from __future__ import annotations

import datetime as dt
import decimal
import fractions
import warnings
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZES = [-(2**63) - 1, -(2**63), -1, 0, 1, 2, 3, 255, 256, 2**31, 2**32, 2**40, 2**53]
SIZES += [2**62, 2**63 - 1, 2**63, 2**64, 10**30, 10**5000]
NUMBERS = [0.0, -0.0, 0.5, 1.0, -1.0, np.nan, np.inf, -np.inf, 5e-324, 1e38, 1e300, 1j]
WORDS = ["", "cpu", "meta", "cuda:99", "max", "keep", "buffer", "obs", "\0", "ü" * 300, b"cpu"]
DTYPES = [*(getattr(torch, name) for name in dir(torch))]
DTYPES = sorted({d for d in DTYPES if isinstance(d, torch.dtype)}, key=str)
ARRAY_TYPES = ["?", "b", "B", "h", "H", "i", "I", "q", "Q", "e", "f", "d", "g", "F", "D", "O"]
ARRAY_TYPES += ["U3", "S3", "V4", "M8[s]", "m8[s]", ">f4", ">i8", "i4,f4"]


class Odd:
    """Has nothing that anything has."""


class Shaped:
    """Says that it has axes."""

    shape, ndim = (2, 3), 2


class Equal:
    """Says that it equals whatever it is compared with."""

    __hash__ = None

    def __eq__(self, other: object) -> bool:
        return True


def anything(rng: np.random.Generator) -> Any:
    """Of any kind at all."""
    kinds = (simple, array, tensor, nested)
    return kinds[int(rng.choice(4, p=[0.5, 0.2, 0.2, 0.1]))](rng)


def one(rng: np.random.Generator, choices: list[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def simple(rng: np.random.Generator) -> Any:
    others = [None, True, False, (), [], {}, set(), {"a": 1}, range(3), torch, Odd()]
    others += [Shaped(), Equal(), lambda x: x, Ellipsis, slice(2), iter([1]), memoryview(b"ab")]
    others += [decimal.Decimal("NaN"), fractions.Fraction(1, 3), dt.date(2020, 1, 1)]
    scalars = [np.float32("nan"), np.float16(1), np.int64(3), np.uint64(2**63), np.bool_(1)]
    scalars += [np.str_("cpu"), np.datetime64("2020-01-01"), np.complex64(1j), np.longdouble(2)]
    return one(rng, one(rng, [others, SIZES, SIZES, NUMBERS, WORDS, scalars, DTYPES]))


def shape(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.choice([0, 1, 2, 3, 5], int(rng.integers(0, 4))))


def array(rng: np.random.Generator) -> Any:
    return changed_array(rng, np.zeros(shape(rng), one(rng, ARRAY_TYPES)))


def changed_array(rng: np.random.Generator, given: np.ndarray[Any, Any]) -> Any:
    """Of the same contents, mostly, in another form."""
    match int(rng.integers(9)):
        case 0:
            return given[::-1] if given.ndim else given
        case 1:
            return given.T
        case 2:
            given = given.copy()
            given.flags.writeable = False
            return given
        case 3:
            return given.tolist()
        case 4:
            return np.ma.masked_array(given, mask=True) if given.dtype.kind in "iuf" else given
        case 5:
            return given.astype(object)
        case 6:
            return np.repeat(given, 2, axis=-1)[..., ::2] if given.ndim else given
        case 7:
            return np.asfortranarray(given)
        case _:
            return given


TENSOR_FORMS: dict[str, Callable[[torch.Tensor], Any]] = {  # of the same contents, mostly
    "as it is": lambda t: t,
    "without memory": lambda t: t.to("meta"),
    "sparse": lambda t: t.to_sparse(),
    "with gradients": lambda t: t.clone().requires_grad_(),
    "in a list, with gradients": lambda t: [t.clone().float().requires_grad_()],
    "expanded": lambda t: t.expand(3, *t.shape),
    "transposed or wider": lambda t: t.mT if t.ndim > 1 else t.double(),
    "conjugated": lambda t: torch.complex(t.float(), t.float()).conj(),
    "negated": lambda t: torch.complex(t.float(), t.float()).conj().imag,
}
QUANTIZED = {torch.quint8, torch.qint8, torch.qint32}
NEVER_MADE = {torch.quint4x2, torch.quint2x4}  # torch has no function that makes one of a shape
TENSOR_TYPES = [dtype for dtype in DTYPES if dtype not in NEVER_MADE]


def zeros(size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    with quietly():
        if dtype in QUANTIZED:
            return torch.quantize_per_tensor(torch.zeros(size), 1.0, 0, dtype)
        # torch cannot fill all of them, but every one is made of bytes
        return torch.zeros((*size, dtype.itemsize), dtype=torch.uint8).view(dtype).squeeze(-1)


@cache
def possible_forms(dtype: torch.dtype) -> tuple[str, ...]:
    """The forms that torch can give this dtype; `test_bad_values` says what must be among them."""
    found = []
    for name, form in TENSOR_FORMS.items():
        with quietly(), suppress(RuntimeError):
            form(zeros((2,), dtype))
            form(zeros((2, 2), dtype))
            found.append(name)
    return tuple(found)


def tensor(rng: np.random.Generator) -> Any:
    return changed_tensor(rng, zeros(shape(rng), one(rng, TENSOR_TYPES)))


def changed_tensor(rng: np.random.Generator, given: torch.Tensor) -> Any:
    """Of the same contents, mostly, in another form."""
    with quietly():
        return TENSOR_FORMS[one(rng, list(possible_forms(given.dtype)))](given)


@contextmanager
def quietly() -> Iterator[None]:
    """Torch warns of what is rare; that is what is wanted here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def nested(rng: np.random.Generator) -> Any:
    choices = [
        [[1], [1, 2]],
        [[[0.0] * 3] * 2] * 2,
        [None, 1],
        ["a", 1.0],
        [torch.zeros(2), torch.zeros(3)],
        [np.zeros(2), None],
        {"obs": {"a": [1, [2]]}},
        {1: 2},
        [2**70, -1],
        [np.nan, 10**400],
        (1, (2, (3,))),
        [Odd()],
        {"image": np.zeros((2, 2)), "speed": None},
    ]
    return one(rng, choices)


def altered(rng: np.random.Generator, given: Any) -> Any:
    """What was right, after something was done to it; anything, where nothing comes to mind."""
    if isinstance(given, np.ndarray) and rng.random() < 0.7:
        return altered_array(rng, given)
    if isinstance(given, torch.Tensor) and rng.random() < 0.7:
        return changed_tensor(rng, given)
    if isinstance(given, dict) and given and rng.random() < 0.7:
        key = one(rng, list(given))
        rest = {name: value for name, value in given.items() if name != key}
        return one(rng, [rest, {**given, "more": 1}, {**rest, key: altered(rng, given[key])}])
    if type(given) is int and rng.random() < 0.5:
        return one(rng, [-given, given + 1, float(given), str(given), np.int64(given), [given]])
    return anything(rng)


def altered_array(rng: np.random.Generator, given: np.ndarray[Any, Any]) -> Any:
    match int(rng.integers(8)):
        case 0:
            return changed_array(rng, given)
        case 1:
            return changed_tensor(rng, torch.from_numpy(np.array(given)))
        case 2:
            return given[None]
        case 3:
            return given[:-1] if given.ndim else given
        case 4:
            return np.concatenate([given, given]) if given.ndim else given
        case 5:
            with np.errstate(all="ignore"):
                return given.astype(one(rng, ["?", "b", "Q", "e", "d", "F", ">f8", "O", "U9"]))
        case 6 if given.dtype.kind == "f":
            spoilt = given.copy()
            spoilt[...] = one(rng, [np.nan, np.inf, -np.inf, 3e38, -0.0])
            return spoilt
        case 7 if given.dtype.kind in "iu":
            spoilt = given.astype(np.int64)
            spoilt[...] = one(rng, [-1, 10**6, 2**31, 2**62, 2**62 + 1, 2**63 - 1, -(2**63)])
            return spoilt
        case _:
            return anything(rng)
