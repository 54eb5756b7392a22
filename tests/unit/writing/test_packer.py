"""What may be stored in which field, and what is refused."""

import numpy as np
import pytest
import torch

from relive import Field, InputError, ReplayBuffer

GOOD = [  # dtype of the field, value given, value stored
    (torch.float32, 1.5, 1.5),
    (torch.float32, np.float64(0.1), np.float32(0.1)),
    (torch.float32, 3, 3.0),
    (torch.float32, torch.tensor(2.5, dtype=torch.float64), 2.5),
    (torch.float32, np.int64(7), 7.0),
    (torch.float32, 16_777_217, 16_777_216.0),  # rounded: float32 has 24 bits
    (torch.float64, 16_777_217.0, 16_777_217.0),
    (torch.float16, 1.0009765625, 1.0009765625),
    (torch.bfloat16, 1.0, 1.0),
    (torch.bfloat16, np.float32(3.0), 3.0),
    (torch.int64, 2**62 + 1, 2**62 + 1),
    (torch.int64, np.int32(-5), -5),
    (torch.int64, torch.tensor(5, dtype=torch.uint8), 5),
    (torch.uint8, 255, 255),
    (torch.uint8, np.int64(0), 0),
    (torch.bool, True, True),
    (torch.bool, np.bool_(False), False),
    (torch.bool, torch.tensor(True), True),
    (torch.float32, torch.tensor(1.0, requires_grad=True), 1.0),
]

BAD = [  # dtype of the field, value given, message
    (torch.int64, 1.5, "expected torch.int64"),
    (torch.uint8, 256, "expected torch.uint8"),
    (torch.uint8, -1, "expected torch.uint8"),
    (torch.uint8, torch.tensor(3), "expected torch.uint8"),
    (torch.bool, 1, "expected torch.bool"),
    (torch.bool, 0.0, r"expected torch.bool .*; pass bool\(extra\)$"),
    (torch.bool, torch.tensor(0.0), r"expected torch.bool .*; pass extra\.bool\(\)$"),
    (torch.float32, "high", "expected torch.float32"),
    (torch.float32, None, "expected torch.float32"),
    (torch.float32, 1j, "expected torch.float32"),
    (torch.float32, [1.0], r"given shape \(1,\), expected \(\); pass extra\.squeeze\(-1\)$"),
    (torch.float32, [[1.0], [1.0, 2.0]], "not an array"),
    (torch.bfloat16, "high", "expected torch.bfloat16"),
    (torch.int64, 2**64, "expected torch.int64"),
]


def _buffer(dtype):
    return ReplayBuffer(3, {"obs": Field((2,)), "action": Field(), "extra": Field((), dtype)})


def _add(buffer, **changed):
    step = {
        "obs": [0.0, 0.0],
        "action": 0.0,
        "reward": 0.0,
        "next_obs": [0.0, 0.0],
        "terminated": False,
        "truncated": False,
        "extra": 0,
    }
    buffer.add(**{**step, **changed})


@pytest.mark.parametrize(("dtype", "given", "stored"), GOOD)
def test_a_value_that_fits_is_stored_in_the_dtype_of_its_field(dtype, given, stored):
    buffer = _buffer(dtype)
    _add(buffer, extra=given)
    extra = buffer.rows([0]).extra
    assert extra.dtype == dtype
    assert extra.item() == stored


@pytest.mark.parametrize(("dtype", "given", "message"), BAD)
def test_a_value_that_does_not_fit_is_refused_before_anything_changes(dtype, given, message):
    buffer = _buffer(dtype)
    zero = False if dtype == torch.bool else 0
    _add(buffer, extra=zero)
    before = {name: tensor.clone() for name, tensor in buffer._state.tensors().items()}
    with pytest.raises(InputError, match=message):
        _add(buffer, extra=given)
    assert all(torch.equal(before[name], now) for name, now in buffer._state.tensors().items())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"obs": [0.0]}, r"obs: given shape \(1,\), expected \(2,\)"),
        ({"next_obs": [[0.0, 0.0]]}, r"next_obs: given shape \(1, 2\), expected \(2,\)"),
        ({"terminated": [False]}, r"terminated: given shape \(1,\), expected \(\)"),
        ({"obs": {"pose": [0.0, 0.0]}}, r"obs: given shape \(\), expected \(2,\)"),
        ({"unknown": 1}, r"own fields are \['extra'\]; unknown: \['unknown'\]"),
        ({"final_obs": [0.0, 0.0]}, "belongs to autoreset='same_step'"),
    ],
)
def test_a_step_of_another_form_is_refused(changed, message):
    buffer = _buffer(torch.float32)
    with pytest.raises(InputError, match=message):
        _add(buffer, **changed)
    assert len(buffer) == 0


