"""Importance weights where rows are drawn from a window, two parts or a uniform share.

Of a part of n rows with leaves l_i, at a uniform share s:

    P(i) = (1 - s) l_i / sum(l) + s / n          weight_i = (n P(i))^-beta / normaliser

With mixture weights n counts the rows of both parts, and P(i) is multiplied by the share of the
draws that the part has. The normaliser "buffer" is the largest such weight of a row with a positive
leaf in a part that is drawn from, "batch" the largest of the batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relive import Proportional, RankBased, Recent, ReplayBuffer
from tests.faults.tagged import FIELDS, write

BETA, CLIP = 0.7, 1.75
ADDED = 2**62
ERRORS = np.random.default_rng(0).permutation(np.linspace(0.2, 6.0, 30)).round(3)
SHARES = [0.0, 0.3, 1.0]
NORMALIZERS = ["buffer", "batch", None]
WINDOWS = {None: 11, Recent(4): 4, Recent(eta=0.6, c_min=1, updates=1000): 6}  # 11 * .6 = 6.6
MIXTURES = {  # share of demonstrations (None: one pool), mixture weights
    "none pinned": (0.5, False),
    "halves": (0.5, False),
    "a quarter, mixture": (0.25, True),
    "all, mixture": (1.0, True),
    "no demonstration": (0.0, False),
    "one pool": (None, False),
    "one pool, mixture": (None, True),
}


def made(kernels: str, kind: type, mixture: str, window: Any, **sampler: Any) -> ReplayBuffer:
    """Capacity 16 and 27 rows: four demonstrations and a copy, and a ring that has wrapped."""
    fraction, mixture_weights = MIXTURES[mixture]
    settings = {"beta": BETA, "weight_clip": CLIP, "mixture_weights": mixture_weights}
    if kind is RankBased:
        settings |= {"alpha": 0.7, "resort_every": 1}
    else:
        settings |= {"alpha": 1.0, "eps": 0.0}
    buffer = ReplayBuffer(
        16 if mixture != "none pinned" else 11,
        FIELDS,
        sampler=kind(**settings | sampler),
        window=window,
        demo_fraction=fraction,
        kernels=kernels,
    )
    if mixture != "none pinned":
        write(buffer, range(4))
        buffer.pin_demonstrations(4, reserve=1)
        buffer.pin([2])
    write(buffer, range(4, 27))
    buffer.update_priorities(buffer.live_ids(), ERRORS[: len(buffer)])
    return buffer


def leaves_by_id(buffer: ReplayBuffer) -> dict[int, float]:
    ids = buffer.live_ids().tolist()
    errors = dict(zip(ids, ERRORS.tolist(), strict=False))
    if isinstance(buffer.sampler, RankBased):
        by_rank = sorted(ids, key=errors.__getitem__, reverse=True)
        return {row_id: (rank + 1) ** -0.7 for rank, row_id in enumerate(by_rank)}
    return {row_id: np.float64(np.float32(errors[row_id])) for row_id in ids}


def parts_of(buffer: ReplayBuffer, mixture: str, rows: int) -> list[tuple[float, list[int]]]:
    """Share of the draws and ids of each part that is drawn from."""
    ids = buffer.live_ids().tolist()
    pinned = [i for i in ids if i < 4 or i >= ADDED]
    online = [i for i in ids if 4 <= i < ADDED][-rows:]
    fraction, _ = MIXTURES[mixture]
    if fraction is None or not pinned:
        return [(1.0, pinned + online)]
    return [(fraction, pinned), (1.0 - fraction, online)]


def raw_weights(
    parts: list[tuple[float, list[int]]], leaves: dict[int, float], share: float, mixed: bool
) -> dict[int, float]:
    """(n P)^-beta of every row that can be drawn."""
    result = {}
    for drawn, ids in parts:
        if drawn == 0:
            continue
        mass = sum(leaves[i] for i in ids)
        for i in ids:
            P = (1 - share) * leaves[i] / mass + share / len(ids)
            n = len(ids)
            if mixed and len(parts) == 2:
                n = sum(len(other) for _, other in parts)
                P *= drawn
            result[i] = (n * P) ** -BETA
    return result


@pytest.mark.parametrize("kind", [Proportional, RankBased])
@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize("mixture", MIXTURES)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("share", SHARES)
def test_weights_correct_by_the_probabilities_that_rows_were_drawn_with(
    kernels: str, kind: type, normalize: str | None, mixture: str, window: Any, share: float
) -> None:
    buffer = made(kernels, kind, mixture, window, normalize=normalize, uniform_share=share)
    parts = parts_of(buffer, mixture, WINDOWS[window])
    raw = raw_weights(parts, leaves_by_id(buffer), share, MIXTURES[mixture][1])
    batch = buffer.sample(64, train=False)
    ids = batch.ids.tolist()
    assert set(ids) <= set(raw)
    largest = {
        None: 1.0,
        "batch": max(raw[i] for i in ids),
        "buffer": max(raw.values()),
    }[normalize]
    expected = np.array([raw[i] / largest for i in ids])
    assert np.allclose(batch.weights.numpy(), np.minimum(expected, CLIP), rtol=2e-6)
    assert buffer.stats()["clipped_weights"] == (expected > CLIP).sum()


@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize("share", SHARES)
def test_weights_of_a_range_know_the_rows_of_the_range_only(
    kernels: str, normalize: str | None, share: float
) -> None:
    buffer = made(
        kernels, Proportional, "halves", Recent(2), normalize=normalize, uniform_share=share
    )
    ids = [2, 3, 16, 17, 18]
    raw = raw_weights([(1.0, ids)], leaves_by_id(buffer), share, mixed=True)
    batch = buffer.sample_range(64, 2, 19)
    assert set(batch.ids.tolist()) == set(ids)
    largest = 1.0 if normalize is None else max(raw.values())  # all rows come up
    expected = np.array([raw[i] / largest for i in batch.ids.tolist()])
    assert np.allclose(batch.weights.numpy(), np.minimum(expected, CLIP), rtol=2e-6)


def test_a_row_without_priority_comes_up_in_the_uniform_share_only(kernels: str) -> None:
    sampler = {"beta": 1.0, "weight_clip": 100.0, "alpha": 1.0, "eps": 0.0}
    buffers = {}
    for share in (0.0, 0.4):
        buffers[share] = ReplayBuffer(
            10,
            FIELDS,
            sampler=Proportional(normalize=None, uniform_share=share, **sampler),
            kernels=kernels,
        )
        write(buffers[share], range(5))
        buffers[share].update_priorities(range(5), [0.0, 1.0, 1.0, 1.0, 1.0])
    assert 0 not in buffers[0.0].sample(1000).ids.tolist()
    batch = buffers[0.4].sample(5000)
    is_zero = batch.ids == 0
    assert int(is_zero.sum()) == pytest.approx(400, abs=77)  # .4 / 5, 4 standard deviations
    assert np.allclose(batch.weights[is_zero], 1 / 0.4)
    assert np.allclose(batch.weights[~is_zero], 1 / (5 * (0.6 / 4 + 0.4 / 5)))


def test_a_uniform_share_of_one_draws_as_if_there_were_no_priorities(kernels: str) -> None:
    sampler = Proportional(alpha=1.0, eps=0.0, uniform_share=1.0)
    buffer = ReplayBuffer(10, FIELDS, sampler=sampler, kernels=kernels)
    write(buffer, range(4))
    buffer.update_priorities(range(4), [1e-6, 1e6, 1.0, 1.0])
    batch = buffer.sample(4000)
    assert batch.ids.bincount().tolist() == pytest.approx([1000] * 4, abs=110)
    assert batch.weights.tolist() == [1] * 4000
