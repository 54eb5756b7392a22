"""Priorities: late, huge, bad, of any type, read and written back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from relive import InputError, Proportional, RankBased, Recent, ReplayBuffer
from relive.ops import words as w
from tests.faults.tagged import FIELDS, drawn, leaves, prioritized, root, rows, share, write


def test_F05_a_late_priority_for_an_overwritten_row_is_skipped_and_counted(kernels: str) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    kept = buffer.sample(8).ids
    kept = kept[kept == 0][:1]
    write(buffer, [4])  # takes slot 0
    buffer.update_priorities(kept, [100.0])
    assert leaves(buffer) == [1, 1, 1, 1]
    assert share(buffer, 4) == 0.25
    assert buffer.stats()["stale_updates"] == 1


def test_F05_a_row_that_comes_after_the_update_has_the_priority_of_new_rows(kernels: str) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    buffer.update_priorities([0], [100.0])
    buffer.update_priorities([1], [0.5])
    write(buffer, [4])
    assert leaves(buffer) == [0.5, 1, 1, 100]


def test_F05_a_late_priority_for_a_row_that_was_cleared_is_skipped(kernels: str) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    buffer.clear()
    write(buffer, [4])
    buffer.update_priorities([0, 3], [100.0, 100.0])
    assert leaves(buffer) == [1]
    assert buffer.stats()["stale_updates"] == 2


def after_an_outlier(kernels: str, new_priority: str) -> Any:
    buffer = write(prioritized(4, kernels, new_priority=new_priority), range(4))
    buffer.update_priorities([0, 1, 2, 3], [1000, 0.1, 0.1, 0.1])
    write(buffer, range(4, 8))
    buffer.update_priorities([4, 5, 6, 7], [0.1] * 4)
    return write(buffer, [8])


def test_F26_max_current_comes_down_with_the_rows(kernels: str) -> None:
    buffer = after_an_outlier(kernels, "max_current")
    assert share(buffer, 8) == pytest.approx(0.25)


def test_F26_max_seen_stays_until_the_buffer_is_cleared(kernels: str) -> None:
    buffer = after_an_outlier(kernels, "max_seen")
    assert share(buffer, 8) == pytest.approx(1000 / 1000.3)
    buffer.clear()
    write(buffer, [9, 10])
    assert leaves(buffer) == [1, 1]


def test_F26_max_current_does_not_hand_an_outlier_on_to_the_row_that_overwrites_it(
    kernels: str,
) -> None:
    buffer = write(prioritized(4, kernels, new_priority="max_current"), range(4))
    buffer.update_priorities([0, 1, 2, 3], [1000, 0.1, 0.1, 0.1])
    write(buffer, [4])  # the row of leaf 1000 is gone: the largest that lives is 0.1
    assert leaves(buffer) == pytest.approx([0.1] * 4)


def test_F27_alpha_is_applied_once(kernels: str) -> None:
    buffer = write(prioritized(4, kernels, alpha=0.5), [0])
    buffer.update_priorities([0], [16.0])
    write(buffer, [1])
    assert leaves(buffer) == [4, 4]
    assert [share(buffer, row_id) for row_id in (0, 1)] == [0.5, 0.5]
    buffer.update_priorities([0], [4.0])
    buffer.update_priorities([0], priorities=buffer.priorities([0]))
    assert leaves(buffer) == [2, 4]


def test_F27_writing_back_what_was_read_changes_nothing(kernels: str) -> None:
    buffer = write(prioritized(8, kernels), range(4))
    buffer.update_priorities([0], [0.25])  # the others still have the 1 of rows before any update
    tree = [tensor.clone() for tensor in (buffer._state.leaves, buffer._state.sums)]
    largest = buffer.stats()["max_priority"]
    ids = buffer.live_ids()
    buffer.update_priorities(ids, priorities=buffer.priorities(ids))
    assert all(map(torch.equal, tree, (buffer._state.leaves, buffer._state.sums)))
    assert buffer.stats()["max_priority"] == largest
    write(buffer, [4])
    assert leaves(buffer) == [0.25, 1, 1, 1, 0.25]


def test_F28_the_priority_of_new_rows_is_not_rounded(kernels: str) -> None:
    buffer = write(prioritized(8, kernels), range(4))
    buffer.update_priorities([0, 1, 2, 3], [0.4] * 4)
    write(buffer, [4])
    assert leaves(buffer) == pytest.approx([0.4] * 5)
    assert share(buffer, 4) == pytest.approx(0.2)


TYPES = {
    "list": list,
    "tuple": tuple,
    "float64": lambda x: torch.tensor(x, dtype=torch.float64),
    "float32": lambda x: torch.tensor(x, dtype=torch.float32),
    "float16": lambda x: torch.tensor(x, dtype=torch.float16),
    "bfloat16": lambda x: torch.tensor(x, dtype=torch.bfloat16),
    "NumPy float64": lambda x: np.array(x, np.float64),
    "NumPy float16": lambda x: np.array(x, np.float16),
    "requires grad": lambda x: torch.tensor(x, requires_grad=True),
    "not contiguous": lambda x: torch.tensor([x, x]).T[:, 0],
    "every other of an array": lambda x: np.repeat(x, 2)[::2],
}
PRECISION = {"float16": 2**-11, "NumPy float16": 2**-11, "bfloat16": 2**-8}


@pytest.mark.parametrize("kind", TYPES)
def test_F28_errors_of_any_type_are_taken_to_their_precision(kernels: str, kind: str) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    errors = [0.4, -1.7, 300.5, 1e-3]
    buffer.update_priorities([0, 1, 2, 3], TYPES[kind](errors))
    expected = [abs(error) for error in errors]
    assert leaves(buffer) == pytest.approx(expected, rel=PRECISION.get(kind, 6e-8))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.uint8])
def test_F28_whole_numbers_are_errors_too(kernels: str, dtype: torch.dtype) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    buffer.update_priorities([0, 1, 2, 3], torch.tensor([0, 1, 2, 100], dtype=dtype))
    assert leaves(buffer) == [0, 1, 2, 100]


def test_F33_sampling_leaves_no_marks(kernels: str) -> None:
    buffer = write(prioritized(10, kernels, n_step=3), range(25))
    buffer.update_priorities(buffer.live_ids(), np.arange(10) / 3)
    state = buffer._state
    before = {name: tensor.clone() for name, tensor in state.tensors().items()}
    for _ in range(1000 if kernels == "cpu" else 50):
        buffer.sample(32)
    for name in ("rows", "pending", "lanes", "leaves", "sums", "mins", "maxs"):
        assert torch.equal(before[name], getattr(state, name)), name
    assert before["words"][w.TOTAL] == state.words[w.TOTAL]


@pytest.mark.parametrize("fraction", [0.3, None])
@pytest.mark.parametrize("sampler", [Proportional(uniform_share=0.2), RankBased(resort_every=1)])
def test_F33_neither_windows_nor_demonstrations_nor_ranges_leave_marks(
    kernels: str, sampler: Proportional | RankBased, fraction: float | None
) -> None:
    window = Recent(eta=0.99, c_min=2, updates=5)
    buffer = ReplayBuffer(
        10, FIELDS, sampler=sampler, window=window, demo_fraction=fraction, kernels=kernels
    )
    write(buffer, range(3))
    buffer.pin_demonstrations(3, reserve=1)
    buffer.pin([1])
    write(buffer, range(3, 25))
    buffer.update_priorities(buffer.live_ids(), np.arange(10) / 3)
    state = buffer._state
    before = {name: tensor.clone() for name, tensor in state.tensors().items()}
    for _ in range(1000 if kernels == "cpu" else 20):
        buffer.sample(32)
        buffer.sample_range(8, 1, 24)
    for name in ("rows", "pending", "lanes", "leaves", "errors", "sums", "mins", "maxs"):
        assert torch.equal(before[name], getattr(state, name)), name
    assert before["words"][w.TOTAL] == state.words[w.TOTAL]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("how", ["td_errors", "priorities"])
def test_F37_a_bad_error_keeps_the_leaf_and_is_counted(kernels: str, bad: float, how: str) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    buffer.update_priorities([0, 1], **{how: [bad, 2.0]})
    assert leaves(buffer) == [1, 2, 1, 1]
    assert root(buffer) == 5
    assert buffer.stats()["bad_priorities"] == 1
    batch = buffer.sample(1000)
    assert set(batch.ids.tolist()) == {0, 1, 2, 3}
    assert batch.weights.isfinite().all()
    buffer.update_priorities([0], [1.5])
    assert root(buffer) == 5.5


def test_F37_a_bad_error_may_take_the_largest_leaf_instead(kernels: str) -> None:
    buffer = write(prioritized(4, kernels, bad_priority="max"), range(4))
    buffer.update_priorities([0, 1, 2], [3.0, 0.5, math.nan])
    assert leaves(buffer) == [3, 0.5, 1, 1]  # 1: nothing larger before this call
    buffer.update_priorities([1], [math.inf])
    assert leaves(buffer) == [3, 3, 1, 1]
    assert buffer.stats()["bad_priorities"] == 2


def test_F37_a_bad_error_may_be_refused_and_nothing_changes(kernels: str) -> None:
    buffer = write(prioritized(4, kernels, bad_priority="raise"), range(4))
    with pytest.raises(InputError, match="NaN or infinite"):
        buffer.update_priorities([0, 1], [2.0, math.nan])
    assert leaves(buffer) == [1, 1, 1, 1]
    assert root(buffer) == 4
    assert buffer.stats()["priority_updates"] == 0


def test_F37_a_negative_priority_is_a_bad_one_and_a_negative_error_is_not(kernels: str) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    buffer.update_priorities([0, 1], priorities=[-2.0, 0.0])
    buffer.update_priorities([2], [-2.0])
    assert leaves(buffer) == [1, 0, 2, 1]
    assert buffer.stats()["bad_priorities"] == 1


@pytest.mark.parametrize(("error", "leaf"), [(3e38, 2.0**40), (1e-38, 2.0**-40)])
def test_F38_huge_and_tiny_errors_are_clamped_counted_and_drawn_alike(
    kernels: str, error: float, leaf: float
) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    buffer.update_priorities([0, 1, 2, 3], [error] * 4)
    assert leaves(buffer) == [leaf] * 4
    assert root(buffer) == 4 * leaf
    assert buffer.stats()["clamped_priorities"] == 4
    counts = drawn(buffer, 10_000)
    assert all(count == pytest.approx(2500, abs=200) for count in counts.values())
    buffer.check()


def test_F38_the_tree_is_right_again_after_an_infinite_error(kernels: str) -> None:
    buffer = write(prioritized(4, kernels, bad_priority="max"), range(4))
    buffer.update_priorities([0], [math.inf])
    buffer.update_priorities([0], [1.0])
    assert root(buffer) == 4
    assert leaves(buffer) == [1, 1, 1, 1]


def test_F38_the_last_of_several_errors_for_a_row_decides(kernels: str) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    buffer.update_priorities([1, 2, 1, 2, 1, 3], [9, 8, 7, 6, 5, math.nan])
    assert leaves(buffer) == [1, 5, 6, 1]
    assert root(buffer) == 13
    buffer.update_priorities([1, 1], [4, math.nan])  # the last is bad: the old leaf stays
    assert leaves(buffer) == [1, 5, 6, 1]
    buffer.check()


def test_F38_a_leaf_of_zero_is_never_drawn_and_comes_back(kernels: str) -> None:
    buffer = prioritized(40, kernels)
    buffer.extend(**rows(range(40)))
    odd = np.arange(1, 40, 2)
    buffer.update_priorities(odd, np.zeros(20))
    assert not set(drawn(buffer, 10_000)) & set(odd)
    buffer.update_priorities([1], [1.0])
    assert 1 in drawn(buffer, 10_000)


def test_F37_what_a_bad_number_asks_for_is_not_the_largest_ever_set(kernels: str) -> None:
    buffer = write(prioritized(8, kernels, bad_priority="max"), range(4))
    buffer.update_priorities([0], [float("nan")])
    assert buffer.stats()["max_priority"] is None
    buffer.update_priorities([0, 1, 2, 3], [0.1] * 4)
    write(buffer, [4])
    assert leaves(buffer) == pytest.approx([0.1] * 5)
