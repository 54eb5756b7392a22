"""Draws of fixed seeds, as data: every kind of sampler, window and share of demonstrations.

`python -m tests.gates.sequences` writes the file anew from the definition: only when results are
meant to change, and then the change log says so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relive import Field, Linear, Proportional, RankBased, Recent, ReplayBuffer, Uniform

FILE = Path(__file__).parent / "sequences.json"
CAPACITY, FIRST, BATCH, SEED = 20, 6, 8, 20_260_101
ROWS = (10, 12, 3)  # written before each batch


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a buffer is made with, and what is drawn from it."""

    sampler: Uniform | Proportional | RankBased = field(default_factory=Uniform)
    window: Recent | None = None
    demo_fraction: Any = 0.5
    pins: bool = False
    call: str = "sample"  # or "sample_range"
    train: bool = True


PLAIN = Proportional(beta=Linear(0.4, 1.0, 4))
CASES = {
    "uniform": Case(),
    "stratified": Case(sampler=PLAIN),
    "independent": Case(sampler=Proportional(alpha=1.0, beta=0.7, stratified=False)),
    "normalised by the batch": Case(sampler=Proportional(beta=1.0, normalize="batch")),
    "not normalised": Case(sampler=Proportional(normalize=None, weight_clip=2.0)),
    "largest that lives": Case(sampler=Proportional(new_priority="max_current")),
    "some of it uniform": Case(sampler=Proportional(uniform_share=0.25, beta=0.5)),
    "by rank": Case(sampler=RankBased(resort_every=2)),
    "newest rows": Case(window=Recent(5)),
    "newest rows by priority": Case(sampler=PLAIN, window=Recent(7)),
    "a sweep": Case(sampler=PLAIN, window=Recent(eta=0.99, c_min=3, updates=2)),
    "two parts": Case(demo_fraction=0.3, pins=True),
    "two parts by priority": Case(
        sampler=Proportional(beta=0.5, demo_bonus=0.25),
        demo_fraction=Linear(0.3, 0.6, 2),
        pins=True,
    ),
    "weights of the mixture": Case(
        sampler=Proportional(beta=0.5, mixture_weights=True), demo_fraction=0.3, pins=True
    ),
    "one pool": Case(sampler=PLAIN, demo_fraction=None, pins=True),
    "a range": Case(sampler=PLAIN, call="sample_range"),
    "not for training": Case(sampler=PLAIN, train=False),
}


def steps(first: int, count: int) -> dict[str, Any]:
    """Rows from whole numbers only."""
    number = np.arange(first, first + count)
    return {
        "obs": np.float32(number),
        "action": number,
        "reward": np.float32(number % 7),
        "next_obs": np.float32(number + 1),
        "terminated": number % 5 == 4,
    }


def errors(at: int) -> np.ndarray:
    """From -2^9 to 2^9."""
    number = 31 * at + 17 * np.arange(BATCH)
    return np.float32((number % 61 - 30) / 8.0 * 2.0 ** (number % 15 - 7))


def bits(tensor: torch.Tensor) -> list[str]:
    """Float32 numbers as the eight hexadecimal digits of their bits."""
    return [f"{number & 0xFFFFFFFF:08x}" for number in tensor.view(torch.int32).tolist()]


def drawn(name: str, place: dict[str, Any]) -> list[dict[str, Any]]:
    """Ids and weights of every batch of a case, from a buffer that lives at a place."""
    case = CASES[name]
    buffer = ReplayBuffer(
        CAPACITY,
        {"obs": Field(), "action": Field((), torch.int64)},
        sampler=case.sampler,
        window=case.window,
        demo_fraction=case.demo_fraction,
        seed=SEED,
        **place,
    )
    written = 0
    if case.pins:
        buffer.extend(**steps(0, FIRST))
        buffer.pin_demonstrations(FIRST)
        written = FIRST
    batches = []
    for number, rows in enumerate(ROWS):
        buffer.extend(**steps(written, rows))
        written += rows
        if case.call == "sample_range":
            batch = buffer.sample_range(BATCH, max(0, written - 22), written - 2)
        else:
            batch = buffer.sample(BATCH, train=case.train)
        batch = batch.to("cpu")
        batches.append({"ids": batch.ids.tolist(), "weights": bits(batch.weights)})
        if buffer.prioritized:
            buffer.update_priorities(batch.ids, errors(number))
    return batches


def main() -> None:
    """Write the file from the definition."""
    parts = []
    for name in CASES:
        found = drawn(name, {"kernels": "reference"})
        batches = ",\n".join(f"    {json.dumps(batch)}" for batch in found)
        parts.append(f"  {json.dumps(name)}: [\n{batches}\n  ]")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
