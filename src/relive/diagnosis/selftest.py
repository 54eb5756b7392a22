"""A test of the buffer on this machine: small, but of the real thing.

Every way to draw rows is compared with its probabilities and with its slow definition, checked,
saved and loaded. A frequency test fails a right sampler for one seed in a million.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from relive.buffer import ReplayBuffer
from relive.errors import CorruptError, UnsupportedError
from relive.fields import Field
from relive.sampling import Proportional, RankBased, Recent, Sampler, Uniform

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from relive.batch import Batch

    Numbers = NDArray[np.float64]

FALSE_ALARM = 1e-6  # chance that a right sampler fails, if its seed were changed
ROWS, WRITTEN = 200, 300  # capacity, and rows written: the ring has gone round
WINDOW = 60
DRAWS, BATCH = 100_000, 1000
TURNS = 20  # of add, sample and update beside the definition
FIELDS = {"obs": Field((3,)), "action": Field()}
NAMES = ("obs", "action", "reward", "next_obs", "terminated", "discount", "weights", "ids")
ALPHA, EPS = 0.6, 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was tested, and what was seen.

    Attributes:
        case: The way to draw.
        what: Which property.
        ok: None if it could not be tested.
        seen: The number, or the reason.
    """

    case: str
    what: str
    ok: bool | None
    seen: str


@dataclass(frozen=True, slots=True)
class Case:
    """A way to draw rows, and how probable each of the rows then is, given their errors."""

    name: str
    sampler: Sampler
    window: Recent | None
    weights: Callable[[Numbers], Numbers]


def by_rank(errors: Numbers) -> Numbers:
    """rank^-alpha, rank 1 for the largest error."""
    ranks = np.empty(len(errors))
    ranks[np.argsort(-errors)] = np.arange(1, len(errors) + 1)
    return ranks**-ALPHA


def newest(errors: Numbers) -> Numbers:
    """Proportional among the newest rows, 0 for all others."""
    held = np.arange(len(errors)) >= len(errors) - WINDOW
    return held * (errors + EPS) ** ALPHA


PROPORTIONAL = Proportional(alpha=ALPHA, eps=EPS, stratified=False)
CASES = (
    Case("uniform", Uniform(), None, np.ones_like),
    Case("proportional", PROPORTIONAL, None, lambda errors: (errors + EPS) ** ALPHA),
    Case("rank", RankBased(alpha=ALPHA, resort_every=1, stratified=False), None, by_rank),
    Case("window", PROPORTIONAL, Recent(WINDOW), newest),
)


def selftest(seed: int = 0) -> list[Check]:
    """Every check of every case."""
    return [check for case in CASES for check in checks_of(case, seed)]


def checks_of(case: Case, seed: int) -> Iterator[Check]:
    """The checks of a way to draw."""
    try:
        buffer = filled(case, seed)
    except UnsupportedError as error:
        yield Check(case=case.name, what="kernels", ok=None, seen=str(error))
        return
    for what, test in (
        ("frequencies", frequencies),
        ("definition", definition),
        ("invariants", invariants),
        ("save and load", save_and_load),
    ):
        ok, seen = test(case, buffer, seed)
        yield Check(case=case.name, what=what, ok=ok, seen=seen)


def filled(case: Case, seed: int, kernels: Literal["auto", "reference"] = "auto") -> ReplayBuffer:
    """A full buffer whose rows have been updated, all of them, with errors over some decades."""
    buffer = ReplayBuffer(
        ROWS, FIELDS, sampler=case.sampler, window=case.window, seed=seed, kernels=kernels
    )
    buffer.extend(**steps(WRITTEN, seed))
    if buffer.prioritized:
        buffer.update_priorities(buffer.live_ids(), torch.from_numpy(errors_of(seed)).float())
    return buffer


