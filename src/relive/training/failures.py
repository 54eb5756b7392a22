"""A run whose GPU fails it goes on on the CPU.

After some errors of CUDA nothing on the device can be read, nor even given back: what lies there is
kept as it is until the process ends, and nobody touches it.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from relive.errors import UnsupportedError
from relive.gpu.failures import is_of_gpu, loses_the_device

if TYPE_CHECKING:
    from relive.training.config import TrainConfig
    from relive.training.parts import Parts


def can_go_on(config: TrainConfig, parts: Parts, error: BaseException) -> bool:
    """Whether an error is that of a GPU which the run can do without.

    That something cannot be captured, where it has to be, is none.
    """
    on_gpu = "cuda" in (parts.agent.device.type, parts.buffer.device.type)
    is_refused = isinstance(error, UnsupportedError) and not loses_the_device(error)
    return on_gpu and is_of_gpu(error) and not is_refused and config.replay.on_failure == "cpu"


def without_gpu(config: TrainConfig) -> TrainConfig:
    """The same run on the CPU."""
    replay = dataclasses.replace(config.replay, device="cpu", rows_on="device")
    return dataclasses.replace(config, device="cpu", capture="auto", replay=replay)
