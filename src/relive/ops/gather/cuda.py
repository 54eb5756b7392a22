"""Copying rows into a batch, for Triton: every field of some rows, or a piece of one long field.

Frames that are kept once are copied as if they lay in the row, one behind the other. Rows lie
apart, so they are read whole where they are short, each cache line once; what is written
is contiguous. Addresses are 64-bit; `arena` and `rows` start at a multiple of 16 bytes.
"""

from __future__ import annotations

import triton
import triton.language as tl

from relive.batch import CACHE_LINE
from relive.fields import NO_CONVERSION
from relive.ops.convert.cuda import decode
from relive.ops.frames.cuda import slots_of_frames, units
from relive.ops.gather import layout
from relive.ops.window.cuda import slots_of

LINE = tl.constexpr(CACHE_LINE)
AS_STORED = tl.constexpr(NO_CONVERSION)
AS_WORDS = tl.constexpr(layout.AS_WORDS)
# Which attribute of a `layout.Part` is where.
FIRST_BYTE, NBYTES, BATCH_BYTES, CONVERSION, UNIT, KIND, FIRST_PIECE, SPAN, PARTS, STACK = (
    tl.constexpr(index) for index in range(len(layout.Part._fields))
)
WORDS = tl.constexpr(tl.pointer_type(tl.int32))
LONGS = tl.constexpr(tl.pointer_type(tl.int64))
FLOATS = tl.constexpr(tl.pointer_type(tl.float32))


@triton.jit
def lines(nbytes):
    """Bytes rounded up to whole cache lines, int64 []."""
    return (nbytes + LINE - 1) // LINE * LINE


@triton.jit
def ids_in(arena):
    """The ids of a batch."""
    return arena.to(LONGS)


@triton.jit
def weights_in(arena, total):
    """The weights of a batch of `total` rows, int64 []."""
    return (arena + lines(total * 8)).to(FLOATS)


