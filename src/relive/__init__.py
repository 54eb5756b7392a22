"""Experience replay that lives on your device, for PyTorch off-policy reinforcement learning."""

from relive.batch import Batch
from relive.buffer import ReplayBuffer
from relive.errors import (
    ConfigError,
    CorruptError,
    InputError,
    MissingExtraError,
    NotReadyError,
    ReliveError,
    UnsupportedError,
)
from relive.fields import Field, fields_of
from relive.sampling import Proportional, Uniform
from relive.schedules import Linear
from relive.storage.memory import MemoryPlan, plan
from relive.warmup import warm_up

__all__ = [
    "Batch",
    "ConfigError",
    "CorruptError",
    "Field",
    "InputError",
    "Linear",
    "MemoryPlan",
    "MissingExtraError",
    "NotReadyError",
    "Proportional",
    "ReliveError",
    "ReplayBuffer",
    "Uniform",
    "UnsupportedError",
    "fields_of",
    "plan",
    "warm_up",
]