def steps(count: int, seed: int) -> dict[str, Any]:
    """Random steps."""
    draw = np.random.default_rng(seed)
    return {
        "obs": draw.normal(size=(count, 3)).astype(np.float32),
        "action": draw.normal(size=count).astype(np.float32),
        "reward": draw.normal(size=count).astype(np.float32),
        "next_obs": draw.normal(size=(count, 3)).astype(np.float32),
        "terminated": draw.random(count) < 0.1,
    }


def errors_of(seed: int) -> Numbers:
    """Positive errors that float32 holds, no two alike, oldest row first."""
    found = np.random.default_rng(seed + 1).lognormal(0.0, 1.5, ROWS).astype(np.float32)
    return found.astype(np.float64)


def frequencies(case: Case, buffer: ReplayBuffer, seed: int) -> tuple[bool, str]:
    """How often rows are drawn, beside how often they should be (Pearson's chi-square)."""
    oldest = int(buffer.live_ids()[0])
    counts = np.zeros(ROWS)
    for _ in range(DRAWS // BATCH):
        ids = buffer.sample(BATCH).ids.numpy() - oldest
        counts += np.bincount(ids, minlength=ROWS)
    p = p_value(counts, case.weights(errors_of(seed)))
    return p > FALSE_ALARM, f"p = {p:.2g}"


def p_value(counts: Numbers, weights: Numbers) -> float:
    """The chance of frequencies at least as far off; 0 if a row was drawn that must not be.

    Rows that are expected less than five times are taken together.
    """
    expected = counts.sum() * weights / weights.sum()
    if counts[expected == 0].any():
        return 0.0
    counts, expected = counts[expected > 0], expected[expected > 0]
    rare = expected < 5
    if rare.any():
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    if len(counts) < 2:
        return 1.0
    statistic = float(((counts - expected) ** 2 / expected).sum())
    halves = torch.tensor([len(counts) - 1, statistic], dtype=torch.float64) / 2
    return float(torch.special.gammaincc(halves[0], halves[1]))


def definition(case: Case, _: ReplayBuffer, seed: int) -> tuple[bool, str]:
    """The kernels beside their slow definition: the same seed and calls, bit for bit."""
    both = filled(case, seed), filled(case, seed, "reference")
    more, draw = steps(TURNS, seed + 2), np.random.default_rng(seed + 3)
    differing = 0
    for turn in range(TURNS):
        step = {name: values[turn] for name, values in more.items()}
        errors = torch.from_numpy(draw.lognormal(size=32)).float()
        batches = []
        for buffer in both:
            buffer.add(**step, truncated=False)
            batches.append(buffer.sample(32))
            if buffer.prioritized:
                buffer.update_priorities(batches[-1].ids, errors)
        differing += rows_that_differ(*batches)
    count = 32 * TURNS
    return differing == 0, f"{differing}/{count} rows unlike the definition"


def rows_that_differ(one: Batch, other: Batch) -> int:
    """How many rows of two batches are not the same in every bit."""
    differ = torch.zeros(len(one), dtype=torch.bool)
    for name in NAMES:
        differ |= (one[name] != other[name]).reshape(len(one), -1).any(1)
    return int(differ.sum())


def invariants(_: Case, buffer: ReplayBuffer, __: int) -> tuple[bool, str]:
    """What must always be true of ring and tree."""
    try:
        buffer.check()
    except CorruptError as error:
        return False, str(error)
    return True, "invariants hold"


def save_and_load(_: Case, buffer: ReplayBuffer, __: int) -> tuple[bool, str]:
    """A buffer that is saved and loaded goes on as if it had not been."""
    with tempfile.TemporaryDirectory(prefix="relive-doctor-") as folder:
        path = Path(folder) / "buffer"
        try:
            buffer.save(path)
            loaded = ReplayBuffer.load(path)
        except (OSError, CorruptError) as error:
            return False, str(error)
    same = len(loaded) == len(buffer)
    differing = rows_that_differ(loaded.all(), buffer.all()) if same else len(buffer)
    differing += rows_that_differ(loaded.sample(BATCH), buffer.sample(BATCH))
    return differing == 0, f"{differing} unlike when loaded"
