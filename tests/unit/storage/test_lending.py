"""A batch is used again only when nobody can tell."""

import copy
import ctypes
import mmap
import threading
import weakref

import numpy as np
import pytest
import torch

from relive import Field, ReplayBuffer, Uniform
from relive.storage import lending

B, ROWS = 8, 50


@pytest.fixture
def buffer():
    fields = {"obs": {"place": Field((3,)), "image": Field((2,), torch.uint8)}, "action": Field()}
    buffer = ReplayBuffer(64, fields, sampler=Uniform(), seed=1)
    values = np.arange(ROWS, dtype=np.float32)
    obs = {
        "place": np.stack([values] * 3, 1),
        "image": np.stack([values, values], 1).astype(np.uint8),
    }
    buffer.extend(
        obs=obs,
        action=values,
        reward=values,
        next_obs=obs,
        terminated=np.zeros(ROWS, bool),
    )
    return buffer


def save_for_backward(batch):
    weight = torch.ones(B, requires_grad=True)
    return (batch.reward * weight).sum()


def in_a_thread(batch):
    held = [batch.reward]
    done = threading.Event()
    thread = threading.Thread(target=lambda kept: done.wait(60) and kept, args=(held,), daemon=True)
    thread.start()
    return done, thread


HOLDERS = {
    "the batch": lambda batch: batch,
    "a field": lambda batch: batch.reward,
    "a dict of fields": lambda batch: batch.obs,
    "a field of a dict": lambda batch: batch.obs["place"],
    "a slice": lambda batch: batch.reward[2:],
    "a detached field": lambda batch: batch.reward.detach(),
    "a NumPy array": lambda batch: batch.reward.numpy(),
    "a slice of a NumPy array": lambda batch: batch.obs["image"].numpy()[1:],
    "a memoryview": lambda batch: memoryview(batch.reward.numpy()),
    "a DLPack capsule": lambda batch: torch.utils.dlpack.to_dlpack(batch.reward),
    "an array made through DLPack": lambda batch: np.from_dlpack(batch.reward),
    "the memory": lambda batch: batch.reward.untyped_storage(),
    "what a field is a view of": lambda batch: batch.reward._base,
    "what autograd saved": save_for_backward,
    "a closure": lambda batch: (lambda reward: lambda: reward)(batch.reward),
    "a thread": in_a_thread,
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_batch_is_not_written_again_while_someone_holds(buffer, holder):
    batch = buffer.sample(B)
    expected = batch.reward.clone()
    address = batch.reward.data_ptr()
    held = HOLDERS[holder](batch)
    del batch
    for _ in range(2 * lending.KEPT + 2):
        assert buffer.sample(B).reward.data_ptr() != address
    seen_by_holder = (ctypes.c_float * B).from_address(address)
    assert list(seen_by_holder) == expected.tolist()
    del held


def test_what_is_kept_of_a_field_by_weak_reference_is_not_that_of_another_batch(buffer):
    batch = buffer.sample(B)
    expected, known = batch.reward.clone(), weakref.ref(batch.reward)
    del batch
    for _ in range(2 * lending.KEPT + 2):
        buffer.sample(B)
        assert known() is None or torch.equal(known(), expected)


def test_a_batch_that_a_process_may_read_is_not_written_again(buffer):
    batch = buffer.sample(B)
    descriptor, size = batch.reward.untyped_storage()._share_fd_cpu_()
    shared = mmap.mmap(descriptor, size)
    before = bytes(shared)
    del batch
    for _ in range(2 * lending.KEPT + 2):
        float(buffer.sample(B).reward.sum())
    assert bytes(shared) == before


def test_an_abandoned_batch_is_used_again(buffer):
    address = buffer.sample(B).reward.data_ptr()
    assert buffer.sample(B).reward.data_ptr() == address


def test_a_loop_that_draws_before_it_lets_go_alternates_between_two_batches(buffer):
    batch, seen = buffer.sample(B), set()
    for _ in range(20):
        batch = buffer.sample(B)
        seen.add(batch.reward.data_ptr())
    assert len(seen) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda batch: batch.reward.requires_grad_(),
        lambda batch: batch.reward.unsqueeze_(1),
        lambda batch: batch.reward.mul_(torch.ones(B, requires_grad=True)),
        lambda batch: batch.reward.share_memory_(),
        lambda batch: batch.reward.untyped_storage().resize_(10**6),
        lambda batch: batch.obs.clear(),
        lambda batch: setattr(batch.reward, "data", torch.ones(3)),
        lambda batch: batch.reward.set_(batch.action[1:]),
        lambda batch: leave_a_gradient(batch),
        lambda batch: setattr(batch.reward, "features", torch.ones(B)),
    ],
    ids=[
        "marked to be differentiated",
        "reshaped",
        "multiplied by a parameter",
        "shared with processes",
        "resized",
        "emptied dict",
        "given other data",
        "set to other memory",
        "left with a gradient",
        "given an attribute",
    ],
)
def test_a_batch_is_as_new_whatever_was_done_to_the_one_before(buffer, change):
    buffer.reseed(3)
    expected = buffer.sample(B).reward.clone()
    change(buffer.sample(B))
    buffer.reseed(3)
    batch = buffer.sample(B)
    assert torch.equal(batch.reward, expected)
    assert batch.reward.shape == (B,)
    assert not batch.reward.requires_grad
    assert batch.reward.grad is None
    assert batch.reward.is_leaf
    assert not hasattr(batch.reward, "features")
    assert torch.equal(batch.obs["place"][:, 1], expected)


