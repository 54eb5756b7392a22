"""Running an agent: settings, the loop, evaluation, and those who listen."""

from typing import TYPE_CHECKING, Any

from relive.agents.policy import load_policy, save_policy
from relive.errors import MissingExtraError
from relive.training.config import ReplayConfig, TrainConfig
from relive.training.demonstrations import DemosConfig
from relive.training.evaluate import evaluate, evaluation_seeds
from relive.training.hindsight import HindsightConfig
from relive.training.loop import Trainer, train
from relive.training.parts import Parts, build
from relive.training.presets import PRESETS, REFERENCES, preset
from relive.training.run import RunResult, resume, run
from relive.training.sinks import JsonLines, Sink, TensorBoard
from relive.training.video import Video

if TYPE_CHECKING:
    from relive.training.console import Console

__all__ = [
    "PRESETS",
    "REFERENCES",
    "Console",
    "DemosConfig",
    "HindsightConfig",
    "JsonLines",
    "Parts",
    "ReplayConfig",
    "RunResult",
    "Sink",
    "TensorBoard",
    "TrainConfig",
    "Trainer",
    "Video",
    "build",
    "evaluate",
    "evaluation_seeds",
    "load_policy",
    "preset",
    "resume",
    "run",
    "save_policy",
    "train",
]


def __getattr__(name: str) -> Any:
    """`Console` needs a package that nothing else here does."""
    if name != "Console":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from relive.training.console import Console
    except ImportError:
        raise MissingExtraError("rich", extra="train") from None
    return Console
