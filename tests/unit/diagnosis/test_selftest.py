"""The self-test: passes on what is right, and finds what is wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive.buffer import ReplayBuffer
from relive.diagnosis import selftest
from relive.diagnosis.selftest import CASES, FALSE_ALARM, Case, checks_of, filled, p_value

if TYPE_CHECKING:
    from relive.batch import Batch

WHAT = ["frequencies", "definition", "invariants", "save and load"]
BY_NAME = {case.name: case for case in CASES}
NAMES = list(BY_NAME)


def failed(case: Case, seed: int = 0) -> list[str]:
    return [check.what for check in checks_of(case, seed) if check.ok is False]


@pytest.mark.parametrize("name", NAMES)
def test_a_right_buffer_passes(name: str) -> None:
    checks = list(checks_of(BY_NAME[name], 0))
    assert [(check.what, check.ok) for check in checks] == [(what, True) for what in WHAT]
    assert "0/640 rows" in checks[1].seen


@pytest.mark.parametrize("name", NAMES)
def test_draws_that_are_off_by_a_tenth_are_found(name: str) -> None:
    case = BY_NAME[name]
    tilted = np.where(np.arange(selftest.ROWS) % 2, 0.9, 1.1)
    wrong = replace(case, weights=lambda errors: case.weights(errors) * tilted)
    assert failed(wrong) == ["frequencies"]


def test_a_row_that_must_not_be_drawn_is_found() -> None:
    wrong = replace(BY_NAME["window"], window=None)
    assert failed(wrong) == ["frequencies"]


def test_kernels_unlike_their_definition_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def reward_changed(self: ReplayBuffer, *arguments: Any, **options: Any) -> Batch:
        batch = sample(self, *arguments, **options)
        if self._home.settings.kernels == "auto":
            batch.reward[0] += 1e-6
        return batch

    sample = ReplayBuffer.sample
    monkeypatch.setattr(ReplayBuffer, "sample", reward_changed)
    checks = {check.what: check for check in checks_of(BY_NAME["uniform"], 0)}
    assert checks["definition"].ok is False
    assert checks["definition"].seen.startswith("20/640 rows")


def test_a_broken_tree_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> ReplayBuffer:
        buffer = fill(*arguments)
        if len(arguments) == 2:
            buffer._state.sums[0] += 1
        return buffer

    fill = filled
    monkeypatch.setattr(selftest, "filled", broken)
    assert "invariants" in failed(BY_NAME["proportional"])


def test_a_save_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(ReplayBuffer, "save", full_disk)
    check = list(checks_of(BY_NAME["uniform"], 0))[-1]
    assert (check.ok, check.seen) == (False, "no space left")


def test_without_kernels_nothing_can_be_tested_and_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    (check,) = checks_of(BY_NAME["rank"], 0)
    assert (check.what, check.ok) == ("kernels", None)
    assert check.seen.startswith("NUMBA_DISABLE_JIT is set")


def test_other_seeds_draw_other_rows_and_pass_too() -> None:
    seen = {next(iter(checks_of(BY_NAME["proportional"], seed))).seen for seed in range(3)}
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("counts", "weights", "p"),
    [
        ([100, 100], [1, 1], 1.0),
        ([110, 90], [1, 1], 0.157299),  # chi-square 2, one degree of freedom
        ([90, 100, 110], [1, 1, 1], 0.367879),  # chi-square 2, two: e^-1
        ([300, 100], [3, 1], 1.0),
        ([400, 0], [3, 0], 1.0),
        ([399, 1], [3, 0], 0.0),
        ([996, 2, 2], [996, 2, 2], 1.0),  # the rare ones are taken together
    ],
)
def test_the_p_value_is_pearsons(counts: list[int], weights: list[float], p: float) -> None:
    found = p_value(np.array(counts, float), np.array(weights, float))
    assert found == pytest.approx(p, abs=1e-6)


def test_p_values_of_right_draws_are_spread_evenly() -> None:
    draw = np.random.default_rng(5)
    weights = draw.random(40) + 0.1
    shares = weights / weights.sum()
    ps = [p_value(draw.multinomial(20_000, shares).astype(float), weights) for _ in range(400)]
    assert min(ps) > FALSE_ALARM
    counts, _ = np.histogram(ps, bins=10, range=(0, 1))
    halves = torch.tensor([9, ((counts - 40) ** 2 / 40).sum()], dtype=torch.float64) / 2
    assert float(torch.special.gammaincc(halves[0], halves[1])) > FALSE_ALARM
