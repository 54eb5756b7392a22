"""The state of a buffer as a dict, for torch.save."""

import io

import pytest
import torch

from relive import ConfigError, Field, InputError, ReplayBuffer
from tests.equivalence.states import assert_same_batch
from tests.properties.calls import Calls
from tests.unit.storage.test_saving import SPECS, advance, assert_same_where_held, numbered
from tests.unit.unchanged import refused


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_another_buffer_takes_it_over(spec):
    buffer, other = spec.buffer(), spec.buffer("reference")
    calls = Calls(spec, buffer, seed=2)
    advance(calls, 150, buffer)
    file = io.BytesIO()
    torch.save(buffer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    other.check()
    assert_same_where_held(buffer, other)
    advance(calls, 30, buffer, other)
    assert_same_where_held(buffer, other)


def test_it_is_a_copy():
    buffer = numbered(5)
    state = buffer.state_dict()
    then = buffer.all()
    numbers = torch.arange(3.0)
    pairs = torch.stack([numbers, -numbers], 1)
    buffer.extend(obs=pairs, action=numbers, reward=numbers, next_obs=pairs, terminated=numbers > 9)
    buffer.load_state_dict(state)
    assert_same_batch(buffer.all(), then)


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"capacity": 7}, "capacity is 1000, given 7"),
        ({"n_step": 2}, "n_step is 1, given 2"),
    ],
)
def test_a_buffer_with_other_settings_is_refused(other, named):
    buffer = numbered(5)
    with refused(buffer, ConfigError, match=named):
        buffer.load_state_dict(numbered(5, **{"capacity": 1000, **other}).state_dict())


def test_other_fields_are_refused():
    buffer = numbered(5)
    fields = {"obs": Field((3,)), "action": Field()}
    with refused(buffer, ConfigError, match=r"fields.obs.shape is \[2\], given \[3\]"):
        buffer.load_state_dict(ReplayBuffer(1000, fields, sampler=buffer.sampler).state_dict())


def test_what_is_no_state_is_refused():
    buffer = numbered(5)
    state = buffer.state_dict()
    rows = state["tensors"]["rows"]
    for wrong, named in (
        ({}, "settings and tensors"),
        (None, "settings and tensors"),
        ({**state, "settings": 3}, "are a dict"),
        ({**state, "tensors": {}}, "words has shape"),
        ({**state, "tensors": {**state["tensors"], "rows": rows[1:]}}, "rows has shape"),
        ({**state, "tensors": {**state["tensors"], "rows": rows.char()}}, r"rows is torch\.uint8"),
    ):
        with refused(buffer, (InputError, ConfigError), match=named):
            buffer.load_state_dict(wrong)
