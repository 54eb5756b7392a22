"""Files of demonstrations into a buffer on a GPU."""

from pathlib import Path

import numpy as np
import pytest

from relive import Field, Proportional, ReplayBuffer
from relive.demos import Filter, load
from tests.triton.pretended import pretended
from tests.triton.sameness import assert_same_batch_there, assert_same_buffer_there

WRITTEN = Path(__file__).parents[2] / "unit" / "demos" / "written" / "lerobot_0.4.4"
FIELDS = {"obs": Field((3,)), "action": Field((2,))}


def buffer_on(device):
    return ReplayBuffer(
        30, FIELDS, sampler=Proportional(), n_step=2, demo_fraction=0.5, device=device
    )


@pytest.mark.parametrize("pin", [True, False])
def test_rows_of_a_file_are_there_as_they_are_on_the_cpu(pin):
    with pretended() as device:
        cpu, gpu = (buffer_on(name) for name in ("cpu", "cuda"))
        told = [
            load(
                buffer,
                WRITTEN,
                pin=pin,
                where=Filter(min_return=20.0),
                last_step="repeat",
                done_means="terminated",
            )
            for buffer in (cpu, gpu)
        ]
        assert told[0] == told[1]
        assert told[0].episodes == 2
        assert_same_buffer_there(device, gpu, cpu)
        for buffer in (cpu, gpu):
            rng = np.random.default_rng(0)
            for _ in range(20):
                buffer.add(
                    obs=rng.standard_normal((1, 3)),
                    action=rng.standard_normal((1, 2)),
                    reward=rng.standard_normal(1),
                    next_obs=rng.standard_normal((1, 3)),
                    terminated=[False],
                    truncated=[False],
                )
        assert_same_batch_there(device, gpu.sample(8), cpu.sample(8))
        assert_same_buffer_there(device, gpu, cpu)