@triton.jit
def load_words(source, held, ROW_BYTES: tl.constexpr, ROW_WORDS: tl.constexpr):
    """All words of some rows, int32 [R, ROW_WORDS]; zeros of those not held.

    Args:
        source: Rows, pointers [R].
        held: bool [R].
    """
    word = tl.arange(0, ROW_WORDS)[None, :]
    there = held[:, None] & (word < ROW_BYTES // 4)
    return tl.load(source.to(WORDS)[:, None] + word, mask=there, other=0)


@triton.jit
def place_words(word, total, FIELDS: tl.constexpr, NUM_FIELDS: tl.constexpr):
    """Where the words of a row go.

    Args:
        word: Number in the row, int32 [W].
        total: Rows of the batch, int64 [].

    Returns:
        In words: the place in the arena of that of row 0, int64 [W], and the distance from row to
        row, int32 [W]. And which words go anywhere, bool [W].
    """
    target, pitch, taken = word.to(tl.int64), word * 0, word < 0
    start = lines(total * 8) + lines(total * 4)
    for c in tl.static_range(NUM_FIELDS):
        if FIELDS[c][KIND] == AS_WORDS:
            first = FIELDS[c][FIRST_BYTE] // 4
            count = FIELDS[c][NBYTES] // 4
            here = (word >= first) & (word < first + count)
            target = tl.where(here, start // 4 + word - first, target)
            pitch = tl.where(here, count, pitch)
            taken = taken | here
        start += lines(total * FIELDS[c][BATCH_BYTES])
    return target, pitch, taken


@triton.jit
def copy_field(
    source,
    target,
    place,
    inside,
    held,
    first,
    FIELDS: tl.constexpr,
    c: tl.constexpr,
    COUNT: tl.constexpr,
):
    """Copy, of some rows, numbers of a field, or of a frame of it, from the number `first` on.

    Args:
        source: The first byte in each row, or of each frame, pointers [R].
        target: The first byte of the field in the arena.
        place: Which number there the first one is, int64 [R].
        inside: Which rows there are, bool [R].
        held: Which of them are read; the others become zeros, bool [R].
        COUNT: Of numbers there are.
    """
    unit: tl.constexpr = FIELDS[c][UNIT]
    number = first + tl.arange(0, FIELDS[c][SPAN])[None, :]
    here = number < COUNT
    stored = tl.load(units(source, unit)[:, None] + number, mask=held[:, None] & here, other=0)
    place = place[:, None] + number
    if FIELDS[c][CONVERSION] == AS_STORED:
        tl.store(units(target, unit) + place, stored, mask=inside[:, None] & here)
    else:
        values = decode(stored, FIELDS[c][CONVERSION])
        tl.store(target.to(FLOATS) + place, values, mask=inside[:, None] & here)


@triton.jit
def copy_part(
    frames,
    frame_words,
    source,
    target,
    row,
    inside,
    held,
    part,
    FIELDS: tl.constexpr,
    c: tl.constexpr,
    FRAME_BYTES: tl.constexpr,
):
    """Copy SPAN numbers of a field; of stacked frames those of one frame.

    Args:
        source, target, inside, held: As in `copy_field`, of the field.
        row: Of the batch, int64 [R].
        part: Of the field.
    """
    count: tl.constexpr = FIELDS[c][NBYTES] // FIELDS[c][UNIT]
    if FIELDS[c][STACK] == 0:
        first = part * FIELDS[c][SPAN]
        copy_field(source, target, row * count, inside, held, first, FIELDS, c, count)
    else:
        of_frame: tl.constexpr = count // FIELDS[c][STACK]
        parts: tl.constexpr = (of_frame - 1) // FIELDS[c][SPAN] + 1
        ids = tl.load(source.to(LONGS) + part // parts, mask=held, other=0)
        frame = frames + slots_of_frames(frame_words, ids) * FRAME_BYTES
        place = row * count + part // parts * of_frame
        first = part % parts * FIELDS[c][SPAN]
        copy_field(frame, target, place, inside, held, first, FIELDS, c, of_frame)


@triton.jit
def copy_whole(
    frames,
    frame_words,
    source,
    target,
    row,
    inside,
    held,
    FIELDS: tl.constexpr,
    c: tl.constexpr,
    FRAME_BYTES: tl.constexpr,
):
    """Copy all parts of a field; see `copy_part`."""
    for part in range(FIELDS[c][PARTS]):
        copy_part(
            frames,
            frame_words,
            source,
            target,
            row,
            inside,
            held,
            part,
            FIELDS,
            c,
            FRAME_BYTES,
        )


@triton.jit
def copy_fields(
    frames,
    frame_words,
    source,
    arena,
    row,
    inside,
    held,
    total,
    piece,
    FIELDS: tl.constexpr,
    NUM_FIELDS: tl.constexpr,
    PIECES: tl.constexpr,
    FRAME_BYTES: tl.constexpr,
):
    """Copy what a piece has of the fields that go by themselves; source: rows, pointers [R]."""
    start = lines(total * 8) + lines(total * 4)
    for c in tl.static_range(NUM_FIELDS):
        if FIELDS[c][KIND] != AS_WORDS:
            begin, target = source + FIELDS[c][FIRST_BYTE], arena + start
            if FIELDS[c][FIRST_PIECE] > 0:
                part = piece - FIELDS[c][FIRST_PIECE]
                if (part >= 0) & (part < FIELDS[c][PARTS]):
                    copy_part(
                        frames,
                        frame_words,
                        begin,
                        target,
                        row,
                        inside,
                        held,
                        part,
                        FIELDS,
                        c,
                        FRAME_BYTES,
                    )
            elif PIECES == 1:  # noqa: SIM114 - one is compiled, the other asks
                copy_whole(
                    frames,
                    frame_words,
                    begin,
                    target,
                    row,
                    inside,
                    held,
                    FIELDS,
                    c,
                    FRAME_BYTES,
                )
            elif piece == 0:
                copy_whole(
                    frames,
                    frame_words,
                    begin,
                    target,
                    row,
                    inside,
                    held,
                    FIELDS,
                    c,
                    FRAME_BYTES,
                )
        start += lines(total * FIELDS[c][BATCH_BYTES])


@triton.jit
def copy_rows(
    words,
    rows,
    frames,
    frame_words,
    ids,
    arena,
    begin,
    count,
    first,
    total,
    piece,
    ROW_BYTES: tl.constexpr,
    ROW_WORDS: tl.constexpr,
    FIELDS: tl.constexpr,
    NUM_FIELDS: tl.constexpr,
    PIECES: tl.constexpr,
    TOGETHER: tl.constexpr,
    FRAME_BYTES: tl.constexpr,
):
    """Copy TOGETHER rows into a batch, or a piece of them.

    Args:
        ids: Of the rows of the arena, -1 for one that becomes zeros.
        begin: The first to copy of `count` rows, which are `first`... of the arena; int64 [].
        total: Rows of the arena, int64 [].
    """
    lane = tl.arange(0, TOGETHER)
    inside = begin + lane < count
    row = first + begin + lane
    of_row = tl.load(ids + row, mask=inside, other=-1)
    held = of_row >= 0
    source = rows + tl.where(held, slots_of(words, of_row), 0) * ROW_BYTES
    found = 0
    if PIECES == 1:  # whole words first: what follows is in the cache then
        found = load_words(source, held, ROW_BYTES, ROW_WORDS)
    copy_fields(
        frames,
        frame_words,
        source,
        arena,
        row,
        inside,
        held,
        total,
        piece,
        FIELDS,
        NUM_FIELDS,
        PIECES,
        FRAME_BYTES,
    )
    if PIECES == 1:
        target, pitch, taken = place_words(tl.arange(0, ROW_WORDS), total, FIELDS, NUM_FIELDS)
        place = (target + (first + begin) * pitch)[None, :] + lane[:, None] * pitch[None, :]
        tl.store(arena.to(WORDS) + place, found, mask=inside[:, None] & taken[None, :])
