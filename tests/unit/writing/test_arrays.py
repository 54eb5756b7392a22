"""Arrays that torch does not take as they are."""

import warnings

import numpy as np
import pytest
import torch

from relive import Field, InputError, Proportional, ReplayBuffer


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


FORMS = {
    "reversed": lambda a: a[::-1].copy()[::-1],
    "of foreign byte order": lambda a: a.astype(a.dtype.newbyteorder(">")),
    "read-only": read_only,
    "broadcast": lambda a: np.broadcast_to(a, a.shape),
    "strided": lambda a: np.repeat(a, 2, axis=0)[::2],
}


@pytest.fixture(params=FORMS.values(), ids=FORMS.keys())
def form(request):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield request.param


def filled(form=lambda a: a):
    fields = {
        "obs": Field((2,), torch.bfloat16),
        "action": Field(),
        "half": Field((2,), store=torch.float16),
    }
    buffer = ReplayBuffer(8, fields, sampler=Proportional(alpha=1.0, eps=0.0))
    numbers = form(np.arange(4, dtype=np.float32))
    pairs = form(np.arange(8, dtype=np.float32).reshape(4, 2))
    flags = np.zeros(4, bool)
    buffer.extend(
        obs=pairs, action=numbers, reward=numbers, next_obs=pairs, terminated=flags, half=pairs
    )
    return buffer


def test_values_are_stored_whatever_the_array_is_like(form):
    found, expected = filled(form).rows(range(4)), filled().rows(range(4))
    for name in ("obs", "action", "reward", "next_obs", "half"):
        assert torch.equal(found[name], expected[name])


def test_one_step_is_stored_whatever_the_array_is_like(form):
    buffer = filled()
    pair = form(np.float32([3, 4]))
    buffer.add(
        obs=pair,
        action=1.0,
        reward=1.0,
        next_obs=pair,
        terminated=False,
        truncated=False,
        half=pair,
    )
    assert buffer.rows([4]).obs.tolist() == buffer.rows([4]).half.tolist() == [[3.0, 4.0]]


def test_ids_and_errors_are_taken_whatever_the_array_is_like(form):
    buffer = filled()
    buffer.update_priorities(form(np.arange(4)), form(np.float32([1, 2, 3, 4])))
    assert buffer.priorities(form(np.arange(4))).tolist() == [1, 2, 3, 4]
    assert buffer.rows(form(np.arange(4))).reward.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("ids", ["abc", [1.5], None], ids=str)
def test_what_is_no_array_of_integers_is_refused(ids):
    with pytest.raises(InputError, match="ids"):
        filled().rows(ids)


@pytest.mark.parametrize("train", [1, np.True_, torch.tensor(True)], ids=str)
def test_train_is_taken_as_a_truth_value(train):
    buffer = filled()
    buffer.sample(2, train=train)
    assert buffer.stats()["progress"] == 1


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(4, dtype=torch.int64).to_sparse(),
        torch.zeros(4, dtype=torch.int64, device="meta"),
    ],
    ids=["sparse", "meta"],
)
def test_tensors_without_plain_memory_are_refused(tensor):
    buffer = filled()
    for call in (
        lambda: buffer.rows(tensor),
        lambda: buffer.priorities(tensor),
        lambda: buffer.update_priorities(tensor, torch.ones(4)),
        lambda: buffer.update_priorities(torch.arange(4), tensor.float()),
    ):
        with pytest.raises(InputError, match="expected plain memory"):
            call()


@pytest.mark.parametrize("batch_size", [10**12, 2**62])
def test_a_batch_larger_than_memory_is_refused(batch_size):
    buffer = filled()
    for call in (buffer.sample, buffer.empty_batch, lambda size: buffer.sample_range(size, 0, 4)):
        with pytest.raises(InputError, match="more than there is"):
            call(batch_size)
