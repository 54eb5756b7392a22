"""A buffer saved in each format that there has been, and what it must draw when it is loaded.

`python -m tests.golden.saved` writes the folder of the present format anew: only when the format
changes, and then under its new number, so that the files of older formats stay.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relive import Field, Linear, Proportional, Recent, ReplayBuffer
from relive.storage.saving import FORMAT

FOLDER = Path(__file__).parent / "saved"


def made() -> ReplayBuffer:
    """A small buffer with a bit of everything."""
    fields = {
        "obs": {"a": Field((2,)), "b": Field((3,), store=torch.uint8)},
        "action": Field((), torch.int64),
    }
    buffer = ReplayBuffer(
        20,
        fields,
        sampler=Proportional(beta=Linear(0.4, 1.0, 50)),
        window=Recent(eta=0.9, c_min=3, updates=10),
        num_envs=2,
        autoreset="disabled",
        n_step=2,
        seed=5,
        track_reuse=True,
    )
    add(buffer, 3)
    buffer.end_episode()
    buffer.pin_demonstrations(6, reserve=2)
    add(buffer, 12)
    buffer.pin(buffer.live_ids()[-1:])
    ids = buffer.sample(6).ids
    buffer.update_priorities(ids, torch.arange(6) / 2)
    return buffer


def add(buffer: ReplayBuffer, steps: int) -> None:
    for _ in range(steps):
        number = buffer.stats()["added"] + np.arange(2)
        obs = {"a": np.stack([number, -number], 1) * 1.0, "b": np.stack([number % 7] * 3, 1) / 255}
        buffer.add(
            obs=obs,
            action=number,
            reward=number * 1.0,
            next_obs=obs,
            terminated=number % 9 == 8,
            truncated=number % 7 == 6,
        )


def seen(buffer: ReplayBuffer) -> dict[str, Any]:
    """What is in it, and what it does next."""
    rows = buffer.all()
    found = {
        "ids": rows.ids.tolist(),
        "rewards": rows.reward.tolist(),
        "a": rows.obs["a"].tolist(),
        "b": (rows.obs["b"] * 255).round().tolist(),
        "discounts": rows.discount.tolist(),
        "priorities": buffer.priorities(rows.ids).tolist(),
        "stats": buffer.stats(),
    }
    add(buffer, 2)
    batch = buffer.sample(8)
    return {**found, "drawn": batch.ids.tolist(), "weights": batch.weights.tolist()}


def main() -> None:
    folder = FOLDER / str(FORMAT)
    buffer = made()
    buffer.save(folder)
    (FOLDER / f"{FORMAT}.json").write_text(json.dumps(seen(buffer), indent=1) + "\n")


if __name__ == "__main__":
    main()
