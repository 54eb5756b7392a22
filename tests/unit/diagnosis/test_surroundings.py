"""What there is on a machine."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

from relive.diagnosis import surroundings

if TYPE_CHECKING:
    from pathlib import Path


def test_the_cpu_has_its_kernels_and_cuda_a_reason() -> None:
    cpu, *others = surroundings.devices()
    assert (cpu.device, cpu.kernels) == ("cpu", "Numba, compiled for this processor")
    assert cpu.name
    assert others
    assert all(one.kernels or one.why for one in others)


@pytest.mark.parametrize(
    ("built_with", "why"),
    [
        (None, "this PyTorch was built without CUDA"),
        ("12.8", "PyTorch has CUDA 12.8, but finds no device or driver"),
    ],
)
def test_a_machine_without_cuda_is_told_why(
    built_with: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built_with)
    _, cuda = surroundings.devices()
    assert (cuda.kernels, cuda.why) == (None, why)


def test_a_graphics_card_is_named_with_its_kernels_or_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"Card {number}")
    _, first, second = surroundings.devices()
    assert (first.device, first.name) == ("cuda:0", "Card 0")
    assert (second.device, second.name) == ("cuda:1", "Card 1")
    assert first.kernels or "no kernels for cuda:0" in first.why


def test_packages_that_are_missing_come_with_the_command_that_installs_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(surroundings, "found", lambda _: None)
    missing = surroundings.missing()
    assert missing["gymnasium"] == "pip install 'relive[gym]'"
    assert missing["matplotlib"] == "pip install 'relive[report]'"
    assert ("triton" in missing) is torch.cuda.is_available()
    versions = surroundings.versions()
    assert versions["python"]
    assert versions["torch"] is None


def test_memory_says_how_many_rows_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "free_memory", lambda _: 10**9)
    memory = surroundings.memory()
    assert memory.row_bytes % 16 == 0
    assert memory.most_rows is not None
    assert 0.9e9 < memory.most_rows * memory.row_bytes < 1e9
    monkeypatch.setattr(surroundings, "free_memory", lambda _: None)
    assert surroundings.memory().most_rows is None


def test_huge_pages_are_looked_at_where_they_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = tmp_path / "enabled"
    monkeypatch.setattr(surroundings, "HUGE_PAGES", setting)
    assert surroundings.memory().huge_pages is None
    setting.write_text("always [never] madvise\n")
    looks = iter([0, 0, 0, 10**9])
    monkeypatch.setattr(surroundings, "_bytes_in_huge_pages", lambda: next(looks))
    memory = surroundings.memory()
    assert (memory.huge_pages, memory.huge_pages_why) == (False, "the system's setting is never")
    assert surroundings.memory().huge_pages is True
    monkeypatch.setattr(surroundings, "_bytes_in_huge_pages", lambda: None)
    assert surroundings.memory().huge_pages is None


def test_threads_are_counted() -> None:
    count = surroundings.threads()
    assert count["cores"] == os.cpu_count()
    assert count["torch_threads"] == torch.get_num_threads()
    assert count["allowed"] is None or 1 <= count["allowed"] <= (count["cores"] or 1)


def test_the_cache_is_told_by_what_numba_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def stats(path: str, hits: int, misses: int) -> SimpleNamespace:
        return SimpleNamespace(cache_path=path, cache_hits={1: hits}, cache_misses={1: misses})

    kernels = [stats("/a/ops/x/c", 2, 0), stats("/a/ops/y/c", 1, 3)]
    monkeypatch.setattr(surroundings, "_cached_kernels", lambda: iter(kernels))
    cache = surroundings.cache(1.5)
    assert (cache.folder, cache.loaded, cache.compiled, cache.seconds) == ("/a/ops", 3, 3, 1.5)
    monkeypatch.setattr(surroundings, "_cached_kernels", lambda: iter(()))
    assert surroundings.cache(1.5).folder is None


def test_kernels_of_this_process_are_counted() -> None:
    from relive.warmup import warm_up

    cache = surroundings.cache(warm_up())
    assert cache.loaded + cache.compiled >= 5
