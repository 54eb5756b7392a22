"""Philox in torch operations against the definition, and against Random123's published answers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relive.ops.philox.batched import Philox
from relive.ops.philox.reference import philox

WORD = 2**32 - 1


@pytest.mark.parametrize(
    ("seed", "counter", "stream", "words"),
    [
        (0, 0, 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),  # kat_vectors of Random123
        (-1, -1, WORD, None),
        (-(2**63), 2**63 - 1, 1, None),
    ],
)
def test_known_answers_and_the_corners(seed, counter, stream, words):
    generator = Philox(torch.device("cpu"))
    generator.reseed(seed)
    given_words = generator.words(torch.tensor([counter]), torch.tensor([stream]))
    assert tuple(given_words[:, 0].tolist()) == (words or philox(seed, counter, stream))


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.lists(
        st.tuples(st.integers(-(2**63), 2**63 - 1), st.integers(0, WORD)), min_size=1, max_size=9
    ),
)
def test_each_column_is_the_block_of_its_counter_and_stream(seed, positions):
    generator = Philox(torch.device("cpu"))
    generator.reseed(seed)
    counters, streams = (torch.tensor(numbers) for numbers in zip(*positions, strict=True))
    columns = generator.words(counters, streams).T.tolist()
    assert [tuple(column) for column in columns] == [philox(seed, *where) for where in positions]
