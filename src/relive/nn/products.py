"""What a linear layer multiplies, in the form that takes the least time; K layers at once, or one.

    K  networks    B  rows of the batch    F  features that go in    G  features that come out

    x  [K, B, F] or [B, F]      W  [K, F, G] or [F, G]      b  [K, 1, G] or [G]
    y = x W + b, of slope s:    by W  x^T s                 by x  s W^T

Critics end in a layer of G = 1. A matrix times a column takes a CPU twice the time of a row times a
matrix, so there all is done transposed; and a product of one term is a multiplication.
"""

from __future__ import annotations

import torch
from torch import Tensor

relu_backward = torch.ops.aten.threshold_backward.grad_input
WHOLE = 64  # numbers; in what is left over of a row `torch._add_relu_` loses NaN


def affine(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
    """What the layer gives: x W + b."""
    if x.ndim == 2:
        return torch.addmm(bias, x, weight, out=out)
    if weight.shape[2] > 1:
        return torch.baddbmm(bias, x, weight, out=out)
    return transposed(torch.baddbmm(bias, transposed(weight), x.mT, out=_transposed(out)))


def rectified(x: Tensor, weight: Tensor, bias: Tensor, out: Tensor | None = None) -> Tensor:
    """The ReLU of x W + b; not for autograd.

    On a CPU the bias is added on the way through the ReLU, not copied to every row before. That is
    the same sum, unless so many features go in that a product adds up its terms in parts (on some
    processors 256 are as many).

    Threads, three say, may part a layer within a row, where a few NaN are lost. What comes of a row
    that is NaN stays it, and what comes of a weight does for all rows but a few.
    """
    if not x.is_cpu or weight.shape[-1] % WHOLE:
        return affine(x, weight, bias, out).relu_()
    product = torch.mm if x.ndim == 2 else torch.bmm
    return torch._add_relu_(product(x, weight, out=out), bias)


def weight_slope(x: Tensor, slope: Tensor, out: Tensor | None = None) -> Tensor:
    """The slope by the weight: x^T s."""
    if x.ndim == 2:
        return torch.mm(x.mT, slope, out=out)
    if slope.shape[2] > 1:
        return torch.bmm(x.mT, slope, out=out)
    return transposed(torch.bmm(transposed(slope), x, out=_transposed(out)))


def slope_before_relu(slope: Tensor, weight: Tensor, x: Tensor, out: Tensor | None) -> Tensor:
    """The slope of what a ReLU was given that gave x: s W^T where x > 0, else 0.

    Where G is 1 it is written over x.
    """
    if slope.ndim == 3 and slope.shape[2] == 1:
        relu_backward(slope.expand_as(x), x, 0, grad_input=x)
        return x.mul_(transposed(weight))
    product = torch.mm if slope.ndim == 2 else torch.bmm
    slope = product(slope, weight.mT, out=out)
    relu_backward(slope, x, 0, grad_input=slope)
    return slope


def transposed(thin: Tensor) -> Tensor:
    """`[K, 1, F]` of `[K, F, 1]`, or the other way round.

    As `mT`, but with strides by which a product sees that it lies in one piece.
    """
    members, rows, columns = thin.shape
    return thin.view(members, columns, rows)


def _transposed(thin: Tensor | None) -> Tensor | None:
    return None if thin is None else transposed(thin)