@pytest.mark.parametrize(
    ("left_out", "given", "message"),
    [
        ("reward", {"reward": 0.0, "rewrad": 1.0}, r"\['rewrad'\]; did you mean 'reward'\?$"),
        ("extra", {"exrta": 1.0}, r"missing: \['extra'\]; unknown: .* did you mean 'extra'\?$"),
        (
            "truncated",
            {"done": False},
            r"missing: \['truncated'\].*done is either terminated or tr",
        ),
        ("terminated", {"dones": False}, r"missing: \['terminated'\].*dones is either terminated"),
        ("truncated", {"truncation": False}, r"unknown: .* did you mean 'truncated'\?$"),
        ("terminated", {}, r"^missing: \['terminated'\]$"),
    ],
)
def test_a_name_that_is_wrong_is_answered_with_the_one_that_is_meant(left_out, given, message):
    buffer = _buffer(torch.float32)
    step = {"obs": [0.0, 0.0], "action": 0.0, "reward": 0.0, "next_obs": [0.0, 0.0]}
    step |= {"terminated": False, "truncated": False, "extra": 0.0}
    step = {name: value for name, value in step.items() if name != left_out} | given
    with pytest.raises(InputError, match=message):
        buffer.add(**step)
    if left_out == "terminated":
        many = {name: [value] for name, value in step.items()}
        with pytest.raises(InputError, match=message):
            buffer.extend(**many)
    assert len(buffer) == 0


def test_a_missing_own_field_is_refused():
    buffer = _buffer(torch.float32)
    with pytest.raises(InputError, match=r"missing: \['extra'\]"):
        buffer.add(
            obs=[0.0, 0.0],
            action=0.0,
            reward=0.0,
            next_obs=[0.0, 0.0],
            terminated=False,
            truncated=False,
        )


def test_a_dict_observation_needs_exactly_its_keys():
    buffer = ReplayBuffer(3, {"obs": {"a": Field(), "b": Field((2,))}, "action": Field()})
    step = {"action": 0.0, "reward": 0.0, "terminated": False, "truncated": False}
    good = {"a": 1.0, "b": [2.0, 3.0]}
    buffer.add(obs=good, next_obs=good, **step)
    for bad in ({"a": 1.0}, {**good, "c": 0.0}, [1.0], None):
        with pytest.raises(InputError, match=r"obs: .*keys \['a', 'b'\]"):
            buffer.add(obs=bad, next_obs=good, **step)
    assert buffer.rows([0]).obs["b"].tolist() == [[2.0, 3.0]]


def test_the_leading_axis_of_one_environment_may_be_given_or_left_out():
    buffer = _buffer(torch.float32)
    _add(buffer)
    _add(
        buffer,
        obs=[[1.0, 2.0]],
        action=[0.0],
        reward=[1.0],
        next_obs=[[0.0, 0.0]],
        terminated=[False],
        truncated=[False],
        extra=[0],
    )
    assert buffer.rows([1]).obs.tolist() == [[1.0, 2.0]]


def test_arrays_that_are_not_contiguous_are_stored_right():
    buffer = _buffer(torch.float32)
    wide = np.arange(8, dtype=np.float32)
    _add(buffer, obs=wide[::4], next_obs=torch.arange(8.0)[1::4])
    row = buffer.rows([0])
    assert (row.obs.tolist(), row.next_obs.tolist()) == ([[0.0, 4.0]], [[1.0, 5.0]])


@pytest.mark.parametrize(
    ("reward", "obs", "hint"),
    [
        (np.ones(1), np.zeros(2), r"expected \(1, 2\); it has no leading axis, as the reward has$"),
        (
            1.0,
            np.zeros((1, 2)),
            r"expected \(2,\); it has a leading axis, and the reward has none$",
        ),
        (1.0, np.zeros((2, 1)), r"expected \(2,\); pass obs\.squeeze\(-1\)$"),
        (1.0, np.zeros(3), r"expected \(2,\)$"),
    ],
)
def test_a_shape_beside_the_right_one_is_told_what_it_lacks(reward, obs, hint):
    buffer = ReplayBuffer(3, {"obs": Field((2,)), "action": Field()})
    numbers = {"action": 0.0, "terminated": False, "truncated": False}
    with pytest.raises(InputError, match=hint):
        buffer.add(obs=obs, next_obs=np.zeros(2), reward=reward, **numbers)
