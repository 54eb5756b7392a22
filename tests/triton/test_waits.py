"""Every way to wait for a GPU is caught without one; what only looks like it is let through."""

from contextlib import nullcontext

import pytest
import torch

from relive import Field, Proportional, ReplayBuffer
from relive.ops import words as w
from relive.ops.launch import launch
from tests.triton.idioms import FINE, WAITS, names
from tests.triton.pretended import pretended
from tests.triton.waits import WaitError, no_waits


@pytest.fixture(params=["cpu", "meta", "cuda"])
def device(request):
    with pretended() if request.param == "cuda" else nullcontext():
        yield request.param


@pytest.mark.parametrize("idiom", WAITS)
def test_a_wait_is_caught(idiom, device):
    known = names(device)
    with no_waits(), pytest.raises(WaitError):
        exec(idiom, known)


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
        state.words[w.SEED : w.SEED + 1] = 3
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
