"""Kernels on the pretended device: the bits of the definition, at once, late, and captured."""

from dataclasses import replace

import pytest
import torch
import triton
import triton.language as tl
from torch.utils._pytree import tree_map

from relive.ops.dispatch import prepare
from relive.ops.launch import launch
from relive.ops.state import State
from tests.equivalence.states import comparable, same_bits
from tests.triton.arguments import launches
from tests.triton.cases import cases, cuda_operations, reference_operations, used_buffer
from tests.triton.checker import KernelError, checked
from tests.triton.pretended import OrderError, pretended

KERNELS, DEFINITIONS = cuda_operations(), reference_operations()


@triton.jit
def add_one(target, sources, LAYOUT: tl.constexpr):
    tl.store(target, tl.load(target) + tl.load(sources[0]))


@pytest.fixture
def device():
    with pretended() as there:
        yield there


def one_more(x, one):
    launch(add_one, (1,), x, (one,), warps=1)


def ones():
    """0 and 1 on the device, made without a wait."""
    return torch.zeros(1, device="cuda"), torch.ones(1, device="cuda")


def test_a_kernel_gets_the_memory_of_its_tensors_in_tuples_too(device):
    x, one = ones()
    with checked(), launches(at_most=1) as seen:
        one_more(x, one)
    assert (seen, device.inner(x).item(), device.waits) == (["add_one"], 1, [])


def test_a_kernel_reaches_the_device_and_pinned_memory_and_no_other(device):
    x, _ = ones()
    one_more(x, torch.ones(1).pin_memory())
    for target, one in ((x, torch.ones(1)), (torch.zeros(1), x)):
        with pytest.raises(ValueError, match="cannot be accessed from Triton"):
            one_more(target, one)
    assert device.inner(x).item() == 1


def test_what_a_kernel_does_wrong_is_said_there_too(device):
    x, one = ones()
    with checked(), pytest.raises(KernelError, match="out of bounds"):
        one_more(x[1:], one)


def test_a_kernel_that_lags_reads_what_is_there_when_it_runs(device):
    device.lag = True
    x, slot = torch.zeros(1, device="cuda"), torch.ones(1).pin_memory()
    staged = slot.to("cuda", non_blocking=True)
    one_more(x, staged)
    slot.fill_(5.0)  # too early
    assert x.item() == 5


def test_kernels_on_two_streams_must_wait(device):
    x, one = ones()
    torch.cuda.synchronize()
    one_more(x, one)
    with torch.cuda.stream(torch.cuda.Stream()):
        with pytest.raises(OrderError):
            one_more(x, one)
        torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
        one_more(x, one)
    assert device.inner(x).item() == 2


def test_a_captured_kernel_runs_at_each_replay(device):
    x, one = ones()
    with device.capture() as graph:
        one_more(x, one)
        one_more(x, one)
    assert device.inner(x).item() == 0
    graph.replay()
    graph.replay()
    assert device.inner(x).item() == 4


def there(values):
    """The same with all tensors on the device."""
    return tree_map(lambda v: v.to("cuda") if isinstance(v, torch.Tensor) else v, values)


def state_there(state):
    return State(**{name: tensor.to("cuda") for name, tensor in state.tensors().items()})


def here(device, state):
    """The state as the device has it now."""
    return State(**{name: device.inner(t).clone() for name, t in state.tensors().items()})


def assert_same(state, expected, what):
    given, wanted = comparable(state), comparable(expected)
    for name, tensor in wanted.items():
        assert same_bits(given[name], tensor), (what, name)


def on(device_of, case):
    """The same call with its tensors elsewhere."""
    moved = case.on_device()
    return replace(case, arguments=device_of(moved.arguments), options=device_of(moved.options))


def calls(buffer):
    """One of every call that has kernels."""
    skipped = "update of many"  # takes long, and nothing else of the device
    return [c for c in cases(buffer) if c.operation in KERNELS and c.name != skipped]


@pytest.mark.parametrize(("kind", "lag"), [("ranks", False), ("many lanes", True)])
def test_every_call_gives_the_bits_of_the_definition_without_a_wait(device, kind, lag):
    buffer = used_buffer(kind)
    state, expected = state_there(buffer._state), buffer._state
    prepare(state)
    for case in calls(buffer):
        moved = on(there, case)
        device.lag = lag
        del device.waits[:]
        moved.run(KERNELS, state)
        assert device.waits == [], case.name
        device.lag = False
        case.run(DEFINITIONS, expected)
        assert_same(here(device, state), expected, case.name)


def test_a_captured_step_goes_on_where_the_last_replay_ended(device):
    buffer = used_buffer("many lanes")
    by_name = {case.name: case for case in calls(buffer)}
    step = [by_name[name] for name in ("add", "sample", "update")]
    there_too = [on(there, case) for case in step]
    state, expected = state_there(buffer._state), buffer._state

    def run_there():
        for case in there_too:
            case.run(KERNELS, state)

    run_there()  # settings are read, and scratch is made
    with device.capture() as graph:
        run_there()
    for number in range(3):
        for case in step:
            case.run(DEFINITIONS, expected)
        assert_same(here(device, state), expected, number)
        device.lag = number == 1
        graph.replay()
        device.catch_up()
