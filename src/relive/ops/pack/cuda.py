"""Packing columns of values into rows of bytes, in Triton: one launch for all columns.

The columns are arguments of the kernel. When the launch is captured in a CUDA graph their addresses
are frozen with it, as those of the rows are: a replay packs what lies there then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import triton
import triton.language as tl

from relive.ops.launch import blocks, launch, power_of_two

if TYPE_CHECKING:
    from torch import Tensor

    from relive.ops.pack.reference import Column


ROWS_AT_ONCE = 16
TILE_WORDS = 2048  # words of a column that a program copies at once
PIECES = 16  # programs that share wide columns


@triton.jit(do_not_specialize=["num_rows"])
def pack_kernel(
    rows,
    columns,
    num_rows,
    OFFSETS: tl.constexpr,
    SIZES: tl.constexpr,
    WORD_BYTES: tl.constexpr,
    ROW_BYTES: tl.constexpr,
    ROWS: tl.constexpr,
    MOST_WORDS: tl.constexpr,
    LAYOUT: tl.constexpr,
):
    """Copy one value of every column into each of a block of rows.

    Args:
        columns: tuple of pointers.
        OFFSETS, SIZES: of the values, in bytes.
        WORD_BYTES: of the words in which each column is copied.
        MOST_WORDS: of each row, copied at once.
    """
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    for c in tl.static_range(len(OFFSETS)):
        word_type = tl.pointer_type(tl.dtype(f"int{8 * WORD_BYTES[c]}"))
        count = SIZES[c] // WORD_BYTES[c]
        given = columns[c].to(word_type, bitcast=True) + row * count
        target = (rows + row * ROW_BYTES + OFFSETS[c]).to(word_type, bitcast=True)
        for first in range(tl.program_id(1) * MOST_WORDS, count, tl.num_programs(1) * MOST_WORDS):
            word = first + tl.arange(0, MOST_WORDS)[None, :]
            mask = (row < num_rows) & (word < count)
            tl.store(target + word, tl.load(given + word, mask=mask), mask=mask)


def pack(rows: Tensor, columns: list[Column]) -> None:
    """See `reference.pack`; values are contiguous tensors on the device.

    One launch, and a copy of each column that does not begin at a multiple of 16 bytes: a kernel is
    compiled for the alignment of every one.
    """
    if not columns or not len(rows):
        return
    offsets, sizes, values = zip(*columns, strict=True)
    words = tuple(word_bytes(offset, size) for offset, size, _ in columns)
    widest = max(size // word for size, word in zip(sizes, words, strict=True))
    at_once = min(power_of_two(len(rows)), ROWS_AT_ONCE)
    most = min(power_of_two(widest), TILE_WORDS // at_once)
    launch(
        pack_kernel,
        (blocks(len(rows), at_once), min(blocks(widest, most), PIECES)),
        rows,
        tuple(given if given.data_ptr() % 16 == 0 else given.clone() for given in values),
        len(rows),
        OFFSETS=offsets,
        SIZES=sizes,
        WORD_BYTES=words,
        ROW_BYTES=rows.shape[1],
        ROWS=at_once,
        MOST_WORDS=most,
    )


def word_bytes(offset: int, nbytes: int) -> int:
    """The largest word, of at most 8 bytes, in which a value at an offset of a row can be copied.

    Examples:
        >>> word_bytes(24, 68), word_bytes(22, 84), word_bytes(64, 16)
        (4, 2, 8)
    """
    places = offset | nbytes | 8
    return places & -places
