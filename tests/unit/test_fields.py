"""Fields and the packed row."""

import gymnasium as gym
import numpy as np
import pytest
import torch

from relive import ConfigError, Field, fields_of
from relive.fields import RowLayout

OBS = {"obs": Field((4,)), "action": Field((), torch.int64)}


def test_row_bytes_are_those_of_the_design():
    table = [  # fields, row_bytes on the CPU
        ({"obs": Field((17,)), "action": Field((6,))}, 192),
        ({"obs": Field((4,)), "action": Field((1,))}, 64),
        ({"obs": Field((51,)), "action": Field((1,))}, 448),
        ({"obs": Field((4, 84, 84), torch.uint8), "action": Field((), torch.int64)}, 56_480),
    ]
    for fields, row_bytes in table:
        assert RowLayout(fields).row_bytes == row_bytes


def test_every_column_is_aligned_and_none_overlap():
    fields = {
        "obs": {"image": Field((3, 5), torch.uint8), "pose": {"xy": Field((2,), torch.float64)}},
        "action": Field((3,), torch.int16),
        "mark": Field((), torch.bool),
        "log_prob": Field((), torch.bfloat16),
    }
    layout = RowLayout(fields, alignment=32)
    assert layout.row_bytes % 32 == 0
    end = 0
    for column in layout.columns.values():
        assert column.offset % column.field.dtype.itemsize == 0
        assert column.offset >= end
        end = column.offset + column.field.nbytes
    assert end <= layout.row_bytes
    assert layout.tree["next_obs"] == {
        "image": "next_obs.image",
        "pose": {"xy": "next_obs.pose.xy"},
    }
    following = layout.columns["next_obs.pose.xy"]
    assert layout.next_offset <= layout.columns["next_obs.image"].offset
    assert layout.next_offset + layout.next_bytes == following.offset + following.field.nbytes


def test_fields_of_an_environment_follow_its_spaces():
    class Env:
        observation_space = gym.spaces.Dict(
            {
                "image": gym.spaces.Box(0, 255, (2, 3), np.uint8),
                "pose": gym.spaces.Box(-1, 1, (2,), np.float64),
                "mode": gym.spaces.Discrete(3),
            }
        )
        action_space = gym.spaces.Box(-1, 1, (2,), np.float64)

    assert fields_of(Env()) == {
        "obs": {
            "image": Field((2, 3), torch.uint8),
            "pose": Field((2,), torch.float32),
            "mode": Field((), torch.int64),
        },
        "action": Field((2,), torch.float32),
    }


def test_fields_of_a_vector_environment_are_those_of_one():
    envs = gym.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    assert fields_of(envs) == {"obs": Field((4,)), "action": Field((), torch.int64)}
    envs.close()


REFUSED_FIELDS = [
    ({"obs": Field((4,))}, "fields needs 'action'"),
    ({**OBS, "reward": Field()}, r"\['reward'\] are relive's own"),
    ({**OBS, "next_obs": Field()}, r"\['next_obs'\] are relive's own"),
    ({**OBS, "_hidden": Field()}, "public Python identifier"),
    ({**OBS, "log prob": Field()}, "public Python identifier"),
    ({**OBS, "keys": Field()}, r"\['keys'\] are relive's own"),
    ({**OBS, "extra": 3}, "'extra' is a Field or a mapping"),
    ({**OBS, "extra": {}}, "'extra' is a Field or a mapping"),
    ({**OBS, "extra": {"a.b": Field()}}, "no dots"),
    ({**OBS, "extra": {1: Field(), "1": Field()}}, "are strings"),
    ({**OBS, 5: Field()}, "public Python identifier"),
    ({**OBS, "self": Field()}, r"\['self'\] are relive's own"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED_FIELDS)
def test_fields_that_cannot_be_stored_are_refused(fields, message):
    with pytest.raises(ConfigError, match=message):
        RowLayout(fields)


@pytest.mark.parametrize("shape", [(0,), (-1,), (2.0,), (True,)])
def test_a_shape_that_is_none_is_refused(shape):
    with pytest.raises(ConfigError, match="sizes >= 1"):
        Field(shape)


def test_a_shape_that_is_a_number_is_refused_with_the_tuple_that_is_meant():
    with pytest.raises(ConfigError, match=r"a tuple, \(3,\) say; given 3"):
        Field(3)


@pytest.mark.parametrize("dtype", [torch.complex64, "float32", None])
def test_a_dtype_that_is_none_is_refused(dtype):
    with pytest.raises(ConfigError, match=r"real torch\.dtype"):
        Field((), dtype)


@pytest.mark.parametrize("space", [gym.spaces.Text(5), gym.spaces.Tuple([gym.spaces.Discrete(2)])])
def test_a_space_that_is_no_field_is_refused_with_the_wrapper_that_helps(space):
    class Env:
        observation_space = space
        action_space = gym.spaces.Discrete(2)

    with pytest.raises(
        ConfigError, match=r"is none of Box.*gymnasium\.wrappers\.FlattenObservation"
    ):
        fields_of(Env())
    Env.observation_space, Env.action_space = Env.action_space, space
    with pytest.raises(
        ConfigError, match=r"the action space .*gymnasium\.wrappers\.TransformAction"
    ):
        fields_of(Env())
