"""Whether a buffer on the pretended GPU is what one on the CPU is, bit for bit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from relive.ops import words as w
from tests.equivalence.states import comparable, same_bits

if TYPE_CHECKING:
    from relive import Batch, ReplayBuffer
    from tests.triton.pretended import Device


def assert_same_batch_there(device: Device, batch: Batch, expected: Batch) -> None:
    """Every field of a batch on the device has the bits of one on the CPU."""
    for field in expected.keys():  # noqa: SIM118 - a batch is no dict
        ours, theirs = batch[field], expected[field]
        parts = theirs if isinstance(theirs, dict) else {"": theirs}
        for key, part in parts.items():
            own = ours[key] if isinstance(ours, dict) else ours
            assert same_bits(device.inner(own), part), (field, key)


def assert_same_buffer_there(device: Device, gpu: ReplayBuffer, cpu: ReplayBuffer) -> None:
    """All tensors are equal, but for addresses and the padding of rows, and so are all numbers."""
    ours = {name: device.inner(tensor) for name, tensor in comparable(gpu._state).items()}
    theirs = comparable(cpu._state)
    for name in ("rows", "pending", "columns"):
        assert len(ours[name]) == len(theirs[name])
    width = theirs["rows"].shape[1]
    for tensors in (ours, theirs):
        del tensors["columns"]
        tensors["words"] = tensors["words"].clone()
        tensors["words"][w.ROW_BYTES - w.CAPACITY] = 0
        for name in ("rows", "pending"):
            tensors[name] = tensors[name][..., :width]
    for name, expected in theirs.items():
        assert same_bits(ours[name], expected), name
    _assert_same_numbers(gpu.stats(wait=True), cpu.stats())


def _assert_same_numbers(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """All alike, but for the last bits of sums in another order."""
    for name in ("effective_sample_size", "priority_entropy"):
        own, expected = ours.pop(name), theirs.pop(name)
        assert own == expected or math.isclose(own, expected, rel_tol=1e-12)
    assert ours == theirs
