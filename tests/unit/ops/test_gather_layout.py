"""How rows are cut into programs: every number of every field is copied once."""

from __future__ import annotations

import pytest
import torch

from relive import Field
from relive.batch import BatchLayout
from relive.ops.gather.layout import AS_WORDS, PIECE, SHORT, TILE_WORDS, gather_layout, unit_of
from relive.storage.memory import layouts
from relive.storage.ring import column_words

ROWS = {
    "flat": {"obs": Field((17,)), "action": Field((6,))},
    "bytes": {"obs": Field((301,), torch.uint8), "action": Field((), torch.int64)},
    "images": {"obs": Field((4, 84, 84), store=torch.uint8), "action": Field((), torch.int64)},
    "small stacks": {"obs": Field((3, 5), torch.int16, stack=3), "action": Field()},
    "stacks": {"obs": Field((4, 84, 84), store=torch.uint8, stack=4), "action": Field()},
    "long": {"obs": Field((9000,)), "action": Field((5,), torch.int16)},
}


def cut(fields):
    step, row = layouts(fields, "cuda")
    columns = BatchLayout(step).gathered
    words = [list(column_words(column, row.columns[column.name])) for column in columns]
    return gather_layout(row.row_bytes, words)


@pytest.mark.parametrize("fields", ROWS.values(), ids=ROWS)
def test_the_pieces_of_a_field_cover_it_once(fields):
    layout = cut(fields)
    taken = []
    for field in layout.fields:
        frames = field.stack or 1
        numbers = field.nbytes // field.unit // frames
        pieces = range(field.piece, field.piece + field.parts)
        assert numbers * field.unit * frames == field.nbytes
        assert field.parts == frames * -(-numbers // field.span)
        assert field.span == PIECE if field.piece else field.parts == frames
        taken += [piece for piece in pieces if field.piece > 0]
    assert sorted(taken) == list(range(1, layout.pieces))


@pytest.mark.parametrize(
    ("offset", "nbytes", "unit"),
    [(0, 4, 4), (24, 68, 4), (22, 28224, 2), (21, 1, 1), (20, 2, 2), (8, 3, 1), (4, 6, 2)],
)
def test_a_field_is_read_by_the_most_bytes_that_fit(offset, nbytes, unit):
    assert unit_of(offset, nbytes) == unit


def test_whole_words_of_a_short_row_go_together():
    kinds = [field.kind == AS_WORDS for field in cut(ROWS["flat"]).fields]
    assert kinds == [True, True, False, False, True, True, True]  # all but the two flags


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("count", [1, 2, 3, 256, 1 << 15, 1 << 20])
def test_a_tile_is_a_power_of_two_of_rows_and_fits(name, count):
    layout = cut(ROWS[name])
    rows, tiles = layout.tile(count)
    assert rows & (rows - 1) == 0
    assert rows * layout.row_words <= TILE_WORDS
    assert rows * tiles < 2 * count
    assert (rows, tiles) == (1, 1) or (layout.row_bytes <= SHORT and layout.pieces == 1)
    for field in layout.fields:
        assert not field.stack or rows * field.span * field.unit <= 4 * TILE_WORDS
