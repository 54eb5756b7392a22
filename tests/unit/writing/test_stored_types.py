"""Fields that are stored in fewer bits than a batch holds."""

import math

import numpy as np
import pytest
import torch

from relive import ConfigError, Field, InputError, ReplayBuffer, Uniform, plan

KERNELS = pytest.mark.parametrize("kernels", ["cpu", "reference"])
K = np.arange(12).reshape(4, 3) * 20  # bytes of four observations


def image_buffer(kernels="cpu", store=torch.uint8, capacity=8, **settings):
    fields = {"obs": Field((3,), store=store), "action": Field((2,), store=torch.float16)}
    return ReplayBuffer(capacity, fields, sampler=Uniform(), kernels=kernels, **settings)


def step(obs, action=(0.5, -2.0), next_obs=None):
    next_obs = obs if next_obs is None else next_obs
    numbers = {"reward": 1.0, "terminated": False, "truncated": False}
    return {"obs": obs, "action": np.float32(action), "next_obs": next_obs, **numbers}


GIVEN = {
    "floats": lambda k: (k / 255).astype(np.float32),
    "float64": lambda k: k / 255,
    "bytes": lambda k: k.astype(np.uint8),
    "a float tensor": lambda k: torch.from_numpy((k / 255).astype(np.float32)),
    "a tensor of bytes": lambda k: torch.from_numpy(k.astype(np.uint8)),
    "a list": lambda k: (k / 255).tolist(),
}


@KERNELS
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("call", ["add", "extend"])
def test_k_over_255_comes_back_exactly_however_it_is_given(kernels, given, call):
    buffer, form = image_buffer(kernels), GIVEN[given]
    if call == "add":
        for k in K:
            buffer.add(**step(form(k)))
    else:
        buffer.extend(
            obs=form(K),
            action=np.float32([(0.5, -2.0)] * 4),
            reward=np.ones(4),
            next_obs=form(K),
            terminated=np.zeros(4, bool),
        )
    batch = buffer.rows(range(4))
    assert batch.obs.dtype == batch.next_obs.dtype == torch.float32
    expected = (K / 255).astype(np.float32)
    assert batch.obs.numpy().tolist() == batch.next_obs.numpy().tolist() == expected.tolist()
    assert batch.action.tolist() == [[0.5, -2.0]] * 4
    assert buffer.stats()["out_of_range"] == 0
    buffer.check()


@KERNELS
@pytest.mark.parametrize("n_step", [1, 3])
def test_values_out_of_range_are_held_and_counted(kernels, n_step):
    buffer = image_buffer(kernels, n_step=n_step)
    buffer.add(**step(np.float32([-0.5, 0.2, 1.5]), (1e6, 0.0), np.float32([0.0, 0.2, 7.0])))
    buffer.add(**step(np.float32([0.0, 0.2, 1.0])))
    buffer.end_episode()
    assert buffer.stats()["out_of_range"] == 4
    batch = buffer.rows([0])
    assert batch.obs[0].tolist() == pytest.approx([0.0, 0.2, 1.0], abs=0.5 / 255)
    assert batch.action[0].tolist() == [65504.0, 0.0]
    nan = np.float32([np.nan, 0, 0])
    buffer.extend(
        obs=nan[None],
        action=np.zeros((1, 2), np.float32),
        reward=np.zeros(1),
        next_obs=nan[None],
        terminated=np.zeros(1, bool),
    )
    assert buffer.stats()["out_of_range"] == 6


def test_a_refused_step_counts_nothing():
    buffer = image_buffer()
    with pytest.raises(InputError):
        buffer.add(**{**step(np.float32([2, 2, 2])), "terminated": 3.5})
    assert buffer.stats()["out_of_range"] == 0
    assert len(buffer) == 0


@pytest.mark.parametrize(
    "value",
    [np.int64([1, 2, 3]), np.array([True, False, True]), [0, 1, 1], torch.tensor([1, 2, 3])],
    ids=["int64", "bool", "a list of int", "an int64 tensor"],
)
def test_numbers_that_may_mean_bytes_or_floats_are_refused(value):
    buffer = image_buffer()
    with pytest.raises(InputError, match=r"obs: given .*, expected floats, or what is stored"):
        buffer.add(**step(value))


@pytest.mark.parametrize(
    ("dtype", "store"),
    [
        (torch.int64, torch.uint8),
        (torch.float16, torch.uint8),
        (torch.float32, torch.int8),
        (torch.uint8, torch.float32),
        (torch.float32, "uint8"),
    ],
    ids=str,
)
def test_a_store_that_has_no_meaning_is_refused(dtype, store):
    with pytest.raises(ConfigError, match="a float32 field is stored as"):
        Field((3,), dtype, store)


