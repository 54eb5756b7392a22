"""Convolutional encoders for images."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from relive.errors import ConfigError
from relive.nn.mlp import fill_uniform, without_values


@dataclass(frozen=True, slots=True)
class Conv:
    """One convolution, without padding, followed by a ReLU."""

    channels: int
    kernel: int
    stride: int


NATURE = (Conv(32, 8, 4), Conv(64, 4, 2), Conv(64, 3, 1))
"""Mnih et al. 2015, for images of 36 x 36 and larger."""

MINATAR = (Conv(16, 3, 1),)
"""Young & Tian 2019, for the 10 x 10 images of MinAtar."""


def are_channels_last(shape: tuple[int, ...]) -> bool:
    """Whether the last axis of an image is its channels, and not the first."""
    return shape[-1] < shape[0]


def sides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Height and width of an image."""
    return shape[:2] if are_channels_last(shape) else shape[1:]


class ConvEncoder(nn.Module):
    """Images to features: `[B, *shape] -> [B, out_features]`.

    The channel axis is the shorter of the first and the last one: (4, 84, 84) and (84, 84, 4)
    both work. Bytes are divided by 255; booleans and floats are taken as they are.

    Args:
        shape: Of one image, with its channels.
        dtype: Of the images.
        generator: Draws the first weights.

    Attributes:
        out_features: Width of the output.

    Raises:
        ConfigError: The channel axis is ambiguous.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
    ) -> None:
        super().__init__()
        if shape[0] == shape[-1]:
            raise ConfigError(
                f"an image of shape {shape} does not tell which axis holds its channels: "
                "expected the first or the last axis to be the shorter one"
            )
        self.channels_last = are_channels_last(shape)
        channels, (height, width) = shape[-1 if self.channels_last else 0], sides(shape)
        self.scale = 1.0 / 255.0 if dtype == torch.uint8 else 1.0
        table = NATURE if min(height, width) >= 36 else MINATAR
        layers: list[nn.Module] = []
        for before, conv in itertools.pairwise((Conv(channels, 0, 0), *table)):
            layer = without_values(
                nn.Conv2d, before.channels, conv.channels, conv.kernel, conv.stride
            )
            fill_uniform(layer, fan_in=before.channels * conv.kernel**2, generator=generator)
            layers += [layer, nn.ReLU(inplace=True)]
            height, width = (1 + (size - conv.kernel) // conv.stride for size in (height, width))
        self.layers = nn.Sequential(*layers, nn.Flatten())
        self.out_features = math.prod((table[-1].channels, height, width))

    def forward(self, images: Tensor) -> Tensor:
        """Features `[B, out_features]` of images `[B, *shape]`."""
        if self.channels_last:
            images = images.movedim(-1, 1)
        features: Tensor = self.layers(images.float() * self.scale)
        return features
