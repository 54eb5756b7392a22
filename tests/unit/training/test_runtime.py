"""Device, threads and versions."""

from importlib.metadata import PackageNotFoundError

import pytest
import torch

from relive.training.runtime import cpu_settings, resolve_device, versions

TINY = 1e-39  # below the least normal float32


@pytest.mark.parametrize(("has_cuda", "expected"), [(True, "cuda"), (False, "cpu")])
def test_auto_is_cuda_where_there_is_one(monkeypatch, has_cuda, expected):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_cuda)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(has_cuda))
    assert resolve_device("auto").type == expected
    assert resolve_device("cpu").type == "cpu"


def test_a_device_of_cuda_has_its_number_so_that_network_and_buffer_are_found_together(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    assert resolve_device("cuda") == resolve_device("auto") == torch.device("cuda", 3)


def test_tiny_numbers_are_0_inside_the_block_only():
    def product():
        return (torch.tensor([TINY]) * torch.tensor([1.0])).item()

    if not torch.set_flush_denormal(False):
        pytest.skip("this CPU keeps them")
    assert product() > 0
    with cpu_settings(None):
        assert product() == 0
    assert product() > 0


def test_threads_are_given_back_even_after_an_error():
    before = torch.get_num_threads()
    with cpu_settings(2):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == before
    with pytest.raises(ZeroDivisionError), cpu_settings(2):
        _ = 1 / 0
    assert torch.get_num_threads() == before


def test_a_package_that_is_missing_has_no_version(monkeypatch):
    def missing(package):
        raise PackageNotFoundError(package)

    monkeypatch.setattr("relive.training.runtime.version", missing)
    assert versions()["gymnasium"] == "not installed"


def test_versions_name_what_numbers_depend_on():
    found = versions()
    assert found["torch"] == torch.__version__
    assert {"python", "relive", "numpy", "numba", "gymnasium"} <= found.keys()
