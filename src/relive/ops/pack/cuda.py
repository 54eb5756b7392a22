"""Steps given as columns, for Triton: they are read where they lie, as if they had been packed.

A kernel is given the addresses of the columns, and is compiled for their PLACES: of each the offset
in a row, the bytes of a value, and whether these are whole words. Steps that have been packed are
one column, of whole rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import triton
import triton.language as tl

from relive.ops.launch import Address

if TYPE_CHECKING:
    from torch import Tensor

    Column = tuple[int, int, Tensor]  # as in `reference`, on the device

BYTES = tl.constexpr(tl.pointer_type(tl.uint8))
WORDS = tl.constexpr(tl.pointer_type(tl.int32))
# Which attribute of a `Place` is where.
OFFSET, NBYTES, IN_WORDS = (tl.constexpr(index) for index in range(3))


class Place(NamedTuple):
    """Of a column in a packed row.

    Attributes:
        offset, nbytes: Of a value.
        in_words: Whether it can be read in words of 4 bytes, each a word of the row.
    """

    offset: int
    nbytes: int
    in_words: bool


def placed(columns: list[Column]) -> tuple[tuple[Address, ...], tuple[Place, ...]]:
    """What kernels are given of columns; their values are contiguous tensors on the device.

    Values that begin at no multiple of 4 bytes are read byte by byte: then a kernel is compiled for
    that. Rows of a larger tensor begin at one if they are whole words.
    """
    addresses = tuple(Address.of(values) for _, _, values in columns)
    places = tuple(
        Place(offset, nbytes, (offset | nbytes | address >> 1) % 4 == 0)
        for (offset, nbytes, _), address in zip(columns, addresses, strict=True)
    )
    return addresses, places


@triton.jit
def first_byte(column):
    """Where a column begins, see `Address`."""
    return (column >> 1).to(BYTES, bitcast=True)


@triton.jit
def find(words, columns, byte, PLACES: tl.constexpr, ONLY_WORDS: tl.constexpr):
    """Where bytes of packed steps are.

    Args:
        words: Any pointer: there are no bytes where there is no column.
        byte: Of a row, int [*].

    Returns:
        Where they are of step 0, uint8* [*]; how many bytes it is to those of the next step,
        int [*]; and whether there is a column of them, bool [*].
    """
    first, pitch, found = words.to(BYTES) + byte * 0, byte * 0, byte < 0
    for c in tl.static_range(len(PLACES)):
        if PLACES[c][IN_WORDS] or not ONLY_WORDS:
            here = (byte >= PLACES[c][OFFSET]) & (byte < PLACES[c][OFFSET] + PLACES[c][NBYTES])
            first = tl.where(here, first_byte(columns[c]) + byte, first)
            first = tl.where(here, first - PLACES[c][OFFSET], first)
            pitch = tl.where(here, PLACES[c][NBYTES], pitch)
            found = found | here
    return first, pitch, found


@triton.jit
def load_words(words, columns, step, word, mask, PLACES: tl.constexpr):
    """Words of 4 bytes of packed steps, int32 [R, W]; zero where there is no column.

    Args:
        step: int64 [R, W] or [R, 1].
        word: Of a row, int32 [1, W].
    """
    first, pitch, found = find(words, columns, word * 4, PLACES, True)
    value = tl.load((first + step * pitch).to(WORDS), mask=mask & found, other=0)
    for c in tl.static_range(len(PLACES)):
        if not PLACES[c][IN_WORDS]:
            first = first_byte(columns[c]) + step * PLACES[c][NBYTES]
            for k in tl.static_range(4):
                if (k - PLACES[c][OFFSET]) % 4 < PLACES[c][NBYTES]:
                    byte = word * 4 + k - PLACES[c][OFFSET]
                    here = mask & (byte >= 0) & (byte < PLACES[c][NBYTES])
                    value |= tl.load(first + byte, mask=here, other=0).to(tl.int32) << (8 * k)
    return value


@triton.jit
def place_of(words, columns, offset, step, mask, PLACES: tl.constexpr):
    """Where a part of packed steps is, uint8* [*]; and the mask, false where there is no column."""
    first, pitch, found = find(words, columns, offset, PLACES, False)
    return first + step * pitch, tl.where(found, mask, False)
