"""Compiling the kernels before they are needed."""

from __future__ import annotations

import time

import torch

from relive.buffer import ReplayBuffer
from relive.fields import Field
from relive.sampling import Proportional


def warm_up() -> float:
    """Compile every CPU kernel, or load what an earlier process has compiled.

    Buffers of all kinds share the kernels, so once is enough. The first time on a machine takes
    some ten seconds, later ones a fraction of a second; without this call the first calls of a
    buffer take that long.

    Returns:
        The seconds it took.
    """
    start = time.perf_counter()
    buffer = ReplayBuffer(2, {"obs": Field(), "action": Field()}, sampler=Proportional())
    buffer.add(obs=0.0, action=0.0, reward=0.0, next_obs=0.0, terminated=False, truncated=False)
    zeros, never = torch.zeros(1), torch.zeros(1, dtype=torch.bool)
    buffer.extend(obs=zeros, action=zeros, reward=zeros, next_obs=zeros, terminated=never)
    batch = buffer.sample(1)
    buffer.rows(batch.ids)
    buffer.update_priorities(batch.ids, batch.reward)
    return time.perf_counter() - start
