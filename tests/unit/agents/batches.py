"""Batches made by hand, through a real buffer: agents see nothing else."""

import torch

from relive import Field, ReplayBuffer


def filled_buffer(rows=64, obs=None, num_actions=3, box=None, seed=0, **settings):
    """A buffer with random rows, a fifth of them terminated and a fifth truncated.

    Actions are numbers below `num_actions`, or fill the `box`, (low, high), if there is one.
    """
    obs = obs or Field((4,))
    generator = torch.Generator().manual_seed(seed)
    if box is None:
        action = Field((), torch.int64)
        actions = torch.randint(num_actions, (rows,), generator=generator)
    else:
        low, high = (torch.as_tensor(bound) for bound in box)
        action = Field(tuple(low.shape))
        actions = low + (high - low) * torch.rand(rows, *low.shape, generator=generator)
    buffer = ReplayBuffer(rows, {"obs": obs, "action": action}, **settings)
    buffer.extend(
        obs=values(obs, rows, generator),
        action=actions,
        reward=torch.randn(rows, generator=generator),
        next_obs=values(obs, rows, generator),
        terminated=torch.rand(rows, generator=generator) < 0.2,
        truncated=torch.rand(rows, generator=generator) < 0.2,
    )
    return buffer


def values(field, rows, generator):
    """Random values of a field, or of a dict of fields."""
    if isinstance(field, dict):
        return {name: values(entry, rows, generator) for name, entry in field.items()}
    shape = (rows, *field.shape)
    if field.dtype.is_floating_point:
        return torch.randn(shape, generator=generator)
    high = 2 if field.dtype == torch.bool else 256
    return torch.randint(high, shape, generator=generator).to(field.dtype)
