"""Devices that are not there, and priorities where there are none or for rows that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relive import InputError, ReplayBuffer, UnsupportedError
from tests.faults.tagged import FIELDS, held, leaves, prioritized, root, row, rows, uniform, write


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda:1")])
def test_F46_a_device_that_is_not_there_is_refused_at_construction(device: Any) -> None:
    with pytest.raises(UnsupportedError, match="no CUDA device"):
        ReplayBuffer(4, FIELDS, device=device)


@pytest.mark.parametrize("device", ["meta", "mps", "nonsense", "cpu:x", 1.5])
def test_F46_a_device_that_is_not_known_is_refused_at_construction(device: Any) -> None:
    with pytest.raises(UnsupportedError, match="device is 'cpu' or 'cuda"):
        ReplayBuffer(4, FIELDS, device=device)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), None])
def test_F46_a_batch_that_stays_on_its_device_is_not_copied(device: Any) -> None:
    buffer = write(uniform(4), range(4))
    batch = buffer.sample(4, device=device)
    assert batch.device == buffer.device == torch.device("cpu")
    assert batch.to("cpu") is batch


def test_F53_priorities_of_a_uniform_buffer_are_refused(kernels: str) -> None:
    buffer = write(uniform(4, kernels), range(4))
    assert not buffer.prioritized
    with pytest.raises(UnsupportedError, match="draws uniformly"):
        buffer.update_priorities([0], [1.0])
    with pytest.raises(UnsupportedError, match="draws uniformly"):
        buffer.priorities([0])


UPDATES: dict[str, tuple[Any, Any]] = {
    "an id that was never given out": ([0, 4], [1.0, 1.0]),
    "a negative id": ([-1], [1.0]),
    "an id far away": ([2**62], [1.0]),
    "more errors than ids": ([0, 1], [1.0, 2.0, 3.0]),
    "more ids than errors": ([0, 1], [1.0]),
    "a column of errors": ([0, 1], torch.ones(2, 1)),
    "a column of ids": (torch.zeros(2, 1, dtype=torch.int64), [1.0, 1.0]),
    "one number": (0, 1.0),
    "ids that are no integers": ([0.0, 1.0], [1.0, 1.0]),
    "ids that are flags": ([True, False], [1.0, 1.0]),
    "complex errors": ([0], torch.ones(1, dtype=torch.complex64)),
    "no numbers": ([0], ["high"]),
    "a ragged list": ([0, 1], [[1.0], [1.0, 2.0]]),
}


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("kind", ["td_errors", "priorities"])
def test_F53_a_wrong_update_is_refused_and_the_tree_is_unchanged(
    kernels: str, name: str, kind: str
) -> None:
    buffer = write(prioritized(8, kernels), range(4))
    ids, values = UPDATES[name]
    with pytest.raises(InputError):
        buffer.update_priorities(ids, **{kind: values})
    assert leaves(buffer) == [1] * 4
    assert root(buffer) == 4
    assert buffer.stats()["priority_updates"] == 0
    buffer.check()


@pytest.mark.parametrize("arguments", [{}, {"td_errors": [1.0], "priorities": [1.0]}])
def test_F53_an_update_takes_errors_or_priorities(kernels: str, arguments: Any) -> None:
    buffer = write(prioritized(4, kernels), range(4))
    with pytest.raises(InputError, match="either"):
        buffer.update_priorities([0], **arguments)


@pytest.mark.parametrize("ids", [[4], [-1], [0, 9], [], 0, [0.0], [[0]], ["a"], None])
@pytest.mark.parametrize("call", ["rows", "priorities"])
def test_F53_rows_that_are_not_held_cannot_be_read(kernels: str, ids: Any, call: str) -> None:
    buffer = write(prioritized(8, kernels), range(4))
    with pytest.raises(InputError):
        getattr(buffer, call)(ids)


def test_F53_rows_that_were_overwritten_cannot_be_read(kernels: str) -> None:
    buffer = write(prioritized(4, kernels), range(6))
    assert buffer.rows([5, 2]).obs.tolist() == [5, 2]
    with pytest.raises(InputError, match=r"2\.\.\.5"):
        buffer.rows([1])


# What is wrong with one step of a buffer of two environments.
STEPS: dict[str, dict[str, Any]] = {
    "obs without environments": {"obs": 1.0},
    "reward of one environment": {"reward": [1.0]},
    "reward of three": {"reward": [1.0, 2.0, 3.0]},
    "a matrix of rewards": {"reward": [[1.0], [2.0]]},
    "flags that are numbers": {"terminated": [0, 1]},
    "next_obs of another shape": {"next_obs": [[1.0, 2.0], [3.0, 4.0]]},
    "an unknown field": {"log_prob": [0.0, 0.0]},
    "a final observation nobody asked for": {"final_obs": [1.0, 1.0]},
    "a ragged list": {"obs": [[1.0], [1.0, 2.0]]},
    "a mapping": {"obs": {"position": [1.0, 2.0]}},
}


@pytest.mark.parametrize("name", STEPS)
def test_F53_a_wrong_step_is_refused_and_nothing_has_changed(kernels: str, name: str) -> None:
    buffer = uniform(8, kernels, num_envs=2, autoreset="disabled", n_step=2)
    good = {key: [value, value] for key, value in row(1).items()}
    buffer.add(**good)
    buffer.add(**good)
    before = {key: tensor.clone() for key, tensor in buffer._state.tensors().items()}
    with pytest.raises(InputError):
        buffer.add(**{**good, **STEPS[name]})
    for key, tensor in buffer._state.tensors().items():
        assert torch.equal(tensor, before[key]), key
    buffer.add(**good)  # and the next good one is as good as ever
    assert [reward for reward, *_ in held(buffer).values()] == [3.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"reward": np.ones(3)},
        {"obs": np.ones((4, 2))},
        {"terminated": np.zeros(4)},
        {"env": 1},
        {"env": True},
        {"env": -1},
        {"discount": np.ones(3)},
        {"reward": 1.0},
    ],
    ids=str,
)
def test_F53_a_wrong_stream_is_refused_and_nothing_has_changed(kernels: str, wrong: Any) -> None:
    buffer = write(uniform(8, kernels), range(2))
    with pytest.raises(InputError):
        buffer.extend(**{**rows(range(4)), **wrong})
    assert list(held(buffer)) == [0, 1]


def test_F53_an_episode_of_an_environment_that_is_none_cannot_be_ended(kernels: str) -> None:
    buffer = uniform(8, kernels)
    for env in (1, -1, True, 0.5):
        with pytest.raises(InputError, match="env is one of"):
            buffer.end_episode(env)


@pytest.mark.parametrize("batch_size", [0, -1, 1.5, True, "4"])
def test_F53_a_batch_size_that_is_no_count_is_refused(kernels: str, batch_size: Any) -> None:
    buffer = write(uniform(8, kernels), range(2))
    with pytest.raises(InputError, match="batch_size"):
        buffer.sample(batch_size)


def test_F53_a_batch_of_another_size_or_buffer_cannot_be_filled(kernels: str) -> None:
    buffer, other = (write(uniform(8, kernels), range(2)) for _ in range(2))
    out = buffer.empty_batch(4)
    assert buffer.sample(4, out=out) is out
    for wrong, size in ((out, 8), (other.empty_batch(4), 4), ({}, 4)):
        with pytest.raises(InputError, match="out"):
            buffer.sample(size, out=wrong)
    assert buffer.stats()["samples"] == 1
