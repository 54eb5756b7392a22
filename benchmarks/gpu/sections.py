"""All sections in order, with the seconds that each may take: what matters most comes first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.gpu.checks import CHECKS
from benchmarks.gpu.flow import FLOW
from benchmarks.gpu.rivals import rivals
from benchmarks.gpu.speed import SPEED
from benchmarks.gpu.traffic import TRAFFIC
from benchmarks.gpu.training import TRAINING

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from benchmarks.gpu.workload import Scale

SECTIONS: dict[str, Callable[[torch.device, Scale], dict[str, Any]]] = {
    **CHECKS,
    **FLOW,
    "prioritized step": SPEED["prioritized step"],
    **{name: section for name, section in TRAINING.items() if name != "epoch"},
    "rivals": rivals,
    "gather": SPEED["gather"],
    "memory": SPEED["memory"],
    "flatness": SPEED["flatness"],
    **TRAFFIC,
    "epoch": TRAINING["epoch"],
}
NEED_CUDA = {"a captured step goes on", "nothing waits", "streams take turns", "a range moves"}

# Checks compile kernels, on either side, and fill large rings.
SECONDS = {
    "same as the CPU": 120,
    "a life like the CPU's": 120,
    "flatness": 90,
    "training step": 120,
    "epoch": 90,
}
OTHERWISE = 60
