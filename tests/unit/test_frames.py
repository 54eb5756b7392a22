"""Fields of stacked frames: which are taken, and how much memory they need."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import FrameStackObservation

import relive
from relive import ConfigError, Field, ReplayBuffer, fields_of
from relive.frames import FrameLayout
from relive.storage.memory import layouts, plan

ATARI = (4, 84, 84)


@pytest.mark.parametrize(
    ("shape", "stack"),
    [((4, 84, 84), 3), ((), 1), ((4,), 0), ((4,), -1), ((4,), 2.5), ((4,), True), ((4,), "4")],
)
def test_a_stack_is_a_divisor_of_the_first_axis(shape, stack):
    with pytest.raises(ConfigError, match="stack"):
        Field(shape, torch.uint8, stack=stack)


@pytest.mark.parametrize("stack", [1, 2, 3, 6, np.int64(3)])
def test_a_frame_may_have_several_planes(stack):
    assert Field((6, 2), stack=stack).stack == int(stack)


@pytest.mark.parametrize(
    "fields",
    [
        {"obs": Field((2,)), "action": Field((2,), stack=2)},
        {"obs": Field((2,)), "action": Field(), "mask": Field((2,), stack=2)},
        {"obs": {"left": Field((2,), stack=2), "right": Field((2,), stack=2)}, "action": Field()},
    ],
    ids=["an action", "a field of one's own", "two"],
)
def test_frames_are_kept_once_of_one_observation(fields):
    with pytest.raises(ConfigError, match="stack= is for one field, in the observation"):
        ReplayBuffer(10, fields)


def test_fields_of_an_environment_have_its_stacks():
    env = FrameStackObservation(gym.make("CartPole-v1"), 4)
    assert fields_of(env)["obs"] == Field((4, 4))
    assert fields_of(env, stack=4)["obs"] == Field((4, 4), stack=4)
    with pytest.raises(ConfigError, match="a divisor of its size; given stack=3"):
        fields_of(env, stack=3)


def test_a_dict_of_observations_has_no_one_stack():
    space = gym.spaces.Dict({"image": gym.spaces.Box(0, 255, ATARI, np.uint8)})
    env = gym.Env()
    env.observation_space, env.action_space = space, gym.spaces.Discrete(2)
    with pytest.raises(ConfigError, match="give the field of the stack its own"):
        fields_of(env, stack=4)


def test_a_million_stacks_need_little_more_than_a_million_frames():
    whole, once = (
        plan(1_000_000, {"obs": Field(ATARI, torch.uint8, stack=stack), "action": Field()})
        for stack in (None, 4)
    )
    assert whole.frames == 0
    assert once.frames == pytest.approx(1.125e6 * 7_104, rel=1e-3)  # pitch: whole cache lines
    assert once.total < whole.total / 6.9
    assert once.total == once.frames + once.rows + once.priorities + once.tree + once.workspace


@pytest.mark.parametrize("num_envs", [1, 8])
@pytest.mark.parametrize("n_step", [1, 3])
def test_what_is_planned_is_what_is_held(num_envs, n_step):
    fields = {"obs": Field((4, 8), torch.uint8, stack=4), "action": Field()}
    buffer = ReplayBuffer(500, fields, num_envs=num_envs, n_step=n_step, autoreset="disabled")
    needed = plan(500, fields, num_envs=num_envs, n_step=n_step, batch_size=0)
    tensors = buffer._state.tensors()
    assert needed.frames == tensors["frames"].nbytes
    assert needed.rows == tensors["rows"].nbytes
    assert buffer.memory() == needed


def test_the_rows_of_a_stack_hold_only_ids():
    layouts = [
        {"obs": Field(ATARI, torch.uint8, stack=stack), "action": Field()} for stack in (None, 4)
    ]
    whole, once = (ReplayBuffer(10, fields).memory().row_bytes for fields in layouts)
    assert whole > 2 * 4 * 84 * 84
    assert once <= 32 + 2 * 4 * 8


def test_settings_with_stacks_are_told_apart():
    fields = {"obs": Field((4, 2), stack=4), "action": Field()}
    whole = {"obs": Field((4, 2)), "action": Field()}
    state = ReplayBuffer(10, fields).state_dict()
    with pytest.raises(ConfigError, match="other settings: fields"):
        ReplayBuffer(10, whole).load_state_dict(state)
    ReplayBuffer(10, fields).load_state_dict(state)


def test_a_stack_is_said_in_python_as_in_the_signature():
    assert relive.Field((4, 2), torch.uint8, None, 4) == Field((4, 2), torch.uint8, stack=4)


@pytest.mark.parametrize("size", [1, 5, 15, 16, 17, 64])
@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_what_a_row_takes_over_of_a_step_is_all_but_the_stacks(size, kind):
    fields = {
        "obs": {"arm": Field((3,)), "image": Field((2, size), torch.uint8, stack=2)},
        "action": Field((), torch.int64),
        "tag": Field((), torch.uint8),
    }
    step, row = layouts(fields, kind)
    frames = FrameLayout.of(step, row, 10, 1, 1)
    taken = [place for first, _, count in frames.moves for place in range(first, first + count)]
    written = [place for _, first, count in frames.moves for place in range(first, first + count)]
    assert len(set(written)) == len(written) == len(taken)
    for name, column in step.columns.items():
        ours, theirs = column.offset, row.columns[name].offset
        if name.endswith("image"):
            assert not set(range(ours, ours + column.nbytes)) & set(taken)
            assert not set(range(theirs, theirs + 2 * 8)) & set(written)
        else:
            moved = dict(zip(taken, written, strict=True))
            assert [moved[ours + k] for k in range(column.nbytes)] == [
                theirs + k for k in range(column.nbytes)
            ]


def test_frames_along_the_last_axis_are_refused_with_the_shape_to_give():
    with pytest.raises(ConfigError, match=r"give them as \(4, 84, 84\)"):
        Field((84, 84, 4), torch.uint8, stack=4)
    assert Field((4, 84, 4), torch.uint8, stack=4).stack == 4  # along the first, it seems


def test_a_buffer_for_an_environment_takes_its_stacks():
    env = FrameStackObservation(gym.make("CartPole-v1"), 4)
    assert ReplayBuffer.for_env(env, 10, stack=4)._state.keeps_frames
    with pytest.raises(ConfigError, match="where fields= is given"):
        ReplayBuffer.for_env(env, 10, fields=fields_of(env), stack=4)


def test_what_differs_in_fields_is_said_part_by_part():
    fields = {"obs": {"image": Field(ATARI, stack=4), "x": Field()}, "action": Field()}
    whole = {"obs": {"image": Field(ATARI), "x": Field()}, "action": Field((2,))}
    state = ReplayBuffer(10, fields).state_dict()
    expected = (
        r"other settings: fields.obs.image.stack is None, given 4; "
        r"fields.action.shape is \[2\], given \[\]$"
    )
    with pytest.raises(ConfigError, match=expected):
        ReplayBuffer(10, whole).load_state_dict(state)


def test_a_buffer_shows_that_it_keeps_frames_once():
    fields = {"obs": Field((4, 2), torch.uint8, stack=4), "action": Field()}
    whole = {**fields, "obs": Field((4, 2), torch.uint8)}
    shown = [repr(ReplayBuffer(8, each)) for each in (fields, whole)]
    assert ["frames kept once, cpu)" in text for text in shown] == [True, False]
