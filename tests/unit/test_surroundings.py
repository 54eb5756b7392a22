"""A buffer works whatever torch's and Numba's global settings are."""

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

from relive import Field, RankBased, Recent, ReplayBuffer

ZEROS = np.zeros((3, 2), np.float32)


def made(**settings):
    fields = {"obs": Field((2,)), "action": Field()}
    return ReplayBuffer(10, fields, sampler=RankBased(), window=Recent(4), **settings)


def use(buffer):
    """Every kind of call once."""
    numbers = np.zeros(3, np.float32)
    buffer.extend(obs=ZEROS, action=numbers, reward=numbers, next_obs=ZEROS, terminated=numbers > 0)
    buffer.pin_demonstrations(3, reserve=2)
    buffer.add(
        obs=ZEROS[0], action=0.0, reward=1.0, next_obs=ZEROS[0], terminated=False, truncated=False
    )
    buffer.pin(buffer.live_ids()[:1])
    ids = buffer.sample(4).ids
    buffer.update_priorities(ids, np.ones(4))
    buffer.priorities(ids), buffer.all(), buffer.split(0.5), buffer.sample_range(2, 0, 9)
    buffer.stats(), buffer.check(), buffer.ready(2), buffer.grown(20).sample(2)
    buffer.clear()


@pytest.fixture
def default_device():
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def test_torch_may_have_another_default_device(default_device):
    use(made())


def test_with_another_default_device_a_buffer_is_saved_and_loaded(default_device, tmp_path):
    buffer = made()
    use(buffer)
    buffer.add(
        obs=ZEROS[0], action=0.0, reward=1.0, next_obs=ZEROS[0], terminated=False, truncated=False
    )
    buffer.save(tmp_path, note={"step": np.ones(2)})
    assert len(ReplayBuffer.load(tmp_path)) == len(ReplayBuffer.load(tmp_path, capacity=5)) == 1
    assert ReplayBuffer.saved_note(tmp_path)["step"].tolist() == [1, 1]


def test_a_buffer_made_in_inference_mode_can_be_used_outside_of_it():
    with torch.inference_mode():
        buffer = made()
        use(buffer)
    use(buffer)


def test_a_buffer_made_in_inference_mode_takes_tensors_outside_of_it():
    fields = {"obs": Field((2,)), "action": Field((), torch.bfloat16)}
    with torch.inference_mode():
        buffer = ReplayBuffer(10, fields)
    zero, never = torch.zeros(()), torch.tensor(False)
    buffer.add(
        obs=torch.ones(2),
        action=zero,
        reward=zero,
        next_obs=torch.ones(2),
        terminated=never,
        truncated=never,
    )
    assert buffer.all().obs.tolist() == [[1, 1]]


def test_a_default_dtype_changes_nothing():
    torch.set_default_dtype(torch.float64)
    try:
        buffer = made()
        use(buffer)
    finally:
        torch.set_default_dtype(torch.float32)
    assert buffer.empty_batch(2).weights.dtype == torch.float32


def test_without_compilation_kernels_are_refused_with_a_way_out():
    code = (
        "from relive import Field, ReplayBuffer, UnsupportedError\n"
        "fields = {'obs': Field(), 'action': Field()}\n"
        "ReplayBuffer(4, fields, kernels='reference')\n"
        "try:\n    ReplayBuffer(4, fields)\n"
        "except UnsupportedError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "NUMBA_DISABLE_JIT is set" in done.stdout


@pytest.mark.parametrize("form", [np.array, lambda x: torch.tensor(x, dtype=torch.float64)])
def test_doubles_that_float32_cannot_hold_are_infinite_and_counted(form):
    buffer = made()
    flag, flags = False, np.zeros(2, bool)
    buffer.add(
        obs=form([1e300, -1e300]),
        action=1e39,
        reward=-1e40,
        next_obs=[0.0, 1.0],
        terminated=flag,
        truncated=flag,
    )
    assert buffer.stats()["out_of_range"] == 4
    assert buffer.rows([0]).obs.tolist() == [[np.inf, -np.inf]]
    buffer.extend(
        obs=form([[1e300, 1.0], [np.inf, -1e39]]),
        action=flags * 1.0,
        reward=flags * 1.0,
        next_obs=ZEROS[:2],
        terminated=flags,
    )
    assert buffer.stats()["out_of_range"] == 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_can_use_the_buffer_whenever_it_was_forked():
    code = """
import os, threading
import numpy as np
from relive import Field, Mixture, Proportional, ReplayBuffer

buffer = ReplayBuffer(64, {"obs": Field(), "action": Field()}, sampler=Proportional())
mixture = Mixture([buffer], [1])
row = dict(obs=1.0, action=1.0, reward=1.0, next_obs=1.0, terminated=False, truncated=False)
buffer.add(**row)
mixture.sample(4)
stop = threading.Event()

def work():
    while not stop.is_set():
        buffer.add(**row)
        mixture.sample(4)

threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
for _ in range(30):
    child = os.fork()
    if child == 0:
        buffer.add(**row)
        mixture.sample(4)
        buffer.check()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], timeout=60, check=True, capture_output=True
    )
