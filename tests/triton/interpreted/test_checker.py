"""Planted faults are caught, and what is right is let through."""

import pytest
import torch
import triton
import triton.language as tl

from tests.triton.checker import KernelError, checked


@triton.jit
def copy(source, target, count, past: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(source + lane, mask=lane < count + past)
    tl.store(target + lane, values, mask=lane < count)


@triton.jit
def load_unaligned(source, target):
    bytes_from = source.to(tl.pointer_type(tl.uint8)) + 1
    tl.store(target, tl.load(bytes_from.to(tl.pointer_type(tl.int64))))


@triton.jit
def accumulate(source, total):
    tl.store(total, tl.load(total) + tl.load(source + tl.program_id(0)))


@triton.jit
def accumulate_atomically(source, total):
    tl.atomic_add(total, tl.load(source + tl.program_id(0)))


@triton.jit
def read_what_others_add(total, target):
    tl.atomic_add(total, 1)
    tl.debug_barrier()
    tl.store(target + tl.program_id(0), tl.load(total))


@triton.jit
def all_store(flag):
    tl.store(flag, 1)


@triton.jit
def require_positive(source):
    tl.device_assert(tl.load(source) > 0, "positive")


@triton.jit
def store_reversed(source, BARRIER: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    values = tl.load(source + lane)
    if BARRIER:
        tl.debug_barrier()
    tl.store(source + (BLOCK - 1 - lane), values)


@triton.jit
def double(source, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(source + lane, tl.load(source + lane) * 2)


@triton.jit
def store_lanes_at_one_place(target, differ: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(target + lane * 0, lane * differ)


@triton.jit
def note_order(counter, target):
    tl.store(target + tl.program_id(0), tl.atomic_add(counter, 1))


@triton.jit
def follow(words, target):
    found = tl.load(words).to(tl.pointer_type(tl.int64))
    tl.store(target, tl.load(found))


def numbers(count, dtype=torch.int64):
    return torch.arange(1, count + 1, dtype=dtype)


FAULTS = {
    "a load one past the end": (
        lambda: copy[(2,)](numbers(8), numbers(8), 8, past=1, BLOCK=8),
        "load of copy\\(1, 0, 0\\): 1 lanes out of bounds, the first 0 bytes behind",
    ),
    "a store past the end of a part": (
        lambda: copy[(1,)](numbers(8), numbers(8)[:7], 8, past=0, BLOCK=8),
        "store of copy\\(0, 0, 0\\): 1 lanes out of bounds",
    ),
    "an address that is not aligned": (
        lambda: load_unaligned[(1,)](numbers(2), numbers(1)),
        "no multiple of 8 bytes",
    ),
    "a sum without atomics": (
        lambda: accumulate[(4,)](numbers(4), numbers(1)),
        "race between programs .*load of .*store of",
    ),
    "a load of what other programs add to": (
        lambda: read_what_others_add[(2,)](numbers(1), numbers(2)),
        "race between programs .*atomic of",
    ),
    "stores of several programs at one place": (
        lambda: all_store[(2,)](numbers(1)),
        "race between programs",
    ),
    "an assertion": (
        lambda: require_positive[(1,)](numbers(1) - 1),
        "device_assert: positive",
    ),
    "lanes that swap places without a barrier": (
        lambda: store_reversed[(1,)](numbers(128), BARRIER=False, BLOCK=128),
        "race between threads .*tl.debug_barrier",
    ),
    "a small block that all threads load and one stores": (
        lambda: double[(1,)](numbers(64), BLOCK=64),
        "race between threads",
    ),
    "a scalar that all threads load and one stores": (
        lambda: accumulate[(1,)](numbers(1), numbers(1)),
        "race between threads",
    ),
    "lanes that store different values at one place": (
        lambda: store_lanes_at_one_place[(1,)](numbers(1), differ=1, BLOCK=4),
        "different values",
    ),
}
FINE = {
    "copies": lambda: copy[(2,)](numbers(8), numbers(8), 8, past=0, BLOCK=8),
    "atomics": lambda: accumulate_atomically[(4,)](numbers(4), numbers(1)),
    "lanes that keep to their place": lambda: double[(1,)](numbers(128), BLOCK=128),
    "a barrier": lambda: store_reversed[(1,)](numbers(128), BARRIER=True, BLOCK=128),
    "one warp": lambda: accumulate[(1,)](numbers(1), numbers(1), num_warps=1),
    "one value at one place": lambda: store_lanes_at_one_place[(1,)](numbers(1), differ=0, BLOCK=4),
    "an assertion that holds": lambda: require_positive[(1,)](numbers(1)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_caught(name):
    run, message = FAULTS[name]
    with checked(), pytest.raises(KernelError, match=message):
        run()


@pytest.mark.parametrize("name", FINE)
def test_what_is_right_is_let_through(name):
    with checked():
        FINE[name]()


def test_without_the_checker_an_assertion_passes_unseen():
    FAULTS["an assertion"][0]()


def test_a_race_that_is_meant_is_let_through():
    flag = numbers(1)
    with checked(benign=[flag]):
        all_store[(3,)](flag)


def test_a_tensor_reached_through_an_address_has_to_be_named():
    hidden, target = numbers(3), numbers(1)
    words = torch.tensor([hidden.data_ptr()])
    with checked(), pytest.raises(KernelError, match="out of bounds"):
        follow[(1,)](words, target)
    with checked(reachable=[hidden]):
        follow[(1,)](words, target)


def test_programs_run_in_another_order():
    orders = []
    for shuffle in (None, 1, 2):
        target = numbers(16)
        with checked(shuffle=shuffle):
            note_order[(16,)](torch.zeros(1, dtype=torch.int64), target)
        orders.append(target.tolist())
    assert orders[0] == list(range(16))
    assert all(sorted(order) == orders[0] for order in orders)
    assert len({tuple(order) for order in orders}) == 3


def test_the_interpreter_is_as_before_afterwards():
    with checked(shuffle=1), pytest.raises(KernelError):
        FAULTS["an assertion"][0]()
    target = numbers(16)
    note_order[(16,)](torch.zeros(1, dtype=torch.int64), target)
    assert target.tolist() == list(range(16))
    FAULTS["a sum without atomics"][0]()
