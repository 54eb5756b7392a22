"""Which rows a batch is made of: the weightings."""

from relive.sampling.proportional import Proportional
from relive.sampling.uniform import Uniform

Sampler = Uniform | Proportional

__all__ = ["Proportional", "Sampler", "Uniform"]
