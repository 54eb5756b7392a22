"""Several buffers in one batch."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relive import (
    ConfigError,
    Field,
    InputError,
    Mixture,
    NotReadyError,
    Proportional,
    ReplayBuffer,
    Uniform,
    UnsupportedError,
)
from relive.ops import words as w

FIELDS = {"obs": Field((2,)), "action": Field((), torch.int64)}
KERNELS = pytest.mark.parametrize("kernels", ["cpu", "reference"])


def filled(tag, rows=20, kernels="cpu", fields=FIELDS, sampler=None, **settings):
    """A buffer whose rewards are tag, tag + 1, ..."""
    sampler = Proportional(alpha=1.0, eps=0.0, beta=1.0) if sampler is None else sampler
    buffer = ReplayBuffer(32, fields, sampler=sampler, kernels=kernels, **settings)
    if rows:
        numbers = np.arange(rows, dtype=np.float32) + tag
        buffer.extend(
            obs=np.stack([numbers / 1000, numbers / 1000], 1),
            action=numbers.astype(np.int64),
            reward=numbers,
            next_obs=np.stack([numbers / 1000, numbers / 1000], 1),
            terminated=np.zeros(rows, bool),
        )
    return buffer


def tags(batch):
    return (batch.reward // 100).long().tolist()


@KERNELS
def test_a_batch_holds_the_share_of_each_buffer_and_whole_rows(kernels):
    mixture = Mixture([filled(100, kernels=kernels), filled(200, kernels=kernels)], [1, 3])
    for out in (None, mixture.empty_batch(16)):
        batch = mixture.sample(16, out=out)
        assert tags(batch) == [1] * 4 + [2] * 12
        assert batch.action.tolist() == batch.reward.long().tolist()
        assert torch.equal(batch.obs[:, 1], (batch.reward / 1000))
        assert torch.equal(batch.next_obs, batch.obs)


UNEVEN = [(5, [50, 50, 50, 5, 1]), (32, [1000, 1000, 1000, 1, 1]), (1, [3, 1, 1, 3, 3])]
EVEN = [(7, [1, 1]), (1, [1, 2, 4]), (10, [0.3, 0.7])]  # whole rows after 70 batches


@pytest.mark.parametrize(("batch_size", "shares"), EVEN + UNEVEN)
def test_shares_that_are_no_whole_rows_are_exact_in_the_long_run(batch_size, shares):
    buffers = [filled(100 * (k + 1)) for k in range(len(shares))]
    mixture = Mixture(buffers, shares)
    counts = np.zeros(len(shares))
    for number in range(1, 141):
        drawn = tags(mixture.sample(batch_size))
        counts += [drawn.count(k + 1) for k in range(len(shares))]
        expected = np.array(shares) / sum(shares) * batch_size * number
        assert np.abs(counts - expected).max() < len(shares)
    if (batch_size, shares) in EVEN:
        assert np.abs(counts - expected).max() < 1e-6


@KERNELS
def test_priorities_go_to_the_buffers_the_rows_are_from(kernels):
    buffers = [filled(100, kernels=kernels), filled(200, kernels=kernels)]
    mixture = Mixture(buffers, [1, 1])
    batch = mixture.sample(8)
    errors = torch.arange(1.0, 9)
    mixture.update_priorities(batch.ids, errors)
    number, ids = mixture.where(batch.ids)
    assert number.tolist() == [0] * 4 + [1] * 4
    for k, buffer in enumerate(buffers):
        last = dict(zip(ids[number == k].tolist(), errors[number == k].tolist(), strict=True))
        assert buffer.priorities(list(last)).tolist() == list(last.values())
        assert buffer.stats()["priority_updates"] == 4
    mixture.update_priorities(batch.ids, priorities=torch.ones(8))
    assert all(buffer.priorities(buffer.live_ids()).eq(1).all() for buffer in buffers)


def test_ids_of_demonstrations_find_their_way_back():
    buffer = filled(100, rows=4)
    buffer.pin_demonstrations(4, reserve=2)
    added = buffer.pin([0])
    mixture = Mixture([filled(200), buffer], [1, 1])
    batch = mixture.sample(64)
    number, ids = mixture.where(batch.ids)
    assert set(number.tolist()) == {0, 1}
    assert int(added) in ids.tolist()
    assert set(ids[number == 1].tolist()) <= set(buffer.live_ids().tolist())
    mixture.update_priorities(batch.ids, torch.full((64,), 5.0))
    assert buffer.priorities(added).tolist() == [5.0]


def test_rows_of_a_uniform_buffer_are_passed_over_by_updates():
    prioritized, uniform = filled(100), filled(200, sampler=Uniform())
    mixture = Mixture([prioritized, uniform], [1, 1])
    assert mixture.prioritized
    mixture.update_priorities(mixture.sample(8).ids, torch.ones(8))
    assert prioritized.stats()["priority_updates"] == 4


def test_a_buffer_with_nothing_to_draw_leaves_its_rows_to_the_others():
    empty = filled(100, rows=0)
    mixture = Mixture([empty, filled(200), filled(300)], [2, 1, 1])
    assert mixture.ready(40)
    assert not mixture.ready(41)
    assert tags(mixture.sample(4)) == [2, 2, 3, 3]
    empty.add(
        obs=[0, 0], action=0, reward=100.0, next_obs=[0, 0], terminated=False, truncated=False
    )
    assert tags(mixture.sample(4)) == [1, 1, 2, 3]


def test_a_mixture_of_empty_buffers_is_not_ready():
    mixture = Mixture([filled(100, rows=0), filled(200, rows=0)], [1, 1])
    assert not mixture.ready()
    with pytest.raises(NotReadyError, match="no buffer of the mixture has anything to draw"):
        mixture.sample(2)


def test_progress_and_random_streams_are_those_of_each_buffer():
    buffers = filled(100, seed=1), filled(200, seed=2)
    mixture = Mixture(buffers, [1, 1])
    mixture.sample(8)
    mixture.sample(8, train=False)
    for buffer in buffers:
        assert buffer.stats()["progress"] == 1
        assert buffer._state.word(w.DRAWS) == buffer._state.word(w.EVAL_DRAWS) == 4
    alone = filled(100, seed=1)
    assert torch.equal(alone.sample(4).ids, mixture.where(_again(mixture, buffers))[1][:4])


def _again(mixture, buffers):
    for buffer in buffers:
        buffer.reseed(1)
    return mixture.sample(8).ids


def test_stored_types_may_differ():
    fields = {**FIELDS, "obs": Field((2,), store=torch.float16)}
    batch = Mixture([filled(100), filled(200, fields=fields)], [1, 1]).sample(8)
    assert batch.obs[:, 0].tolist() == pytest.approx((batch.reward / 1000).tolist(), rel=1e-3)


OTHER_FIELDS = {"obs": Field(), "action": Field()}
REFUSED = {  # buffers, of those named a and b, and shares
    "none": ("", [], "1 to 127 buffers"),
    "no buffer": ("a?", [1, 1], "made of ReplayBuffers; given None"),
    "twice": ("aa", [1, 1], "twice"),
    "one share": ("ab", [1], "2 positive numbers"),
    "share of 0": ("ab", [1, 0], "2 positive numbers"),
    "share nan": ("ab", [1, float("nan")], "2 positive numbers"),
    "share of text": ("ab", [1, "x"], "2 positive numbers"),
    "other fields": ("ac", [1, 1], "the same fields"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mixture_that_cannot_work_is_refused(case):
    names, shares, message = REFUSED[case]
    buffers = {"a": filled(100), "b": filled(200), "c": filled(1, 0, fields=OTHER_FIELDS)}
    with pytest.raises(ConfigError, match=message):
        Mixture([buffers.get(name) for name in names], shares)


def test_wrong_calls_are_refused():
    a, b = filled(100), filled(200)
    mixture = Mixture([a, b], [1, 1])
    batch = mixture.sample(4)
    for out in (a.empty_batch(4), mixture.empty_batch(5), {}):
        with pytest.raises(InputError, match=r"this mixture's empty_batch\(4\)"):
            mixture.sample(4, out=out)
    for ids in (batch.ids - 2**60, batch.ids + (2 << 56), torch.tensor([-1, 0, 0, 0])):
        with pytest.raises(InputError, match="ids are those of batches of this mixture"):
            mixture.update_priorities(ids, torch.ones(4))
    with pytest.raises(InputError, match="4 ids and 3 values"):
        mixture.update_priorities(batch.ids, torch.ones(3))
    with pytest.raises(InputError, match="either td_errors or priorities"):
        mixture.update_priorities(batch.ids)
    uniform = Mixture([filled(1, sampler=Uniform()), filled(2, sampler=Uniform())], [1, 1])
    with pytest.raises(UnsupportedError, match="no buffer of this mixture has priorities"):
        uniform.update_priorities(uniform.sample(2).ids, torch.ones(2))
    assert len(mixture) == 40
    assert "0.5 of ReplayBuffer" in repr(mixture)
    assert mixture.device == torch.device("cpu")


@pytest.mark.parametrize(
    "again",
    [copy.deepcopy, lambda mixture: pickle.loads(pickle.dumps(mixture))],
    ids=["deepcopy", "pickle"],
)
def test_a_copy_of_a_mixture_draws_what_the_mixture_draws(again):
    mixture = Mixture([filled(100), filled(200)], shares=[1, 2.2])
    mixture.sample(5)  # a share of a row is owed
    other = again(mixture)
    for _ in range(5):
        expected, batch = mixture.sample(5), other.sample(5)
        assert batch.ids.tolist() == expected.ids.tolist()
        assert batch.reward.tolist() == expected.reward.tolist()
        other.update_priorities(batch.ids, torch.arange(5.0))
        mixture.update_priorities(expected.ids, torch.arange(5.0))
    other.buffers[0].clear()
    assert len(mixture) == 40


def test_batches_of_a_mixture_are_drawn_ahead():
    ahead, plain = (Mixture([filled(100), filled(200)], [1, 2]) for _ in range(2))
    batches = ahead.batches(16, ahead=2)
    for _ in range(5):
        batch, expected = next(batches), plain.sample(16)
        assert torch.equal(batch.ids, expected.ids)
        assert torch.equal(batch.reward, expected.reward)
    assert [buffer.stats()["progress"] for buffer in ahead.buffers] == [7, 7]


@given(
    st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=9),
    st.integers(1, 40),
    st.data(),
)
def test_the_rows_of_all_buffers_are_those_of_the_batch(shares, batch_size, data):
    mixture = Mixture([filled(100 * (k + 1), rows=1) for k in range(len(shares))], shares)
    for _ in range(60):
        ready = [True] * len(shares)
        if data.draw(st.integers(0, 9)) == 0:
            ready[data.draw(st.integers(0, len(shares) - 1))] = False
        counts, mixture._owed = mixture._divide(batch_size, ready)
        assert sum(counts) == batch_size
        assert min(counts) >= 0
        assert not any(count for count, can in zip(counts, ready, strict=True) if not can)
        assert max(map(abs, mixture._owed)) < 2