@KERNELS
def test_same_step_autoreset_stores_final_observations_in_fewer_bits(kernels):
    buffer = image_buffer(kernels, num_envs=2, autoreset="same_step")
    obs = np.float32([[0.2] * 3, [0.4] * 3])
    buffer.add(
        obs=obs,
        action=np.zeros((2, 2), np.float32),
        reward=np.zeros(2),
        next_obs=obs,
        terminated=np.array([False, True]),
        truncated=np.zeros(2, bool),
        final_obs=np.array([None, np.float32([0.6, 0.8, 3.0])], dtype=object),
    )
    batch = buffer.rows([0, 1])
    expected = [[0.2] * 3, [0.6, 0.8, 1.0]]
    assert batch.next_obs.numpy() == pytest.approx(np.float32(expected), abs=1e-6)
    assert buffer.stats()["out_of_range"] == 1


def test_a_batch_larger_than_the_caches_is_the_same_in_both():
    fields = {"obs": Field((3, 70_001), store=torch.uint8), "action": Field()}
    batches = []
    for kernels in ("cpu", "reference"):
        buffer = ReplayBuffer(4, fields, kernels=kernels)
        rng = np.random.default_rng(0)
        for _ in range(4):
            obs = rng.integers(0, 256, (3, 70_001)).astype(np.uint8)
            buffer.add(
                obs=obs,
                action=0.0,
                reward=0.0,
                next_obs=255 - obs,
                terminated=False,
                truncated=False,
            )
        batches.append(buffer.sample(24))  # 20 MB a field
    for name in ("obs", "next_obs", "ids"):
        assert torch.equal(batches[0][name], batches[1][name])


@pytest.mark.parametrize(
    ("field", "gigabytes"),
    [
        (Field((4, 84, 84)), 22.6),
        (Field((4, 84, 84), store=torch.uint8), 5.6),
        (Field((4, 84, 84), torch.uint8), 5.6),
        (Field((4, 84, 84), store=torch.float16), 11.3),
    ],
    ids=str,
)
def test_a_plan_tells_what_storing_in_fewer_bits_saves(field, gigabytes):
    planned = plan(100_000, {"obs": field, "action": Field((), torch.int64)}, batch_size=0)
    assert planned.total / 1e9 == pytest.approx(gigabytes, abs=0.05)


@KERNELS
@pytest.mark.parametrize(("n_step", "reward"), [(1, -0.0), (1, 0.0), (2, 0.0)])
def test_the_sign_of_a_reward_of_zero_is_kept_where_nothing_is_folded(kernels, n_step, reward):
    buffer = image_buffer(kernels, n_step=n_step)
    buffer.add(**{**step(np.zeros(3, np.uint8)), "reward": reward, "terminated": True})
    assert torch.signbit(buffer.all().reward).tolist() == [np.signbit(reward)]


@pytest.mark.parametrize(
    ("dtype", "stored", "outside"),
    [
        (torch.float16, [1.0, 2.30078125, 448.0], 0),
        (torch.bfloat16, [1.0, 2.296875, 448.0], 0),
        (torch.float8_e4m3fn, [1.0, 2.25, 448.0], 0),
        (torch.float8_e4m3fnuz, [1.0, 2.25, math.nan], 1),  # the largest is 240
        (torch.float8_e5m2, [1.0, 2.5, 448.0], 0),
        (torch.float8_e5m2fnuz, [1.0, 2.5, 448.0], 0),
    ],
)
@pytest.mark.parametrize("form", [np.float32, torch.tensor])
def test_floats_of_every_width_are_taken(dtype, stored, outside, form):
    buffer = ReplayBuffer(4, {"obs": Field((3,), dtype), "action": Field()})
    given = form([1.0, 2.3, 448.0])
    buffer.add(obs=given, action=0.0, reward=0.0, next_obs=given, terminated=True, truncated=False)
    (found,) = buffer.rows([0]).obs.float().tolist()
    assert found == pytest.approx(stored, rel=0, abs=0, nan_ok=True)
    assert buffer.stats()["out_of_range"] == 2 * outside


@pytest.mark.parametrize("form", [np.array, torch.tensor])
def test_whole_numbers_that_are_too_large_for_a_float_are_counted(form):
    buffer = ReplayBuffer(4, {"obs": Field((2,), torch.float16), "action": Field()})
    given = form([100_000, 3])
    buffer.add(obs=given, action=0.0, reward=0.0, next_obs=given, terminated=True, truncated=False)
    assert buffer.rows([0]).obs.tolist() == [[math.inf, 3.0]]
    assert buffer.stats()["out_of_range"] == 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_bytes_are_the_nearest_to_numbers_of_any_precision(dtype):
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    if dtype.itemsize == 1:
        bits = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    exact = bits.view(dtype).double()
    values = bits[(exact >= 0) & (exact <= 1)].view(dtype)
    fields = {"obs": Field(values.shape, store=torch.uint8), "action": Field()}
    buffer = ReplayBuffer(2, fields)
    buffer.add(
        obs=values, action=0.0, reward=0.0, next_obs=values, terminated=True, truncated=False
    )
    wrong = buffer.rows([0]).obs[0].double() - values.double()
    assert wrong.abs().max() <= 0.5 / 255 + 1e-7