def leave_a_gradient(batch):
    reward = batch.reward.requires_grad_()
    (2 * reward).sum().backward()
    reward.requires_grad_(False)


def test_batches_of_two_sizes_are_both_used_again(buffer):
    small, large = buffer.sample(B).reward.data_ptr(), buffer.sample(2 * B).reward.data_ptr()
    for _ in range(3):
        assert buffer.sample(B).reward.data_ptr() == small
        assert buffer.sample(2 * B).reward.data_ptr() == large


def test_batches_drawn_in_inference_mode_are_new_and_stay_there(buffer):
    with torch.inference_mode():
        assert buffer.sample(B).reward.is_inference()
    assert not buffer.sample(B).reward.is_inference()


def test_a_batch_first_looked_at_without_gradients_can_be_trained_on_in_place(buffer):
    with torch.no_grad():
        float(buffer.sample(B).reward.sum())
    batch = buffer.sample(B)
    weight = torch.ones(B, requires_grad=True)
    batch.reward.mul_(weight).sum().backward()
    assert weight.grad is not None


def test_autograd_refuses_to_differentiate_what_was_drawn_over(buffer):
    out = buffer.empty_batch(B)
    loss = save_for_backward(buffer.sample(B, out=out))
    buffer.sample(B, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_fields_that_nobody_asked_for_are_there_when_the_memory_is_used_again(buffer):
    float(buffer.sample(B).reward.sum())
    batch = buffer.sample(B)
    assert torch.equal(batch.action, batch.reward)
    assert torch.equal(batch.ids.float(), batch.reward)


def with_rows():
    buffer = ReplayBuffer(20, {"obs": Field((2,)), "action": Field(())})
    zeros = np.zeros(8, np.float32)
    obs = np.ones((8, 2), np.float32)
    buffer.extend(obs=obs, action=zeros, reward=zeros, next_obs=obs, terminated=np.zeros(8, bool))
    return buffer


@pytest.mark.parametrize("given", [False, True])
def test_a_field_first_read_in_inference_mode_can_be_learned_from_later(given):
    buffer, net = with_rows(), torch.nn.Linear(2, 1)
    out = buffer.empty_batch(4) if given else None
    batch = buffer.sample(4, out=out)
    del batch
    with torch.inference_mode():
        batch = buffer.sample(4, out=out)
        net(batch.obs)
        del batch
    net(buffer.sample(4, out=out).obs).mean().backward()
    assert net.weight.grad is not None


def test_a_copy_of_a_batch_keeps_its_numbers():
    buffer = with_rows()
    batch = buffer.sample(8)
    assert batch.reward.shape == (8,)
    copied, before = copy.copy(batch), batch.ids.clone()
    address = batch.ids.data_ptr()
    del batch
    for _ in range(8):
        assert buffer.sample(8).ids.data_ptr() != address
    assert torch.equal(copied.ids, before)
