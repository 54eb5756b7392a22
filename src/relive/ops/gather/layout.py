"""How the work of copying rows is cut into programs: constants of the kernel in `gather.cuda`.

Rows of up to SHORT bytes: a program copies tiles of some whole rows, in words of 4 bytes, read 16
bytes at a time; fields that are no whole words, or are converted, follow one by one from the cache.
Longer rows: a program copies a piece of one field of one row; the short fields are one piece more.
A field of stacked frames, of which a row has the ids, is cut into its frames, and these as fields
are; where it is wide its rows count as long ones.
"""

from __future__ import annotations

from typing import NamedTuple

from relive.fields import FROM_BFLOAT16, FROM_FLOAT16, FROM_UINT8, NO_CONVERSION
from relive.ops.launch import blocks, power_of_two

SHORT = 4096  # bytes of a row
WORD = 4
TILE_WORDS = 1024  # that four warps read before they write
MOST_TOGETHER = 64  # rows of a tile
MANY_ROWS, MANY_TILES = 1 << 15, 8  # of a batch that fills a GPU with programs of many tiles
PIECE = 4096  # values of a piece of a field
WIDE = 1024  # values from which on a field is cut into pieces

AS_WORDS, AS_VALUES = 0, 1  # with the words of the row, or by itself
STORED_BYTES = {FROM_UINT8: 1, FROM_FLOAT16: 2, FROM_BFLOAT16: 2}


class Part(NamedTuple):
    """One gathered field, for the kernel.

    Attributes:
        offset: bytes from the start of a row, of the value or of the ids of its frames.
        nbytes: bytes of a stored value.
        batch_bytes: bytes in a batch.
        conversion: of `fields`.
        unit: bytes of a number as it is read.
        kind: AS_WORDS or AS_VALUES.
        piece: the first of the pieces that have it; 0 has all that is not cut.
        span: a power of two; numbers of a piece, or at least those of the field or frame.
        parts: of `span` numbers; the field, or each frame.
        stack: frames that are kept once; 0 if the row has the value.
    """

    offset: int
    nbytes: int
    batch_bytes: int
    conversion: int
    unit: int
    kind: int
    piece: int
    span: int
    parts: int
    stack: int


class GatherLayout(NamedTuple):
    """What never changes of a buffer's rows.

    Attributes:
        row_bytes: a multiple of 16.
        fields: in the order of the batch.
        pieces: programs of a row, or of some rows.
        row_words: words of a row, rounded up to a power of two; 1 of a long row.
        most_together: rows that a program copies at once.
    """

    row_bytes: int
    fields: tuple[Part, ...]
    pieces: int
    row_words: int
    most_together: int

    def tile(self, count: int) -> tuple[int, int]:
        """Rows that a program of a batch of `count` copies at once, and how often it does."""
        rows = min(self.most_together, power_of_two(count))
        return rows, MANY_TILES if self.row_words > 1 and count >= MANY_ROWS else 1


def gather_layout(row_bytes: int, columns: list[list[int]]) -> GatherLayout:
    """How to copy rows.

    Args:
        columns: The words of each gathered column: offset, bytes, bytes in a batch, conversion,
            frames that are kept once.
    """
    short = row_bytes <= SHORT and not any(_is_wide(column) for column in columns if column[-1])
    fields, piece = [], 1
    for column in columns:
        offset, nbytes, batch_bytes, conversion, stack = column
        frames, unit = stack or 1, _unit(column)
        whole_words = conversion == NO_CONVERSION and unit == WORD and not stack
        kind = AS_WORDS if short and whole_words else AS_VALUES
        numbers = nbytes // unit // frames
        wide = not short and _is_wide(column)
        span = PIECE if wide and not stack else min(PIECE, power_of_two(numbers))
        parts = frames * blocks(numbers, span)
        first = piece if wide else 0
        fields.append(
            Part(offset, nbytes, batch_bytes, conversion, unit, kind, first, span, parts, stack)
        )
        piece += parts if wide else 0
    row_words = power_of_two(row_bytes // WORD) if short else 1
    largest = max([row_words, *(f.span * f.unit // WORD for f in fields if f.stack)])
    most = min(MOST_TOGETHER, TILE_WORDS // largest) if short else 1
    return GatherLayout(row_bytes, tuple(fields), piece, row_words, most)


def _unit(column: list[int]) -> int:
    """Bytes of a number of a column as it is read."""
    offset, nbytes, _, conversion, stack = column
    if conversion != NO_CONVERSION:
        return STORED_BYTES[conversion]
    return unit_of(0, nbytes // stack) if stack else unit_of(offset, nbytes)


def _is_wide(column: list[int]) -> bool:
    return column[1] // _unit(column) >= WIDE


def unit_of(offset: int, nbytes: int) -> int:
    """The most bytes, up to a word, that a value at an offset can be read by."""
    return next(unit for unit in (WORD, 2, 1) if offset % unit == 0 and nbytes % unit == 0)
