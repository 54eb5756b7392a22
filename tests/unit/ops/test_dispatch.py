"""Which kernels run where."""

import pytest
import torch

from relive import ConfigError, Field, ReplayBuffer, UnsupportedError
from relive.devices import known_device
from relive.ops.dispatch import HOST_KNOWS, OPERATIONS, operations

FIELDS = {"obs": Field(), "action": Field()}


@pytest.mark.parametrize(
    ("kernels", "module"), [("auto", "cpu"), ("cpu", "cpu"), ("reference", "reference")]
)
def test_every_operation_has_an_implementation(kernels, module):
    found = operations(torch.device("cpu"), kernels)
    for operation, folder in OPERATIONS.items():
        assert getattr(found, operation).__module__ == f"relive.ops.{folder}.{module}"


def test_every_device_has_its_kernels_and_the_reference_runs_on_any():
    cuda = torch.device("cuda:0")
    assert operations(cuda, "reference").write.__module__.endswith("reference")
    found = operations(cuda)
    for operation, folder in OPERATIONS.items():
        if operation not in HOST_KNOWS:
            assert getattr(found, operation).__module__ == f"relive.ops.{folder}.cuda"
    with pytest.raises(UnsupportedError, match="kernels='cpu' run on the CPU"):
        operations(cuda, "cpu")
    with pytest.raises(ConfigError, match="kernels is one of auto, reference, cpu"):
        operations(torch.device("cpu"), "numba")


def test_a_gpu_without_triton_is_refused_with_a_way_out(monkeypatch):
    monkeypatch.setattr("relive.ops.dispatch.find_spec", lambda _: None)
    with pytest.raises(UnsupportedError, match="pip install triton; or keep the buffer on device="):
        operations(torch.device("cuda:0"))


@pytest.mark.parametrize("device", ["tpu", "mps", "meta", 3.5, None, "cpu:x"])
def test_a_device_that_is_none_is_refused(device):
    with pytest.raises(UnsupportedError, match="device is 'cpu' or 'cuda"):
        known_device(device)


def test_cuda_without_a_card_is_refused_at_construction(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UnsupportedError, match="no CUDA device here"):
        ReplayBuffer(10, FIELDS, device="cuda")
