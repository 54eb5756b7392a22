"""Values of any number of bytes come out as they went in."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from relive import Field, ReplayBuffer
from tests.equivalence.states import assert_same_batch, assert_same_state

SIZES = [*range(1, 70), 96, 127, 128, 129, 255, 256, 257, 300, 1000]
FIELDS = {
    "obs": Field((3,), torch.uint8),
    "half": Field((7,), store=torch.float16),
    "unit": Field((5,), store=torch.uint8),
    "brain": Field((9,), store=torch.bfloat16),
    "action": Field(),
    **{f"own_{size}": Field((size,), torch.uint8) for size in SIZES},
}


def steps(rng: np.random.Generator, count: int) -> dict[str, np.ndarray]:
    values = {
        name: rng.integers(0, 256, (count, *field.shape)).astype(np.uint8)
        for name, field in FIELDS.items()
        if name not in ("action", "half", "brain")
    }
    for name in ("half", "brain"):
        values[name] = rng.normal(size=(count, *FIELDS[name].shape))
    flags = np.zeros(count, bool)
    numbers = {"action": rng.normal(size=count), "reward": rng.normal(size=count)}
    return {**values, **numbers, "next_obs": values["obs"] ^ 1, "terminated": flags}


@pytest.fixture(params=[1, 3], ids="n_step={}".format)
def buffers(request: pytest.FixtureRequest) -> list[ReplayBuffer]:
    return [
        ReplayBuffer(20, FIELDS, kernels=kernels, n_step=request.param)
        for kernels in ("cpu", "reference")
    ]


@pytest.mark.parametrize("call", ["add", "extend"])
def test_fields_of_all_sizes_are_the_same_in_both(buffers: list[ReplayBuffer], call: str) -> None:
    given = steps(np.random.default_rng(0), 25)
    for buffer in buffers:
        if call == "extend":
            buffer.extend(**given)
        else:
            for t in range(25):
                values = {name: value[t] for name, value in given.items()}
                buffer.add(**values, truncated=False)
            buffer.end_episode()
    rows = [buffer.rows(range(5, 25)) for buffer in buffers]
    for name in ("obs", *(f"own_{size}" for size in SIZES)):
        np.testing.assert_array_equal(rows[0][name].numpy(), given[name][5:], err_msg=name)
    assert_same_batch(*rows)
    assert_same_batch(*(buffer.sample(7) for buffer in buffers))
    assert_same_state(*buffers)
