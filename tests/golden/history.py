"""A short history of a buffer whose draws every backend and every version must reproduce.

`python -m tests.golden.history` writes the file anew: only when results are meant to change, and
then the change log says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relive import Field, Linear, Proportional, ReplayBuffer, Uniform
from relive.ops import words as w

FILE = Path(__file__).parent / "history.json"
SAMPLERS = {
    "uniform": Uniform(),
    "stratified": Proportional(beta=Linear(0.4, 1.0, 20)),
    "independent": Proportional(alpha=1.0, normalize=None, stratified=False, beta=0.7),
    "batch, max current": Proportional(
        alpha=0.7, beta=1.0, normalize="batch", new_priority="max_current", bad_priority="max"
    ),
}
CAPACITY, ENVS, STEPS, BATCH = 50, 2, 60, 8


def steps(t: int) -> dict[str, Any]:
    """Step t of both environments, from whole numbers only."""
    number = ENVS * t + np.arange(ENVS)
    return {
        "obs": np.float32(number),
        "action": number % 5,
        "reward": np.float32(number * 7 % 13 - 6),
        "next_obs": np.float32(number + 0.5),
        "terminated": number % 11 == 10,
        "truncated": number % 17 == 16,
    }


def td_errors(t: int) -> torch.Tensor:
    """Errors from -2^12 to 2^12, one of them now and then no number."""
    number = 31 * t + 17 * torch.arange(BATCH)
    errors = (number % 101 - 50) / 8.0 * 2.0 ** (number % 19 - 9)
    return torch.where(number % 53 == 0, torch.nan, errors)


def bits(tensor: torch.Tensor) -> list[str]:
    """Float32 numbers as the eight hexadecimal digits of their bits."""
    return [f"{number & 0xFFFFFFFF:08x}" for number in tensor.view(torch.int32).tolist()]


def history(name: str, kernels: str, device: str = "cpu") -> dict[str, Any]:
    """What is drawn, and where the tree stands at the end."""
    buffer = ReplayBuffer(
        CAPACITY,
        {"obs": Field(), "action": Field((), torch.int64)},
        sampler=SAMPLERS[name],
        num_envs=ENVS,
        n_step=3,
        gamma=0.9,
        autoreset="disabled",
        device=device,
        seed=20_241_129,
        kernels=kernels,
    )
    batches = []
    for t in range(STEPS):
        buffer.add(**steps(t))
        if t == 40:
            buffer.clear()
        if t % 3 == 2 and buffer.ready():
            batch = buffer.sample(BATCH, train=t % 2 == 0).to("cpu")
            drawn = {"ids": batch.ids.tolist()}
            drawn |= {key: bits(batch[key]) for key in ("weights", "reward", "discount")}
            batches.append(drawn)
            if buffer.prioritized:
                buffer.update_priorities(batch.ids, td_errors(t))
    ends = {"scale": buffer._state.word(w.SCALE), "total": buffer._state.word(w.TOTAL)}
    return {"batches": batches, **(ends if buffer.prioritized else {})}


def main() -> None:
    """Write the file from the reference."""
    lines = []
    for name in SAMPLERS:
        found = history(name, "reference")
        batches = ",\n".join(f"    {json.dumps(batch)}" for batch in found.pop("batches"))
        ends = json.dumps(found)[1:-1]
        lines.append(f'"{name}": {{{ends}{"," if ends else ""} "batches": [\n{batches}\n  ]}}')
    FILE.write_text("{\n  " + ",\n  ".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