BORDERS = [0.0, -0.0, 1e-50, 1.1, 2.0**126, 2.0**127, -(2.0**128), 3.4028235e38, 3.4028236e38]
BORDERS += [1e300, -1e308, math.inf, -math.inf, math.nan]
DOUBLES = {
    "an array": np.array,
    "every second of an array": lambda v: np.stack([v, v], -1)[..., 0],
    "a foreign order of bytes": lambda v: np.array(v, ">f8"),
    "a tensor": lambda v: torch.tensor(v, dtype=torch.float64),
    "a negated tensor": lambda v: torch._neg_view(-torch.tensor(v, dtype=torch.float64)),
    "a tensor with a graph": lambda v: torch.tensor(v, dtype=torch.float64, requires_grad=True),
    "a list": lambda v: np.array(v).tolist(),
}


@pytest.mark.parametrize("form", DOUBLES)
@pytest.mark.parametrize("size", [1, 17, 8193])
@pytest.mark.parametrize("num_envs", [None, 1, 3])
@pytest.mark.parametrize("told", ["ignore", "raise"])
def test_float64_is_rounded_and_what_becomes_infinite_is_counted(form, size, num_envs, told):
    leading = () if num_envs is None else (num_envs,)
    settings = {} if num_envs is None else {"num_envs": num_envs, "autoreset": "disabled"}
    fields = {"obs": {"a": Field((size,))}, "action": Field((2,)), "own": Field()}
    buffer = ReplayBuffer(64, fields, **settings)
    give, flags = DOUBLES[form], np.zeros(leading, bool)
    counted = 0
    for value in BORDERS:
        values = np.ones((*leading, size))
        values[..., -1] = value
        numbers, pair = values[..., -1], values[..., [-1, -1]]
        with np.errstate(all=told):  # whatever NumPy was told elsewhere
            buffer.add(
                obs={"a": give(values)},
                action=give(pair),
                reward=give(numbers),
                next_obs={"a": give(values)},
                terminated=flags,
                truncated=flags,
                own=give(numbers),
            )
        with np.errstate(over="ignore"):
            stored = np.float32(value)
        expected = torch.full((num_envs or 1, 1), float(stored))
        counted += 6 * (num_envs or 1) * bool(np.isfinite(value) and np.isinf(stored))
        batch = buffer.rows(buffer.live_ids()[-(num_envs or 1) :])
        numbers = batch.reward[:, None], batch.own[:, None]
        for found in (batch.obs["a"][:, -1:], batch.action, *numbers):
            assert torch.equal(found.nan_to_num(7.0), expected.expand_as(found).nan_to_num(7.0))
        assert torch.equal(batch.next_obs["a"], batch.obs["a"]) or math.isnan(value)
        assert bool((batch.obs["a"][:, :-1] == 1.0).all())
        assert buffer.stats()["out_of_range"] == counted


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool, torch.bfloat16])
def test_a_tensor_of_the_stored_dtype_is_copied_as_it_is(dtype):
    buffer = ReplayBuffer(4, {"obs": Field((2, 3), dtype), "action": Field((), dtype)})
    obs = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(dtype)
    form = {"a view": obs.T.contiguous().T, "itself": obs}
    if dtype.is_floating_point:
        form |= {"with a graph": obs.clone().requires_grad_(), "negated": torch._neg_view(-obs)}
    for given in form.values():
        buffer.add(
            obs=given,
            action=given[1, 1],
            reward=torch.tensor(1.5),
            next_obs=given,
            terminated=torch.tensor(False),
            truncated=torch.tensor(True),
        )
        row = buffer.rows(buffer.live_ids()[-1:])
        assert torch.equal(row.obs[0], obs)
        assert torch.equal(row.next_obs[0], obs)
        assert torch.equal(row.action[0], obs[1, 1])
        assert not row.obs.requires_grad
        numbers = row.reward.item(), row.terminated.item(), row.truncated.item()
        assert numbers == (1.5, False, True)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "form",
    [
        lambda zeros: torch.nested.nested_tensor([zeros, zeros[:1]]),
        lambda zeros: zeros.to_sparse(),
        lambda zeros: zeros.to("meta"),
    ],
    ids=["nested", "sparse", "meta"],
)
def test_a_tensor_without_plain_memory_is_refused(form):
    buffer = ReplayBuffer(4, {"obs": Field((2,)), "action": Field()})
    good = np.zeros(2, np.float32)
    with pytest.raises(InputError, match="obs"):
        buffer.add(
            obs=form(torch.zeros(2)),
            action=0.0,
            reward=0.0,
            next_obs=good,
            terminated=False,
            truncated=False,
        )
    assert len(buffer) == 0
