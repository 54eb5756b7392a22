"""What programs say about tensors: some of it makes the host wait for a GPU, some does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

# Statements about x, float [4], i, int64 [4] and a permutation, and m, bool [4].
WAITS = [
    "x[0].item()",
    "bool((x > 0).all())",
    "1 if (x > 0).any() else 0",
    "int(i.sum())",
    "float(x.sum())",
    "range(i.max())",
    "x.clamp(min=float(x.sum()))",
    "x.tolist()",
    "x.numpy()",
    "np.asarray(x)",
    "x.cpu()",
    "x.to('cpu')",
    "x.to(device='cpu')",
    "str(x)",
    "f'{x.sum():.3f}'",
    "3.0 in x",
    "x.nonzero()",
    "torch.where(m)",
    "x[m]",
    "x[m] = 0.0",
    "x.index_put_((m,), x[:1].sum())",
    "torch.masked_select(x, m)",
    "i.unique()",
    "torch.bincount(i)",
    "x.repeat_interleave(i)",
    "x.split(i.tolist())",
    "torch.equal(x, x)",
    "torch.allclose(x, x)",
    "x[i.max() - i.max()]",
    "x[:i.max()]",
    "x[[0, 1]]",
    "x[0] = 3.0",
    "x.view(2, 2)[0, 1] = 3.0",
    "x[i] = 3.0",
    "torch.tensor(1.0)",
    "torch.as_tensor([1.0])",
    "torch.arange(i.max())",
    "torch.full((3,), x.sum())",
    "torch.linspace(0, x.sum(), 5)",
    "torch.randint(0, i.max(), (4,))",
    "torch.multinomial(x, 4, replacement=True)",
    "torch.randperm(4, device=x.device)",
]
FINE = [
    "x[i]",
    "x[i] = x * 1",
    "x.index_put_((i,), x * 1, accumulate=True)",
    "x.index_add_(0, i, x * 1)",
    "x.scatter_reduce_(0, i, x * 1, 'amax')",
    "torch.where(m, x, 0.0)",
    "x.masked_fill(m, 0.0)",
    "x[2:4].copy_(x[:2])",
    "x[3] + x[-1]",
    "x[:1] = 3.0",
    "x[0] = x[1]",
    "x.view(2, 2)[0] = 3.0",
    "x.index_fill_(0, i, 3.0)",
    "x.repeat_interleave(i, output_size=6)",
    "torch.searchsorted(x, x)",
    "x.sort()",
    "x.topk(3)",
    "x.cumsum(0)",
    "x.clamp(min=x.min())",
    "x * x.sum() ** -0.4",
    "(torch.rand(5, device=x.device) * i.max()).long()",
    "torch.empty(len(x), x.numel(), device=x.device)",
    "torch.full((3,), 2.0, device=x.device)",
    "x.to(torch.float64)",
    "x.shape, len(x), x.data_ptr(), x.is_cuda, x.dtype, x.device",
]


def names(device: str) -> dict[str, Any]:
    """The names that statements use."""
    return {
        "np": np,
        "torch": torch,
        "x": torch.tensor([1.0, 2.0, 3.0, 4.0], device=device),
        "i": torch.tensor([0, 1, 2, 3], device=device),
        "m": torch.tensor([True, False, True, False], device=device),
    }
