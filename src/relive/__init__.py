"""Experience replay for PyTorch off-policy reinforcement learning.

The public names are imported when they are first asked for, so that `relive --help` does not wait
for PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relive.batch import Batch
    from relive.buffer import ReplayBuffer
    from relive.episode import Episode
    from relive.errors import (
        ConfigError,
        CorruptError,
        DeviceLostError,
        InputError,
        MissingExtraError,
        NotReadyError,
        ReliveError,
        UnsupportedError,
    )
    from relive.fields import Field, fields_of
    from relive.gpu.means import MetricMeans
    from relive.hindsight import Hindsight
    from relive.mixture import Mixture
    from relive.sampling import Proportional, RankBased, Recent, Uniform
    from relive.schedules import Linear
    from relive.storage.memory import MemoryPlan, plan
    from relive.trajectories import TrajectoryStore
    from relive.warmup import warm_up

__all__ = [
    "Batch",
    "ConfigError",
    "CorruptError",
    "DeviceLostError",
    "Episode",
    "Field",
    "Hindsight",
    "InputError",
    "Linear",
    "MemoryPlan",
    "MetricMeans",
    "MissingExtraError",
    "Mixture",
    "NotReadyError",
    "Proportional",
    "RankBased",
    "Recent",
    "ReliveError",
    "ReplayBuffer",
    "TrajectoryStore",
    "Uniform",
    "UnsupportedError",
    "fields_of",
    "plan",
    "warm_up",
]

HOMES = {
    "relive.batch": ["Batch"],
    "relive.buffer": ["ReplayBuffer"],
    "relive.episode": ["Episode"],
    "relive.errors": [name for name in __all__ if name.endswith("Error")],
    "relive.fields": ["Field", "fields_of"],
    "relive.gpu.means": ["MetricMeans"],
    "relive.hindsight": ["Hindsight"],
    "relive.mixture": ["Mixture"],
    "relive.sampling": ["Proportional", "RankBased", "Recent", "Uniform"],
    "relive.schedules": ["Linear"],
    "relive.storage.memory": ["MemoryPlan", "plan"],
    "relive.trajectories": ["TrajectoryStore"],
    "relive.warmup": ["warm_up"],
}


def __getattr__(name: str) -> Any:
    for home, names in HOMES.items():
        if name in names:
            found = globals()[name] = getattr(import_module(home), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
