"""Planted in a kernel, each thing that must not be in one is found."""

import pytest
import torch
import triton
import triton.language as tl

from relive.ops.launch import launch
from tests.triton.compiled.driver import compiled_launches
from tests.triton.compiled.resources import resources


@triton.jit
def add_up(x, y, LAYOUT: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(y + lane, tl.load(x + lane) * tl.load(x + lane) + tl.load(y + lane))


@triton.jit
def divide(x, y, LAYOUT: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(y + lane, tl.load(x + lane) / tl.load(y + lane))


@triton.jit
def take_root(x, y, LAYOUT: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(y + lane, tl.sqrt(tl.load(x + lane)))


@triton.jit
def sum_floats(x, y, LAYOUT: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.atomic_add(y + lane * 0, tl.load(x + lane))


@triton.jit
def sum_integers(x, y, LAYOUT: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.atomic_add(y + lane * 0, tl.load(x + lane))


@triton.jit
def keep_all(x, y, LAYOUT: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    values = tl.load(x + lane)
    tl.store(y + lane, values * tl.sum(values, 0))


def compiled(kernel, dtype=torch.float32, *, block=64, warps=1, capability=90):
    x = torch.ones(block, dtype=dtype)
    with compiled_launches(capability) as kernels:
        launch(kernel, (1,), x, torch.ones_like(x), BLOCK=block, warps=warps)
    return kernels[0]


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    ("kernel", "dtype", "found"),
    [
        (add_up, torch.float32, {}),
        (add_up, torch.float64, {}),
        (divide, torch.float32, {"approximate": 2}),
        (divide, torch.float64, {}),
        (take_root, torch.float32, {"approximate": 2}),
        (sum_floats, torch.float32, {"float_atomics": 2}),
        (sum_integers, torch.int64, {}),
    ],
)
def test_what_depends_on_rounding_or_order_is_found(kernel, dtype, found, capability):
    used = resources(compiled(kernel, dtype, capability=capability).code)._asdict()
    names = ("fused", "approximate", "float_atomics", "stack")
    assert {name: used[name] for name in names} == dict.fromkeys(names, 0) | found


def test_fused_multiply_adds_are_found_where_they_are_allowed():
    x = torch.ones(64)
    with compiled_launches(90):
        code = add_up.warmup(x, x, 0, BLOCK=64, grid=(1,), enable_fp_fusion=True)
    assert resources(code).fused > 0


def test_registers_that_do_not_suffice_are_found_on_the_stack():
    assert resources(compiled(keep_all, torch.int64, block=4096, warps=1).code).stack > 0


def test_a_launch_is_compiled_for_what_it_is_given():
    kernel = compiled(sum_integers, torch.int64, block=128, warps=2)
    assert (kernel.name, kernel.warps, kernel.constants) == ("sum_integers", 2, {"BLOCK": 128})
    assert kernel.code.metadata.num_warps == 2
    assert kernel.code.metadata.target.arch == 90
    assert resources(kernel.code).atomics > 0
