"""Running an agent: settings, the loop, evaluation, and those who listen."""

from relive.agents.policy import load_policy, save_policy
from relive.training.config import ReplayConfig, TrainConfig
from relive.training.demonstrations import DemosConfig
from relive.training.evaluate import evaluate, evaluation_seeds
from relive.training.loop import Trainer, train
from relive.training.parts import Parts, build
from relive.training.presets import PRESETS, REFERENCES, preset
from relive.training.run import RunResult, resume, run
from relive.training.sinks import JsonLines, Sink, TensorBoard
from relive.training.video import Video

__all__ = [
    "PRESETS",
    "REFERENCES",
    "DemosConfig",
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
