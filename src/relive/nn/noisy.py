"""Linear layers with noise in their weights (Fortunato et al. 2018, NoisyNet)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from relive.nn.mlp import Layer
    from relive.nn.streams import RandomStream


class NoisyLinear(nn.Module):
    """A linear layer whose weights and bias are learned means and deviations of noise.

        y = (mu_w + sigma_w * e_w) x + mu_b + sigma_b * e_b
        e_w = f(e_out) f(e_in)^T    e_b = f(e_out)    f(e) = sign(e) sqrt(|e|)

    The factorised noise of Fortunato et al. 2018, eq. 9 to 11: F + G normal draws instead of F * G.
    The noise is 0, so that the means act, until `NetworkNoise` draws another.

    Args:
        in_features: Width of the input, F.
        out_features: Width of the output, G.
        generator: Draws the first means, uniform in +-1/sqrt(F).
        sigma: First deviations, times sqrt(F).
    """

    noise_in: Tensor  # f(e_in)
    noise_out: Tensor  # f(e_out)

    def __init__(
        self, in_features: int, out_features: int, generator: torch.Generator, sigma: float = 0.5
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        bound = 1.0 / math.sqrt(in_features)
        shape = out_features, in_features
        means = (
            torch.empty(size, dtype=torch.float32).uniform_(-bound, bound, generator=generator)
            for size in (shape, shape[:1])
        )
        self.weight, self.bias = map(nn.Parameter, means)
        self.weight_sigma = nn.Parameter(torch.full(shape, sigma * bound, dtype=torch.float32))
        self.bias_sigma = nn.Parameter(torch.full(shape[:1], sigma * bound, dtype=torch.float32))
        self.register_buffer(
            "noise_in", torch.zeros(in_features, dtype=torch.float32), persistent=False
        )
        self.register_buffer(
            "noise_out", torch.zeros(out_features, dtype=torch.float32), persistent=False
        )

    def forward(self, x: Tensor) -> Tensor:
        """`[B, out_features]` of `x` `[B, in_features]`."""
        mean = functional.linear(x, self.weight, self.bias)
        # the noise of the weights is an outer product, so it never has to be written out
        spread = functional.linear(x * self.noise_in, self.weight_sigma, self.bias_sigma)
        return mean + spread * self.noise_out


def noisy(sigma: float) -> Layer:
    """What makes noisy layers of one first deviation, in the place of `linear`."""

    def layer(in_features: int, out_features: int, generator: torch.Generator) -> nn.Module:
        return NoisyLinear(in_features, out_features, generator, sigma)

    return layer


class NetworkNoise:
    """The noise of all noisy layers of a network, in one vector: drawn by a handful of kernels.

    The layers keep views of it. Build it once the network is on its device; `network.to(...)` would
    cut the views off.

    Args:
        network: Changed in place: the noise of its layers becomes views, and 0.
    """

    def __init__(self, network: nn.Module) -> None:
        layers = [layer for layer in network.modules() if isinstance(layer, NoisyLinear)]
        sizes = [size for layer in layers for size in (layer.in_features, layer.out_features)]
        like = next(network.parameters())
        self._vector = like.detach().new_zeros(sum(sizes))
        views = iter(torch.split(self._vector, sizes))
        for layer in layers:
            layer.noise_in, layer.noise_out = next(views), next(views)

    def draw(self, stream: RandomStream | None) -> None:
        """Takes new noise from `stream`, on the device of the network; None: noise of 0."""
        noise = self._vector
        if stream is None or not len(noise):
            noise.zero_()
        else:
            normal = stream.normal(len(noise))
            torch.mul(normal.sign(), normal.abs_().sqrt_(), out=noise)


def silence(network: nn.Module) -> None:
    """Gives noisy layers a noise of 0 in memory of their own; a `NetworkNoise` loses its hold."""
    for layer in network.modules():
        if isinstance(layer, NoisyLinear):
            layer.noise_in = torch.zeros_like(layer.noise_in)
            layer.noise_out = torch.zeros_like(layer.noise_out)
