"""The public behaviour of ReplayBuffer that no other file is about."""

import copy
import math
import pickle
import threading

import numpy as np
import pytest
import torch

import relive
from relive import (
    ConfigError,
    CorruptError,
    Field,
    InputError,
    Linear,
    NotReadyError,
    Proportional,
    ReplayBuffer,
    Uniform,
    UnsupportedError,
)

FIELDS = {"obs": Field(), "action": Field((), torch.int64)}


def filled(rows, capacity=10, **settings):
    buffer = ReplayBuffer(capacity, FIELDS, **settings)
    for t in range(rows):
        buffer.add(
            obs=float(t),
            action=t,
            reward=2.0 ** min(t, 100),
            next_obs=t + 0.5,
            terminated=False,
            truncated=False,
        )
    return buffer


def digest(buffer):
    return {name: tensor.clone() for name, tensor in buffer._state.tensors().items()}


def unchanged(buffer, before):
    return all(torch.equal(before[name], now) for name, now in buffer._state.tensors().items())


REFUSED_SETTINGS = [
    ({"capacity": 0}, "capacity is a whole number >= 1; given 0"),
    ({"capacity": True}, "capacity is a whole number"),
    ({"n_step": 0}, "n_step is a whole number >= 1"),
    ({"num_envs": 1.5}, "num_envs is a whole number"),
    ({"capacity": 3, "num_envs": 4, "autoreset": "disabled"}, "at least num_envs=4; given 3"),
    ({"gamma": 1.1}, r"gamma lies in \[0, 1\]"),
    ({"gamma": float("nan")}, r"gamma lies in \[0, 1\]"),
    ({"seed": 1.5}, "seed is a signed 64-bit integer"),
    ({"seed": 2**63}, "seed is a signed 64-bit integer"),
    ({"sampler": "uniform"}, r"sampler is Uniform\(\), Proportional"),
    ({"sampler": Proportional}, r"sampler is Uniform\(\), Proportional"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED_SETTINGS)
def test_a_setting_that_cannot_work_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ReplayBuffer(**{"capacity": 10, "fields": FIELDS, **settings})


def test_a_buffer_tells_its_settings():
    buffer = filled(3, n_step=1, gamma=0.9, sampler=Uniform())
    assert (buffer.capacity, len(buffer), buffer.num_envs, buffer.n_step, buffer.gamma) == (
        10,
        3,
        1,
        1,
        0.9,
    )
    assert (buffer.device, buffer.prioritized, buffer.sampler) == (
        torch.device("cpu"),
        False,
        Uniform(),
    )
    assert repr(buffer).startswith("ReplayBuffer(3 of 10 rows, Uniform()")


@pytest.mark.parametrize("batch_size", [0, -1, 2.0, True, None, "8"])
def test_a_batch_size_that_is_none_is_refused(batch_size):
    buffer = filled(3)
    before = digest(buffer)
    with pytest.raises(InputError, match="batch_size is a whole number >= 1"):
        buffer.sample(batch_size)
    assert unchanged(buffer, before)


def test_nothing_to_draw_is_refused_with_the_reason():
    with pytest.raises(NotReadyError, match="no row has been written yet; ask ready"):
        ReplayBuffer(10, FIELDS).sample(4)
    with pytest.raises(NotReadyError, match=r"2 steps wait for their n-step windows.*end_episode"):
        filled(2, n_step=3).sample(4)
    buffer = filled(3, sampler=Proportional(eps=0.0))
    buffer.update_priorities([0, 1, 2], [0.0, 0.0, 0.0])
    before = digest(buffer)
    assert not buffer.ready(1)
    with pytest.raises(NotReadyError, match="all priorities are 0"):
        buffer.sample(4)
    assert unchanged(buffer, before)


def test_ready_counts_rows_that_can_be_drawn():
    buffer = filled(3, n_step=2)
    assert [buffer.ready(size) for size in (1, 2, 3)] == [True, True, False]
    buffer.end_episode()
    assert buffer.ready(3)


def test_a_batch_to_reuse_must_be_one_of_this_buffers():
    buffer, other = filled(3), filled(3)
    out = buffer.empty_batch(4)
    assert buffer.sample(4, out=out) is out
    for wrong, given in (
        (buffer.empty_batch(5), "one of 5 rows"),
        (other.empty_batch(4), "one of another buffer"),
        (torch.empty(4), "Tensor"),
    ):
        with pytest.raises(InputError, match=rf"this buffer's empty_batch\(4\); given {given}"):
            buffer.sample(4, out=wrong)


@pytest.mark.parametrize(
    "duplicate",
    [lambda buffer: pickle.loads(pickle.dumps(buffer)), copy.deepcopy, copy.copy],
    ids=["pickle", "deepcopy", "copy"],
)
def test_a_copy_goes_on_as_the_original_does_and_leaves_it_alone(duplicate):
    buffer = filled(15, seed=3, sampler=Proportional(), n_step=2)
    buffer.update_priorities(buffer.live_ids()[:3], [1.0, 5.0, 2.0])
    buffer.sample(4)
    twin = duplicate(buffer)
    twin.check()
    assert repr(twin) == repr(buffer)
    before = buffer.all()
    for one in (twin, buffer):
        one.add(obs=9.0, action=9, reward=9.0, next_obs=9.0, terminated=True, truncated=False)
        if one is twin:
            assert torch.equal(buffer.all().reward, before.reward)
    assert torch.equal(twin.sample(20).ids, buffer.sample(20).ids)
    assert torch.equal(twin.all().reward, buffer.all().reward)
    assert torch.equal(twin.priorities(twin.live_ids()), buffer.priorities(buffer.live_ids()))


def test_a_reused_batch_shows_the_new_draw_through_the_same_tensors():
    buffer = filled(9, seed=5)
    out = buffer.empty_batch(64)
    obs = buffer.sample(64, out=out).obs
    first = obs.clone()
    buffer.sample(64, out=out)
    assert not torch.equal(first, obs)
    assert torch.equal(obs, out.ids.float())


def test_the_same_seed_and_calls_give_the_same_batches():
    def draw(seed):
        buffer = filled(9, sampler=Proportional(), seed=seed)
        return [buffer.sample(16).ids.tolist() for _ in range(3)]

    assert draw(3) == draw(3)
    assert draw(3) != draw(4)
    assert draw(-1) == draw(-1)


def test_other_draws_leave_training_draws_alone():
    plain, mixed = filled(9, sampler=Proportional()), filled(9, sampler=Proportional())
    for _ in range(3):
        mixed.sample(5, train=False)
        assert torch.equal(plain.sample(16).ids, mixed.sample(16).ids)
    assert plain.stats()["progress"] == mixed.stats()["progress"] == 3


def test_no_global_random_state_is_touched():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002 - what is tested
    filled(9, sampler=Proportional()).sample(16)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002 - what is tested


def test_reseeding_repeats_the_draws():
    buffer = filled(9, seed=1)
    first = buffer.sample(16).ids
    assert not torch.equal(first, buffer.sample(16).ids)
    buffer.reseed(1)
    assert torch.equal(first, buffer.sample(16).ids)


def test_a_sampled_batch_belongs_to_the_caller():
    buffer = filled(3)
    batch = buffer.sample(8)
    batch.obs.fill_(77.0)
    assert buffer.rows([0, 1, 2]).obs.tolist() == [0.0, 1.0, 2.0]
    kept = batch.ids.clone()
    buffer.sample(8)
    assert torch.equal(kept, batch.ids)


def test_a_batch_can_be_larger_than_the_buffer():
    assert len(filled(2).sample(1000)) == 1000


def test_a_batch_can_be_moved_as_it_is_drawn():
    assert filled(3).sample(4, device="cpu").obs.shape == (4,)


def test_a_device_that_is_none_is_refused_before_anything_is_drawn():
    buffer = filled(3)
    before = digest(buffer)
    for device in ("cuda:99", "foo", "meta"):
        with pytest.raises(UnsupportedError, match="device"):
            buffer.sample(4, device=device)
    assert unchanged(buffer, before)


def test_a_batch_that_has_moved_cannot_be_written_to():
    buffer = filled(3)
    with pytest.raises(InputError, match="given one of 4 rows on meta"):
        buffer.sample(4, out=buffer.empty_batch(4).to("meta"))


def test_ids_of_a_narrow_type_mean_what_they_say():
    buffer = filled(356, capacity=100)
    with pytest.raises(InputError, match=r"the ids held are 256\.\.\.355; given \[50\]"):
        buffer.rows(torch.tensor([50], dtype=torch.uint8))
    short = filled(150, capacity=200)
    for dtype in (torch.uint8, torch.int16, torch.uint16, torch.int32):
        assert short.rows(torch.tensor([120], dtype=dtype)).action.tolist() == [120]


def test_a_batch_size_that_equals_one_that_was_used_is_still_checked():
    buffer = filled(3)
    out = buffer.empty_batch(64)
    for size in (64.0, True):
        buffer.sample(1)
        with pytest.raises(InputError, match="batch_size is a whole number"):
            buffer.sample(size, out=out)
    assert len(buffer.sample(np.uint8(64)).ids) == 64
    for size in (0, -1, "a"):
        with pytest.raises(InputError, match="batch_size is a whole number"):
            buffer.ready(size)


def test_a_stream_with_a_value_beyond_its_dtype_is_written_whole():
    buffer = ReplayBuffer(30_000, FIELDS)
    t = np.arange(20_000)
    reward = np.where(t == 15_000, 1e300, 1e-300)
    with np.errstate(all="raise"):
        buffer.extend(obs=t * 1.0, action=t, reward=reward, next_obs=t * 1.0, terminated=t < 0)
    assert len(buffer) == 20_000
    assert buffer.rows([15_000]).reward.isinf().all()
    assert buffer.rows([15_001]).reward.tolist() == [0.0]


def test_rows_are_read_by_id_while_they_are_held():
    buffer = filled(13)
    assert buffer.live_ids().tolist() == list(range(3, 13))
    assert buffer.rows(np.array([12, 3, 3])).action.tolist() == [12, 3, 3]
    for ids in ([2], [13], [-1]):
        with pytest.raises(InputError, match=r"the ids held are 3\.\.\.12; given"):
            buffer.rows(ids)
    for ids in ([], [0.5], [[3]], True, "3"):
        with pytest.raises(InputError, match="ids: "):
            buffer.rows(ids)
    with pytest.raises(InputError, match="no rows are held"):
        ReplayBuffer(3, FIELDS).rows([0])


def test_extend_writes_what_add_would_and_closes_the_episode():
    stream = {
        "obs": torch.arange(8.0),
        "action": torch.arange(8),
        "reward": 2.0 ** torch.arange(8.0),
        "next_obs": torch.arange(8.0) + 0.5,
        "terminated": torch.zeros(8, dtype=torch.bool),
    }
    extended = ReplayBuffer(20, FIELDS, n_step=3, gamma=0.5)
    extended.extend(**stream)
    added = filled(8, capacity=20, n_step=3, gamma=0.5)
    added.end_episode()
    assert torch.equal(extended._state.rows, added._state.rows)
    assert extended.rows(extended.live_ids()).truncated.tolist() == [False] * 5 + [True] * 3


def test_extend_of_all_lanes_equals_adds_of_all_lanes():
    rng = np.random.default_rng(0)
    times, lanes = 40, 3
    stream = {
        "obs": rng.normal(size=(times, lanes)),
        "action": rng.integers(0, 5, (times, lanes)),
        "reward": rng.normal(size=(times, lanes)),
        "next_obs": rng.normal(size=(times, lanes)),
        "terminated": rng.random((times, lanes)) < 0.1,
        "truncated": rng.random((times, lanes)) < 0.1,
    }
    settings = {"num_envs": lanes, "n_step": 3, "autoreset": "disabled", "sampler": Proportional()}
    extended, added = (ReplayBuffer(50, FIELDS, **settings) for _ in range(2))
    extended.extend(env=None, **stream)
    for t in range(times):
        added.add(**{name: value[t] for name, value in stream.items()})
    added.end_episode()
    for name in ("rows", "leaves", "sums", "lanes"):
        assert torch.equal(getattr(extended._state, name), getattr(added._state, name)), name


def test_extend_in_pieces_equals_extend_at_once(monkeypatch):
    def extend():
        buffer = ReplayBuffer(50, FIELDS, n_step=3, sampler=Proportional())
        t = np.arange(70)
        buffer.extend(
            obs=t * 1.0,
            action=t,
            reward=t * 1.0,
            next_obs=t + 0.5,
            terminated=t % 9 == 8,
            truncated=t % 7 == 6,
        )
        return buffer._state

    whole = extend()
    monkeypatch.setattr("relive.storage.memory.STAGING_BYTES", 64 * 11)
    pieces = extend()
    for name in ("rows", "leaves", "sums", "lanes"):
        assert torch.equal(getattr(whole, name), getattr(pieces, name)), name


def test_ready_made_rows_are_stored_as_they_are():
    buffer = ReplayBuffer(10, FIELDS, n_step=5, gamma=0.5)
    t = np.arange(3)
    buffer.extend(
        obs=t * 1.0,
        action=t,
        reward=t * 10.0,
        next_obs=t + 0.5,
        terminated=t == 2,
        discount=np.array([0.3, 0.7, 0.0]),
    )
    rows = buffer.rows([0, 1, 2])
    assert rows.reward.tolist() == [0.0, 10.0, 20.0]
    assert rows.discount.tolist() == pytest.approx([0.3, 0.7, 0.0])
    assert rows.terminated.tolist() == [False, False, True]
    buffer.check()


NO_DISCOUNTS = [
    ([0.9, math.nan, 0.0], r"discount\[1\] is nan, expected a number in \[0, 1\]"),
    ([-1.0, 0.9, 0.0], r"discount\[0\] is -1\.0, expected"),
    ([0.9, 1.5, 0.0], r"discount\[1\] is 1\.5, expected"),
    ([0.9, 1.0000001, 0.0], r"discount\[1\] is 1\.0000001, expected"),
    ([0.9, math.inf, -math.inf], r"discount\[1\] is inf, expected"),
    ([0.9, 1e300, 0.0], r"discount\[1\] is inf, expected"),
    ([1.0, 0.0, 0.9], r"discount\[2\] is 0\.9, expected 0 where terminated: nothing comes after"),
]


@pytest.mark.parametrize("form", [np.array, torch.tensor, np.float32, list, tuple])
@pytest.mark.parametrize(("discount", "message"), NO_DISCOUNTS)
def test_a_discount_that_no_steps_have_is_refused(discount, message, form):
    buffer = filled(3)
    before = digest(buffer)
    t = np.arange(3)
    stream = {"obs": t * 1.0, "action": t, "reward": t * 1.0, "next_obs": t * 1.0}
    with np.errstate(over="ignore"):
        given = form(discount)
    with pytest.raises(InputError, match=message):
        buffer.extend(**stream, terminated=t == 2, discount=given)
    assert unchanged(buffer, before)


def test_a_discount_of_several_lanes_is_named_by_step_and_lane():
    buffer = ReplayBuffer(10, FIELDS, num_envs=2, autoreset="disabled")
    zeros = np.zeros((3, 2))
    discount = torch.ones(3, 2, dtype=torch.bfloat16)
    discount[1, 0] = 2
    stream = {"obs": zeros, "action": zeros.astype(int), "reward": zeros, "next_obs": zeros}
    with pytest.raises(InputError, match=r"discount\[1, 0\] is 2\.0, expected"):
        buffer.extend(**stream, terminated=zeros > 0, discount=discount, env=None)
    assert len(buffer) == 0


def test_extend_by_nothing_changes_nothing():
    buffer = filled(3, n_step=2)
    before = digest(buffer)
    empty = np.zeros(0)
    buffer.extend(
        obs=empty,
        action=empty.astype(int),
        reward=empty,
        next_obs=empty,
        terminated=empty.astype(bool),
    )
    assert unchanged(buffer, before)


REFUSED_STREAMS = [
    ({"reward": np.zeros((3, 1))}, r"reward: given shape \(3, 1\), expected \[T\]"),
    ({"obs": np.zeros(4)}, r"obs: given shape \(4,\), expected \(3,\)"),
    (
        {"terminated": np.zeros(3)},
        r"terminated: given float64, .*; pass terminated\.astype\(bool\)$",
    ),
    ({"truncated": np.zeros(2, bool)}, r"truncated: given shape \(2,\), expected \(3,\)"),
    ({"discount": np.zeros((3, 2))}, r"discount: given shape \(3, 2\)"),
    ({"extra": np.zeros(3)}, "unknown: "),
    ({"env": 1}, r"env is one of 0\.\.\.0"),
    ({"env": True}, r"env is one of 0\.\.\.0"),
    ({"reward": 1.0}, r"reward: given shape \(\), expected \[T\]"),
]


@pytest.mark.parametrize(("changed", "message"), REFUSED_STREAMS)
def test_a_stream_of_another_form_is_refused_before_anything_changes(changed, message):
    buffer = filled(3, n_step=2)
    before = digest(buffer)
    stream = {
        "obs": np.zeros(3),
        "action": np.zeros(3, int),
        "reward": np.zeros(3),
        "next_obs": np.zeros(3),
        "terminated": np.zeros(3, bool),
    }
    with pytest.raises(InputError, match=message):
        buffer.extend(**{**stream, **changed})
    assert unchanged(buffer, before)


REFUSED_UPDATES = [
    (([0, 1], [1.0, 2.0, 3.0]), "given 2 ids and 3 values"),
    (
        ([0, 1], [[1.0], [2.0]]),
        r"td_errors: given shape \(2, 1\), expected \[B\]; pass td_errors.squeeze\(-1\)",
    ),
    ((filled(2).sample(2), [1.0, 2.0]), r"ids: given a batch, .*; pass batch\.ids"),
    (([[0]], [1.0]), r"ids: given shape \(1, 1\), expected \[B\]"),
    (([0.0], [1.0]), "ids: given torch.float64, expected torch.int64"),
    (([True], [1.0]), "ids: given torch.bool, expected torch.int64"),
    (([3], [1.0]), r"ids lie in \[0, 3\).*given 3\.\.\.3"),
    (([0, -1], [1.0, 1.0]), r"ids lie in \[0, 3\)"),
    (([0], ["a"]), "td_errors: not a vector of numbers"),
    (([0], None), "takes either td_errors or priorities="),
    (([0], [1j]), "td_errors: not a vector of numbers: given complex128"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED_UPDATES)
def test_a_bad_update_is_refused_before_anything_changes(arguments, message):
    buffer = filled(3, sampler=Proportional())
    before = digest(buffer)
    with pytest.raises(InputError, match=message):
        buffer.update_priorities(*arguments)
    assert unchanged(buffer, before)


def test_updates_of_a_uniform_buffer_are_refused():
    buffer = filled(3)
    with pytest.raises(UnsupportedError, match=r"ask buffer.prioritized first, or make it with"):
        buffer.update_priorities([0], [1.0])
    with pytest.raises(UnsupportedError, match="has no priorities"):
        buffer.priorities([0])


def test_an_update_of_nothing_changes_only_nothing():
    buffer = filled(3, sampler=Proportional())
    before = digest(buffer)
    buffer.update_priorities([], [])
    assert unchanged(buffer, before)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_bad_errors_can_be_refused(bad):
    buffer = filled(3, sampler=Proportional(bad_priority="raise"))
    before = digest(buffer)
    with pytest.raises(InputError, match="NaN or infinite"):
        buffer.update_priorities([0, 1], [1.0, bad])
    assert unchanged(buffer, before)


def test_errors_that_need_gradients_or_are_not_contiguous_are_taken():
    buffer = filled(4, sampler=Proportional(alpha=1.0, eps=0.0))
    errors = torch.arange(8.0, requires_grad=True)[::2] + 1
    buffer.update_priorities(torch.arange(8)[::2] // 2, errors)
    assert buffer.priorities([0, 1, 2, 3]).tolist() == [1.0, 3.0, 5.0, 7.0]


def test_progress_can_be_set_and_moves_beta():
    buffer = filled(3, sampler=Proportional(beta=Linear(0.4, 1.0, 100)))
    assert buffer.stats()["beta"] == pytest.approx(0.4)
    buffer.set_progress(50)
    assert buffer.stats()["beta"] == pytest.approx(0.7)
    buffer.sample(1)
    assert buffer.stats()["progress"] == 51
    for bad in (-1, 1.5, True):
        with pytest.raises(InputError, match="progress is a whole number in"):
            buffer.set_progress(bad)


def test_clear_drops_rows_and_keeps_ids_and_random_state():
    twin, buffer = filled(9, seed=3), filled(9, seed=3)
    for one in (twin, buffer):
        one.sample(7)
    buffer.clear()
    assert len(buffer) == 0
    buffer.check()
    for one in (twin, buffer):
        for t in range(10):
            one.add(obs=0.0, action=t, reward=0.0, next_obs=0.0, terminated=False, truncated=False)
    assert buffer.live_ids().tolist() == list(range(9, 19))
    slots = twin.sample(50).ids % 10, (buffer.sample(50).ids - 9) % 10
    assert torch.equal(*slots)  # drawn in the order of slots; after clear the ring starts anew


CORRUPTIONS = [
    (lambda state: state.sums.__setitem__(0, 5), "sums of level 0"),
    (lambda state: state.leaves.__setitem__(0, -1.0), "a leaf is 0 or in"),
    (lambda state: state.leaves.__setitem__(15, 1.0), "a slot without a row has leaf 0"),
    (lambda state: state.mins.__setitem__(0, 0.5), "minima of level 0"),
    (lambda state: state.words.__setitem__(relive.ops.words.TOTAL, 3), "the total is the sum"),
    (lambda state: state.rows[0, :4].fill_(9), "a row's lane exists"),
    (lambda state: state.rows[1, 4].fill_(2), "links back"),
    (lambda state: state.lanes[0].fill_(7), "fewer than n steps"),
]


@pytest.mark.parametrize(("corrupt", "message"), CORRUPTIONS)
def test_check_names_the_invariant_that_is_broken(corrupt, message):
    buffer = filled(5, sampler=Proportional())
    buffer.check()
    corrupt(buffer._state)
    with pytest.raises(CorruptError, match=message):
        buffer.check()


def test_statistics_start_at_zero_and_count():
    buffer = filled(4, sampler=Proportional(alpha=1.0, eps=0.0), track_reuse=True)
    buffer.sample(8)
    buffer.sample(8, train=False)
    buffer.update_priorities([0, 1, 2], [float("nan"), 1e30, 3.0])
    expected = {
        "size": 4,
        "capacity": 10,
        "added": 4,
        "draws": 16,
        "samples": 2,
        "priority_updates": 3,
        "bad_priorities": 1,
        "stale_updates": 0,
        "clamped_priorities": 1,
        "clipped_weights": 0,
        "dropped_reset_rows": 0,
        "progress": 1,
        "max_priority": 2.0**40,
    }
    stats = buffer.stats()
    assert {name: stats[name] for name in expected} == expected
    assert sum(stats["age_counts"]) == 8


def test_many_threads_may_use_one_buffer():
    fields = {"obs": Field((64,)), "action": Field((), torch.int64)}
    buffer = ReplayBuffer(500, fields, sampler=Proportional())
    obs = np.zeros(64, np.float32)
    buffer.add(obs=obs, action=0, reward=0.0, next_obs=obs, terminated=False, truncated=False)
    torn = []

    def write(start):
        for t in range(start, start + 600):
            obs = np.full(64, t, np.float32)
            buffer.add(
                obs=obs, action=t, reward=float(t), next_obs=obs, terminated=False, truncated=False
            )

    def read():
        for _ in range(200):
            batch = buffer.sample(64)
            whole = (
                (batch.obs == batch.action[:, None]).all()
                & torch.equal(batch.next_obs, batch.obs)
                & torch.equal(batch.reward, batch.action.float())
            )
            torn.append(not whole)
            buffer.update_priorities(batch.ids, batch.reward)

    threads = [threading.Thread(target=write, args=(start,)) for start in (0, 1000)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(torn) == 400
    assert not any(torn)
    buffer.check()


def test_links_join_the_rows_of_an_episode_in_each_lane():
    buffer = ReplayBuffer(20, FIELDS, num_envs=2, autoreset="disabled")
    for t in range(4):
        buffer.add(
            obs=[t, t],
            action=[t, t],
            reward=[0.0, 0.0],
            next_obs=[t, t],
            terminated=[t == 1, False],
            truncated=[False, False],
        )
    links = buffer._state.rows[:8, :12].view(torch.int32)
    expected = [  # lane, prev, next; lane 0 has episodes of rows 0, 2 and 4, 6
        (0, 0, 2),
        (1, 0, 2),
        (0, 2, 0),
        (1, 2, 2),
        (0, 0, 2),
        (1, 2, 2),
        (0, 2, 0),
        (1, 2, 0),
    ]
    assert [tuple(row) for row in links.tolist()] == expected
    buffer.check()
