"""Which rows a batch is made of: weightings, and the window they work in."""

from relive.sampling.proportional import Proportional
from relive.sampling.rank import RankBased
from relive.sampling.recent import Recent
from relive.sampling.uniform import Uniform

Sampler = Uniform | Proportional | RankBased

__all__ = ["Proportional", "RankBased", "Recent", "Sampler", "Uniform"]
