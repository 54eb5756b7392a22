"""What is saved, resumed or copied goes on as the original would."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from relive import Proportional, ReplayBuffer
from relive.errors import ConfigError
from relive.training import resume, run
from tests.equivalence.states import assert_same_batch
from tests.faults.tagged import FIELDS, write
from tests.unit.training.test_resume import Interrupt, assert_same_run
from tests.unit.training.tiny import tiny

if TYPE_CHECKING:
    from pathlib import Path


def filled() -> ReplayBuffer:
    return write(ReplayBuffer(8, FIELDS, sampler=Proportional(), seed=3), range(11))


def next_ids(buffer: ReplayBuffer, batches: int) -> list[list[int]]:
    return [buffer.sample(4).ids.tolist() for _ in range(batches)]


def test_F47_a_sampler_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    buffer = filled()
    next_ids(buffer, 3)
    buffer.save(tmp_path)
    twin = ReplayBuffer.load(tmp_path)
    assert next_ids(twin, 5) == next_ids(buffer, 5)


def test_F47_saved_loaded_and_saved_elsewhere_needs_nothing_of_the_first(tmp_path: Path) -> None:
    buffer = filled()
    buffer.save(tmp_path / "first")
    loaded = ReplayBuffer.load(tmp_path / "first")
    loaded.save(tmp_path / "second")
    shutil.rmtree(tmp_path / "first")
    again = ReplayBuffer.load(tmp_path / "second")
    assert_same_batch(again.all(), buffer.all())
    assert next_ids(again, 3) == next_ids(buffer, 3)


def test_F48_resumed_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    run(tiny(out=tmp_path / "whole", total_steps=2000))
    run(tiny(out=tmp_path / "broken", total_steps=2000), [Interrupt(1000)])
    resume(tmp_path / "broken")
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def test_F48_another_capacity_or_environment_is_loud(tmp_path: Path) -> None:
    run(tiny(out=tmp_path), [Interrupt(150)])
    with pytest.raises(ConfigError, match=r"replay\.capacity was 200, given 100"):
        resume(tmp_path, config=tiny(out=tmp_path, replay={"capacity": 100}))


def sample_elsewhere(buffer: ReplayBuffer, answers: multiprocessing.Queue[list[int]]) -> None:
    answers.put(buffer.sample(4).ids.tolist())


def spawned(buffer: ReplayBuffer) -> list[int]:
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    child = context.Process(target=sample_elsewhere, args=(buffer, answers))
    child.start()
    ids: list[int] = answers.get(timeout=60)
    child.join(60)
    return ids


COPIES = {
    "pickle": lambda buffer: pickle.loads(pickle.dumps(buffer)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
}


@pytest.mark.parametrize("rows", [0, 11], ids=["fresh", "filled"])
@pytest.mark.parametrize("way", COPIES)
def test_F49_a_copy_is_equal_draws_the_same_and_is_no_alias(way: str, rows: int) -> None:
    buffer = write(ReplayBuffer(8, FIELDS, sampler=Proportional(), seed=3), range(rows))
    other = COPIES[way](buffer)
    assert torch.equal(other.live_ids(), buffer.live_ids())
    before = len(buffer)
    write(other, [50.0])
    assert len(buffer) == before
    write(buffer, [50.0])
    assert_same_batch(other.all(), buffer.all())
    assert next_ids(other, 3) == next_ids(buffer, 3)


def test_F49_a_buffer_that_is_being_saved_can_be_copied(tmp_path: Path) -> None:
    buffer = filled()
    saving = buffer.save(tmp_path, background=True)
    other = pickle.loads(pickle.dumps(buffer))
    saving.result(60)
    assert next_ids(other, 2) == next_ids(buffer, 2)
    other.save(tmp_path)


def test_F49_a_buffer_can_be_sent_to_another_process() -> None:
    buffer = filled()
    np.testing.assert_array_equal(spawned(buffer), buffer.sample(4).ids)
