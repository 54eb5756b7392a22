"""Every way to wait for a GPU is caught without one; what only looks like it is let through."""

import numpy as np
import pytest
import torch

from relive import Field, Proportional, ReplayBuffer
from relive.ops import words as w
from relive.ops.launch import launch
from tests.triton.waits import WaitError, no_waits

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
    "x[0] = 3.0",
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


def names(device):
    return {
        "np": np,
        "torch": torch,
        "x": torch.tensor([1.0, 2.0, 3.0, 4.0], device=device),
        "i": torch.tensor([0, 1, 2, 3], device=device),
        "m": torch.tensor([True, False, True, False], device=device),
    }


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("idiom", WAITS)
def test_a_wait_is_caught(idiom, device):
    known = names(device)
    with no_waits(), pytest.raises(WaitError):
        exec(idiom, known)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("idiom", FINE)
def test_what_does_not_wait_is_let_through(idiom, device):
    known = names(device)
    with no_waits():
        exec(idiom, known)


def test_a_copy_between_devices_is_caught():
    x = torch.arange(1.0, 5.0)
    with no_waits():
        for copy in (lambda: x.to("meta"), lambda: torch.empty(4, device="meta").copy_(x)):
            with pytest.raises(WaitError, match="from cpu to meta"):
                copy()


def test_reading_a_word_of_a_state_is_caught_on_the_cpu_too():
    fields = {"obs": Field(), "action": Field()}
    state = ReplayBuffer(4, fields, sampler=Proportional(), kernels="reference")._state
    with no_waits(state):
        for read in (
            lambda: state.word(w.NEXT_ID),
            lambda: state.real(w.ALPHA),
            lambda: int(state.host[w.NEXT_ID]),
        ):
            with pytest.raises(WaitError):
                read()
        state.words[w.SEED] = 3
    assert state.word(w.SEED) == 3


class Reading:
    """A kernel that does on the host what Triton's interpreter does."""

    def __getitem__(self, grid):
        return lambda *args, **_: args[0].cpu().numpy()


def test_a_launch_may_do_what_it_likes():
    x = torch.arange(1.0, 5.0)
    with no_waits():
        launch(Reading(), (1,), x)
        with pytest.raises(WaitError):
            x.cpu()


def test_nothing_is_watched_afterwards():
    x = torch.arange(1.0, 5.0)
    with no_waits(), pytest.raises(WaitError):
        x.tolist()
    assert x.tolist() == [1, 2, 3, 4]
