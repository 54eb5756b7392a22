"""Copying rows into a batch, in Numba: some rows at a time, field by field."""

from __future__ import annotations

from typing import Any

from numba import carray

from relive.batch import CACHE_LINE
from relive.fields import NO_CONVERSION
from relive.ops import words as w
from relive.ops.compiled import copy_bytes, copy_value, helper, int64_pointer, prefetch
from relive.ops.convert.cpu import convert
from relive.ops.frames.cpu import frame_at, frame_words_of

GATHER_ROWS, GATHER_BYTES = 32, 1 << 14  # at most, that are copied while the next are fetched
LARGE_BYTES = 1 << 24  # of a field of a batch: more than a core's caches hold


@helper
def lines(nbytes: Any) -> Any:
    """Bytes rounded up to whole cache lines."""
    return (nbytes + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE


@helper
def prefetch_rows(words: Any, slots: Any) -> None:
    """Ask for the rows of some slots; long ones are fetched by the processor once begun."""
    row_bytes = words[w.ROW_BYTES]
    span = min(row_bytes, 4 * CACHE_LINE)
    for i in range(slots.shape[0]):
        row = words[w.ROWS] + slots[i] * row_bytes
        for offset in range(0, span, CACHE_LINE):
            prefetch(row + offset)


@helper
def gather_values(target: Any, source: Any, slots: Any, row_bytes: Any, nbytes: Any) -> None:
    """Copy one column; a loop of its own for the sizes of a flag, a number and a pair."""
    count = slots.shape[0]
    if nbytes == 4:
        for i in range(count):
            copy_bytes(target + i * 4, source + slots[i] * row_bytes, 4)
    elif nbytes == 1:
        for i in range(count):
            copy_bytes(target + i, source + slots[i] * row_bytes, 1)
    elif nbytes == 8:
        for i in range(count):
            copy_bytes(target + i * 8, source + slots[i] * row_bytes, 8)
    elif nbytes == 16:
        for i in range(count):
            copy_bytes(target + i * 16, source + slots[i] * row_bytes, 16)
    else:
        for i in range(count):
            copy_value(target + i * nbytes, source + slots[i] * row_bytes, nbytes)


@helper
def gather_stacks(words: Any, source: Any, slots: Any, target: Any, column: Any) -> None:
    """Copy the frames whose ids are in one column of the rows, one behind the other."""
    frames = frame_words_of(words)
    stack, conversion = column[w.COLUMN_STACK], column[w.COLUMN_CONVERSION]
    stored, nbytes = column[w.COLUMN_BYTES] // stack, column[w.COLUMN_BATCH_BYTES] // stack
    for i in range(slots.shape[0]):
        ids = carray(int64_pointer(source + slots[i] * words[w.ROW_BYTES]), stack)
        for place in range(stack):
            frame = frame_at(words, frames, ids[place])
            if conversion == NO_CONVERSION:
                copy_bytes(target, frame, nbytes)
            else:
                convert(conversion, target, frame, stored, False)
            target += nbytes


@helper
def gather_columns(words: Any, slots: Any, arena: Any, first: Any, total: Any) -> None:
    """Copy every gathered field of the rows into an arena of `total`, from row `first` on.

    Some rows at a time: the next ones are asked for, then these are copied field by field from the
    cache.
    """
    batch_size = slots.shape[0]
    row_bytes = words[w.ROW_BYTES]
    columns = carray(int64_pointer(words[w.COLUMNS]), (words[w.NUM_COLUMNS], w.COLUMN_WORDS))
    together = max(1, min(GATHER_ROWS, GATHER_BYTES // row_bytes))
    prefetch_rows(words, slots[:together])
    for start in range(0, batch_size, together):
        stop = min(start + together, batch_size)
        prefetch_rows(words, slots[stop : stop + together])
        block = arena + lines(8 * total) + lines(4 * total)
        for c in range(columns.shape[0]):
            source = words[w.ROWS] + columns[c, w.COLUMN_OFFSET]
            stored = columns[c, w.COLUMN_BYTES]
            nbytes = columns[c, w.COLUMN_BATCH_BYTES]
            conversion = columns[c, w.COLUMN_CONVERSION]
            if columns[c, w.COLUMN_STACK] > 0:
                gather_stacks(
                    words, source, slots[start:stop], block + (first + start) * nbytes, columns[c]
                )
            elif conversion == NO_CONVERSION:
                gather_values(
                    block + (first + start) * nbytes, source, slots[start:stop], row_bytes, nbytes
                )
            else:
                large = total * nbytes >= LARGE_BYTES
                for i in range(start, stop):
                    row = source + slots[i] * row_bytes
                    convert(conversion, block + (first + i) * nbytes, row, stored, large)
            block += lines(total * nbytes)
