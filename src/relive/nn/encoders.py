"""From an observation of any kind to one vector of features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from relive.errors import ConfigError
from relive.nn.conv import ConvEncoder, sides

if TYPE_CHECKING:
    from relive.batch import Observation
    from relive.fields import Field, Fields

SMALLEST_IMAGE = 3  # pixels a side that the smallest convolution needs


class Encoder(Protocol):
    """A module from observations to features `[B, out_features]`."""

    out_features: int

    def forward(self, obs: Any) -> Tensor:
        """Features `[B, out_features]` of a batch of observations."""
        ...


def encoder_for(obs: Field | Fields, generator: torch.Generator) -> Encoder:
    """The encoder of an observation.

    Images are convolved, other arrays flattened; the entries of a dict are encoded one by one and
    laid beside each other.

    Args:
        obs: The field of the observation, or a mapping of fields, nested or not.
        generator: Draws the first weights.

    Raises:
        ConfigError: An observation that is one whole number: its size would count as a quantity.
    """
    if isinstance(obs, Mapping):
        encoders = {}
        for name, field in obs.items():
            try:
                encoders[name] = encoder_for(field, generator)
            except ConfigError as error:
                raise ConfigError(f"{name}: {error}") from None
        return DictEncoder(encoders)
    if obs.shape == () and not obs.dtype.is_floating_point:
        raise ConfigError(
            f"an observation that is one number of type {obs.dtype} names a state, it measures "
            "nothing: give it one-hot (gymnasium.wrappers.FlattenObservation does so)"
        )
    if len(obs.shape) == 3 and min(sides(obs.shape)) >= SMALLEST_IMAGE:
        return ConvEncoder(obs.shape, obs.dtype, generator)
    return FlatEncoder(obs)


class FlatEncoder(nn.Module):
    """Rows of floats from arrays of any shape and dtype: `[B, *shape] -> [B, out_features]`."""

    def __init__(self, field: Field) -> None:
        super().__init__()
        self.out_features = math.prod(field.shape)

    def forward(self, obs: Tensor) -> Tensor:
        """Features `[B, out_features]`; no copy where `obs` is a float matrix already."""
        obs = obs.float()
        return obs if obs.ndim == 2 else obs.reshape(obs.shape[0], -1)


class DictEncoder(nn.Module):
    """The features of every entry beside each other, in the order of the fields."""

    def __init__(self, encoders: Mapping[str, Encoder]) -> None:
        super().__init__()
        self.names = list(encoders)
        self.encoders = nn.ModuleList(encoders.values())  # type: ignore[arg-type]  # all are modules
        self.out_features = sum(encoder.out_features for encoder in encoders.values())

    def forward(self, obs: Mapping[str, Observation]) -> Tensor:
        """Features `[B, out_features]` of a dict of observations."""
        return torch.cat(
            [encode(obs[name]) for name, encode in zip(self.names, self.encoders, strict=True)], 1
        )
