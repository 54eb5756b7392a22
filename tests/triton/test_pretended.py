"""The pretended device does what CUDA does: what is on it, what waits, what order there is."""

import copy
import pickle
import threading
import warnings
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from tests.triton.idioms import FINE, WAITS, names
from tests.triton.pretended import OrderError, pretended
from tests.triton.waits import WaitError, no_waits

CAPTURING = "not permitted when stream is capturing"

# What no step should do, though on CUDA the host does not wait there.
UNFIT = {
    "x.numpy()",  # refused
    "np.asarray(x)",
    "x[m] = 0.0",  # torch makes it a masked_fill
    "torch.tensor(1.0)",  # on the host, if no device is named
    "torch.as_tensor([1.0])",
    "torch.multinomial(x, 4, replacement=True)",
    "torch.randperm(4, device=x.device)",
}
DEVICE_WAITS = [idiom for idiom in WAITS if idiom not in UNFIT]


@pytest.fixture
def device():
    with pretended() as there:
        yield there


def on_device(*numbers, **options):
    """These numbers on the device; not counted as a wait."""
    pinned = torch.tensor(numbers, **options).pin_memory()
    return pinned.to("cuda", non_blocking=True)


def values(device, tensor):
    return device.inner(tensor).tolist()


# What is on the device.

MAKERS = {
    "zeros": lambda: torch.zeros(2, device="cuda"),
    "empty": lambda: torch.empty(2, device=torch.device("cuda")).zero_(),
    "full": lambda: torch.full((2,), 0.0, device="cuda:0"),
    "tensor": lambda: torch.tensor([0.0, 0.0], device="cuda"),
    "as_tensor of an array": lambda: torch.as_tensor(np.zeros(2, np.float32), device="cuda"),
    "to": lambda: torch.zeros(2).to("cuda"),
    "to, not waiting": lambda: torch.zeros(2).to(device="cuda", non_blocking=True),
    "cuda": lambda: torch.zeros(2).cuda(),
    "new_zeros": lambda: torch.zeros(1, device="cuda").new_zeros(2),
    "zeros_like": lambda: torch.zeros_like(torch.zeros(2), device="cuda"),
    "arithmetic": lambda: torch.zeros(2, device="cuda") * 3 + torch.tensor(0.0),
    "copy": lambda: copy.deepcopy(torch.zeros(2, device="cuda")),
    "pickle": lambda: pickle.loads(pickle.dumps(torch.zeros(2, device="cuda"))),
}


@pytest.mark.parametrize("lag", [False, True])
@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_made_there_is_there(device, maker, lag):
    device.lag = lag
    x = MAKERS[maker]()
    device.catch_up()
    assert (str(x.device), x.is_cuda, x.is_cpu, x.is_meta) == ("cuda:0", True, False, False)
    assert values(device, x) == [0, 0]
    assert x.data_ptr() == device.inner(x).data_ptr()


def test_what_is_made_elsewhere_is_there(device):
    x = torch.zeros(2, device="cuda")
    made = torch.linspace(0, x.sum(), 2)
    for host in (torch.zeros(2), x.cpu(), torch.empty_like(x, device="cpu"), made):
        assert (type(host), host.device.type, host.is_pinned()) == (torch.Tensor, "cpu", False)
    assert torch.empty_like(x, device="meta").is_meta


# Statements about x, float [0, 1, 2, 3] on the device, and x afterwards.
CHANGES = {
    "x[1] += 5": [0, 6, 2, 3],
    "x[2:] = 7": [0, 1, 7, 7],
    "x[0] = 9.0": [9, 1, 2, 3],
    "x.view(2, 2)[:, 1].copy_(torch.tensor([8.0, 9.0]))": [0, 8, 2, 9],
    "x.as_strided((2,), (2,), 1).fill_(4)": [0, 4, 2, 4],
    "x.view(torch.int32)[0:1] = 1065353216": [1, 1, 2, 3],
    "x.select(0, 3).zero_()": [0, 1, 2, 0],
    "x[i] = x[:2] + 4": [0, 5, 2, 4],
    "x.index_put_((i,), x[:2] + 4, accumulate=True)": [0, 6, 2, 7],
    "x[x > 1] = 5": [0, 1, 5, 5],
    "x.add_(torch.tensor(1.0))": [1, 2, 3, 4],
    "torch.mul(x[:2], 3, out=x[2:])": [0, 1, 0, 3],
    "x.unbind()[1].mul_(9)": [0, 9, 2, 3],
    "x.detach().sub_(1)": [-1, 0, 1, 2],
}


@pytest.mark.parametrize("lag", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_views_share_memory_and_changes_are_in_place(device, change, lag):
    device.lag = lag
    x, i = on_device(0.0, 1.0, 2.0, 3.0), on_device(3, 1)
    version = x._version
    exec(change, {"torch": torch, "x": x, "i": i})
    assert x.tolist() == CHANGES[change]
    assert x._version > version


def test_one_operation_may_change_many_tensors(device):
    x, y = on_device(1.0, 2.0), on_device(3.0)
    torch._foreach_add_([x[1:], y], 1.0)
    assert (values(device, x), values(device, y)) == ([1, 3], [4])


def test_a_module_moves_with_its_parameters(device):
    module = torch.nn.Linear(2, 1)
    bias, weight = module.bias, module.weight.tolist()
    module.to("cuda")
    assert module.bias is bias
    assert bias.is_cuda
    assert module.weight.tolist() == weight
    assert module(torch.ones(2, device="cuda")).requires_grad


def test_versions_are_those_of_the_memory(device):
    x = torch.zeros(4, device="cuda")
    view, version = x[1:], x._version
    torch.autograd.graph.increment_version(x)
    assert view._version == x._version == version + 1


REFUSED = {
    "add": ("x + h", RuntimeError, "same device"),
    "add, in place on the host": ("h.add_(x)", RuntimeError, "same device"),
    "in place on a number": ("h[0].add_(x[0])", RuntimeError, "same device"),
    "cat": ("torch.cat([x, h])", RuntimeError, "same device"),
    "cat of a number": ("torch.stack([x[0], h[0]])", RuntimeError, "same device"),
    "index of the host": ("h[x.long()]", RuntimeError, "same device"),
    "a second device": ("x.to('cuda:1')", RuntimeError, "invalid device ordinal"),
    "pinning": ("x.pin_memory()", RuntimeError, "only dense CPU"),
    "numpy": ("x.numpy()", TypeError, "can't convert cuda:0 device type tensor"),
    "asarray": ("np.asarray(x)", TypeError, "can't convert cuda:0 device type tensor"),
    "pinned device memory": (
        "torch.empty(2, device='cuda', pin_memory=True)",
        RuntimeError,
        "only dense CPU",
    ),
}
NOT_PRETENDED = {  # CUDA does these: a test that needs them must not pass by what is here instead
    "resizing": ("x.resize_(9)", "resize_"),
    "resizing out": ("torch.add(x, x, out=x[:0])", "resizes"),
}


@pytest.mark.parametrize("lag", [False, True])
@pytest.mark.parametrize("what", REFUSED)
def test_what_cuda_refuses_is_refused(device, what, lag):
    device.lag = lag
    do, error, message = REFUSED[what]
    x = torch.zeros(3, device="cuda")
    with pytest.raises(error, match=message):
        exec(do, {"torch": torch, "np": np, "x": x, "h": torch.zeros(3)})


@pytest.mark.parametrize("lag", [False, True])
@pytest.mark.parametrize("what", NOT_PRETENDED)
@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_what_is_not_pretended_says_so(device, what, lag):
    device.lag = lag
    do, message = NOT_PRETENDED[what]
    x = torch.zeros(3, device="cuda")
    with pytest.raises(NotImplementedError, match=message):
        exec(do, {"torch": torch, "x": x})


def test_a_number_and_indices_of_the_host_may_take_part(device):
    x, number = on_device(1.0, 2.0), torch.tensor(3.0)
    assert (x * number).tolist() == (number * x).tolist() == [3, 6]
    assert torch.where(x > 1, x, number).tolist() == [3, 2]
    assert x[torch.tensor([1])].tolist() == [2]


def test_a_number_of_the_host_goes_by_value(device):
    device.lag = True
    x, number = on_device(1.0, 2.0), torch.tensor(3.0)
    y = x * number
    number.fill_(100.0)
    assert y.tolist() == [3, 6]


def test_device_memory_is_gone_with_the_device():
    with pretended():
        x = torch.zeros(2, device="cuda")
    assert not torch.cuda.is_available()
    with pytest.raises(RuntimeError, match="is gone"):
        x.add_(1)
    none = "not compiled with CUDA|no NVIDIA driver"  # as torch was built
    with pytest.raises((AssertionError, RuntimeError), match=none):
        torch.zeros(2, device="cuda")


def test_there_is_one_device_at_a_time(device):
    with pytest.raises(RuntimeError, match="pretended already"), pretended():
        pass
    assert torch.zeros(2, device="cuda").is_cuda


def test_threads_that_start_there_see_it(device):
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.ones(2, device="cuda") + 1))
    thread.start()
    thread.join()
    assert values(device, seen[0]) == [2, 2]


# What waits.


@pytest.mark.parametrize("idiom", DEVICE_WAITS)
def test_a_wait_is_noted_and_can_be_forbidden(device, idiom):
    known = names("cpu") | {name: t.to("cuda") for name, t in names("cpu").items() if name in "xim"}
    del device.waits[:]
    with device.forbid_waits(), pytest.raises(WaitError):
        exec(idiom, known)
    assert device.waits == []
    if "split" in idiom:
        known["i"].fill_(1)  # so that it makes sense
    exec(idiom, known)
    assert len(device.waits) > 0


@pytest.mark.parametrize("lag", [False, True])
@pytest.mark.parametrize("idiom", [*FINE, *sorted(UNFIT - {"x.numpy()", "np.asarray(x)"})])
def test_what_does_not_wait_is_not_noted(device, idiom, lag):
    known = names("cuda")
    del device.waits[:]
    device.lag = lag
    exec(idiom, known)
    assert device.waits == []
    device.catch_up()


# Copies between x on the device, h on the host and p there, pinned: what is done, whether it waits.
COPIES = {
    "from pageable memory": ("x.copy_(h, non_blocking=True)", True),
    "from pinned memory, waiting": ("x.copy_(p)", True),
    "from pinned memory": ("x.copy_(p, non_blocking=True)", False),
    "from pinned memory, made": ("p.to('cuda', non_blocking=True)", False),
    "from pinned memory, converted": ("x.long().copy_(p, non_blocking=True)", True),
    "from pinned memory, strided": ("x[:2].copy_(p[::2], non_blocking=True)", True),
    "from pinned memory, spread": ("x.copy_(p[:1], non_blocking=True)", True),
    "to pageable memory": ("h.copy_(x, non_blocking=True)", True),
    "to pinned memory, waiting": ("p.copy_(x)", True),
    "to pinned memory": ("p.copy_(x, non_blocking=True)", False),
    "to pinned memory, converted": ("p.copy_(x.long(), non_blocking=True)", False),
    "to pinned memory, strided": ("p[::2].copy_(x[:2], non_blocking=True)", True),
    "to memory that torch makes": ("x.to('cpu', non_blocking=True)", False),
    "on the device": ("x.copy_(x.double())", False),
    "of a number": ("x[0].copy_(h[0])", True),
}


@pytest.mark.parametrize("what", COPIES)
def test_a_copy_waits_unless_the_host_lends_pinned_memory_as_it_is(device, what):
    statement, waits = COPIES[what]
    x, h, p = torch.zeros(4, device="cuda"), torch.zeros(4), torch.zeros(4).pin_memory()
    exec(statement, {"x": x, "h": h, "p": p})
    assert bool(device.waits) is waits


def test_pinned_memory_is_known_by_its_place(device):
    p = torch.empty(8, pin_memory=True)
    host = torch.zeros(2, device="cuda").to("cpu", non_blocking=True)
    for pinned in (p, p[3:], torch.from_numpy(p.numpy()[4:]), torch.ones(2).pin_memory(), host):
        assert pinned.is_pinned()
        assert type(pinned) is torch.Tensor
    x = p.to("cuda", non_blocking=True)
    for other in (torch.empty(8), p.clone(), x, device.inner(x)):
        assert not other.is_pinned()


def test_waits_that_are_asked_for_are_noted(device):
    event = torch.cuda.Event()
    torch.cuda.synchronize()
    torch.cuda.current_stream().synchronize()
    event.record()
    event.synchronize()  # it is over already
    assert device.waits == ["torch.cuda.synchronize", "Stream.synchronize"]
    device.lag = True
    x = torch.zeros(2, device="cuda")
    event.record()
    event.synchronize()
    assert device.waits[2:] == ["Event.synchronize"]
    assert values(device, x) == [0, 0]


def test_torchs_own_check_sees_hidden_waits(device):
    x = torch.zeros(2, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    assert torch.cuda.get_sync_debug_mode() == 2
    with pytest.raises(RuntimeError, match="synchronizing CUDA operation"):
        x.sum().item()
    torch.cuda.synchronize()  # is not hidden
    torch.cuda.set_sync_debug_mode("warn")
    with pytest.warns(UserWarning, match="synchronizing CUDA operation"):
        x.sum().item()
    torch.cuda.set_sync_debug_mode(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        x.sum().item()


def test_the_mode_that_catches_waits_works_there_too(device):
    x, pinned = torch.zeros(2, device="cuda"), torch.ones(2).pin_memory()
    with no_waits():
        x.copy_(pinned, non_blocking=True)
        with pytest.raises(WaitError, match="from cpu to cuda"):
            x.copy_(pinned)
    assert torch.cuda.get_sync_debug_mode() == 0
    assert x.tolist() == [1, 1]


def test_what_is_given_in_inference_mode_can_be_done_after_it(device):
    x = on_device(1.0, 2.0)
    device.lag = True
    with torch.inference_mode():
        y = x.add_(1) * 2
    assert y.tolist() == [4, 6]


def test_in_inference_mode_tensors_move_and_are_computed_with_as_without(device):
    layer = torch.nn.Linear(3, 2).to("cuda")
    expected = values(device, layer(on_device(1.0, 2.0, 3.0)))
    with torch.inference_mode():
        x = torch.ones(3).cumsum(0).to("cuda")
        y = layer(x)
        assert str(x.device) == str(y.device) == "cuda:0"
        assert y.cpu().tolist() == expected


def test_modes_do_not_see_what_the_device_does_later(device):
    x = on_device(1.0, 2.0)
    device.lag = True
    x[x > 1] = 5
    with no_waits():
        device.catch_up()
    assert values(device, x) == [1, 5]


def test_what_torch_tells_of_the_device_can_be_set(device):
    device.free, device.total = 3, 5
    assert torch.cuda.mem_get_info("cuda") == (3, 5)
    assert torch.cuda.get_device_properties(0).total_memory == 5
    assert (torch.cuda.device_count(), torch.cuda.current_device()) == (1, 0)
    with torch.cuda.device("cuda:0"), pytest.raises(RuntimeError, match="ordinal"):
        torch.cuda.set_device(1)


MEMORY_AS_IT_COMES = {
    "empty": lambda: torch.empty(4, device="cuda"),
    "empty of no axes": lambda: torch.empty((), device="cuda"),
    "empty_like": lambda: torch.empty_like(on_device(1.0, 2.0)),
    "empty_strided": lambda: torch.empty_strided((2, 2), (1, 2), device="cuda"),
    "new_empty": lambda: on_device(1.0).new_empty(3),
    "pinned": lambda: torch.empty(4, pin_memory=True),
}


@pytest.mark.parametrize("make", MEMORY_AS_IT_COMES.values(), ids=MEMORY_AS_IT_COMES)
@pytest.mark.parametrize("lag", [False, True])
def test_memory_as_it_comes_never_holds_what_was_there_before(device, make, lag):
    device.lag = lag
    for _ in range(3):
        made = make()
        memory = device.inner(made) if made.is_cuda else made
        assert memory.isnan().all()
        memory.fill_(1.0)


# A device that lags.


def test_a_slot_that_is_overwritten_too_early_arrives_wrong(device):
    device.lag = True
    slot, x = torch.ones(2).pin_memory(), torch.empty(2, device="cuda")
    x.copy_(slot, non_blocking=True)
    y = x * 10
    slot.fill_(2.0)
    assert y.tolist() == [20, 20]
    x.copy_(slot, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    event.synchronize()
    slot.fill_(3.0)
    assert x.tolist() == [2, 2]


def test_a_pinned_target_holds_old_numbers_until_the_event(device):
    device.lag = True
    made = on_device(1.0).to("cpu", non_blocking=True)
    assert made.isnan().all()
    device.catch_up()
    assert made.tolist() == [1]
    x, target, event = on_device(1.0, 2.0), torch.zeros(2).pin_memory(), torch.cuda.Event()
    assert event.query()
    target.copy_(x.add_(1), non_blocking=True)
    event.record()
    assert (event.query(), target.tolist()) == (False, [0, 0])
    device.catch_up()
    assert (event.query(), target.tolist()) == (True, [2, 3])


def test_the_device_comes_no_further_than_the_event(device):
    device.lag = True
    x, event = torch.zeros(1, device="cuda"), torch.cuda.Event()
    x.add_(1)
    event.record()
    x.add_(1)
    event.synchronize()
    assert values(device, x) == [1]
    assert not torch.cuda.current_stream().query()
    device.lag = False
    assert values(device, x) == [2]


def test_a_wait_is_for_the_current_stream_alone(device):
    device.lag = True
    side = torch.cuda.Stream()
    x, y = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        x.add_(1)
    assert y.add_(1).item() == 1
    assert (values(device, x), side.query()) == ([0], False)
    torch.cuda.synchronize()
    assert values(device, x) == [1]


# Streams.


def test_a_stream_that_waits_for_another_runs_after_it(device):
    device.lag = True
    side, x = torch.cuda.Stream(), on_device(1.0)
    x.mul_(5)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        assert torch.cuda.current_stream() == side
        assert x.add_(1).item() == 6
    assert torch.cuda.current_stream() == torch.cuda.default_stream() != side


def use(x):
    return x + 1


def change(x):
    x.add_(1)


@pytest.mark.parametrize("lag", [False, True])
@pytest.mark.parametrize(
    ("first", "then", "is_wrong"),
    [(change, use, True), (use, change, True), (change, change, True), (use, use, False)],
)
def test_two_streams_on_one_memory_must_wait(device, first, then, is_wrong, lag):
    device.lag = lag
    side, event, x = torch.cuda.Stream(), torch.cuda.Event(), on_device(1.0)
    torch.cuda.synchronize()
    first(x)
    event.record()
    with torch.cuda.stream(side):
        if is_wrong:
            with pytest.raises(OrderError, match=r"stream 1 uses memory .* stream 0 uses too"):
                then(x[:1])
            event.wait()
        then(x[:1])


@pytest.mark.parametrize("wait", ["the host for the event", "the host for all", "a third stream"])
def test_order_comes_by_the_host_and_by_other_streams_too(device, wait):
    side, event, x = torch.cuda.Stream(), torch.cuda.Event(), torch.zeros(1, device="cuda")
    y = x + 1
    event.record()
    if wait == "the host for the event":
        event.synchronize()
    elif wait == "the host for all":
        y.tolist()
    else:
        third = torch.cuda.Stream()
        third.wait_event(event)
        side.wait_stream(third)
    with torch.cuda.stream(side):
        y.add_(1)


def test_an_event_that_was_never_recorded_is_over(device):
    event = torch.cuda.Event()
    event.wait()
    event.synchronize()
    assert (event.query(), device.waits) == (True, [])


def test_an_event_says_nothing_of_what_came_after_it(device):
    side, x = torch.cuda.Stream(), torch.zeros(1, device="cuda")
    event = torch.cuda.current_stream().record_event()
    x.add_(1)
    with torch.cuda.stream(side):
        event.wait()
        with pytest.raises(OrderError):
            x.add_(1)


def test_new_memory_has_no_past(device):
    side = torch.cuda.Stream()
    for _ in range(20):  # memory that was freed is given out again
        torch.zeros(1000, device="cuda").add_(1)
        with torch.cuda.stream(side):
            torch.zeros(1000, device="cuda").add_(1)
            torch.empty(1000, device="cuda").fill_(1)


def test_tensors_of_nothing_share_no_memory(device):
    side, x, y = torch.cuda.Stream(), torch.empty(0, device="cuda"), torch.empty(0, device="cuda")
    x.add_(1)
    with torch.cuda.stream(side):
        y.add_(1)


def test_results_belong_to_the_stream_that_made_them(device):
    side, x = torch.cuda.Stream(), torch.zeros(1, device="cuda")
    made = x + 1
    as_it_comes = torch.empty(1, device="cuda")
    with torch.cuda.stream(side):
        as_it_comes.fill_(1)
        with pytest.raises(OrderError):
            use(made)


def test_streams_need_no_order_for_numbers_of_the_host(device):
    side, number = torch.cuda.Stream(), torch.tensor(1.0)
    y = on_device(2.0)
    torch.cuda.synchronize()
    torch.zeros(1, device="cuda").add_(number)
    with torch.cuda.stream(side):
        assert number.copy_(y[0]) == 2


def test_a_replay_must_wait_for_who_changes_what_it_reads(device):
    x, y, side = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda"), torch.cuda.Stream()
    with device.capture() as graph:
        y.copy_(x)
    x.add_(1)
    with torch.cuda.stream(side), pytest.raises(OrderError):
        graph.replay()


def test_two_streams_on_one_pinned_slot_must_wait(device):
    side, slot = torch.cuda.Stream(), torch.ones(2).pin_memory()
    slot.copy_(torch.zeros(2, device="cuda"), non_blocking=True)
    with torch.cuda.stream(side), pytest.raises(OrderError):
        slot.to("cuda", non_blocking=True)


LET_GO = {
    "at once": (lambda _x, _side: None, True),
    "it is recorded there": (lambda x, side: x.record_stream(side), False),
    "the stream it was made on waits": (
        lambda _x, side: torch.cuda.default_stream().wait_stream(side),
        False,
    ),
    "the host waits": (lambda _x, side: side.synchronize(), False),
    "the other stream waits": (
        lambda _x, side: side.wait_stream(torch.cuda.default_stream()),
        True,
    ),
}


@pytest.mark.parametrize("when", LET_GO)
@pytest.mark.parametrize("how", [use, change])
def test_memory_is_not_let_go_of_while_another_stream_uses_it(device, how, when):
    before, is_wrong = LET_GO[when]
    x, side = on_device(1.0, 2.0), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        how(x)
    before(x, side)
    del x
    with pytest.raises(OrderError, match="made on stream 0") if is_wrong else nullcontext():
        on_device(1.0)


def test_memory_may_be_let_go_of_while_its_own_stream_uses_it(device):
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = on_device(1.0, 2.0)
        use(x)
    del x
    device.memory.tell()


def test_what_is_made_in_a_capture_stays_with_the_graph(device):
    x = on_device(1.0, 2.0)
    with device.capture() as graph:
        y = use(x)
        use(y)
        del y
    graph.replay()
    device.memory.tell()


def test_events_tell_time_if_asked(device):
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    torch.zeros(1, device="cuda").add_(1)
    last.record()
    assert first.elapsed_time(last) == 2  # pieces of work
    x = torch.empty(2, device="cuda")
    first.record()
    _ = x.new_empty(2), torch.empty_like(x), x[1:], x.view(torch.int32)
    last.record()
    assert first.elapsed_time(last) == 0
    with pytest.raises(ValueError, match="enable_timing"):
        torch.cuda.Event().elapsed_time(last)


# Capture.


def test_what_is_captured_is_done_at_each_replay_and_not_before(device):
    x, slot = torch.zeros(3, device="cuda"), torch.ones(3).pin_memory()
    target = torch.zeros(3).pin_memory()
    with device.capture() as graph:
        assert torch.cuda.is_current_stream_capturing()
        x.add_(1)
        y = torch.zeros(3, device="cuda") + x * 2
        y[1:].mul_(10)
        x.add_(slot.to("cuda", non_blocking=True))
        target.copy_(y, non_blocking=True)
    assert not torch.cuda.is_current_stream_capturing()
    assert values(device, x) == [0, 0, 0]
    graph.replay()
    assert (values(device, x), target.tolist()) == ([2, 2, 2], [2, 20, 20])
    slot.fill_(7.0)
    graph.replay()
    assert (values(device, x), values(device, y)) == ([10, 10, 10], [6, 60, 60])
    assert device.waits == ["torch.cuda.synchronize"]


def test_a_value_of_the_host_is_frozen(device):
    x, number = torch.zeros(1, device="cuda"), torch.tensor(1.0)
    with device.capture() as graph:
        x.add_(number)
    number.fill_(50.0)
    graph.replay()
    assert values(device, x) == [1]


def test_a_replay_lags_and_has_its_order(device):
    x, side = torch.zeros(1, device="cuda"), torch.cuda.Stream()
    with device.capture() as graph:
        x.add_(1)
    device.lag = True
    graph.replay()
    assert values(device, x) == [0]
    with torch.cuda.stream(side):
        with pytest.raises(OrderError):
            graph.replay()
        side.wait_stream(torch.cuda.default_stream())
        graph.replay()
        assert x.item() == 2


NOT_CAPTURED = {
    "item": "x[0].item()",
    "copy": "x.copy_(h)",
    "nonzero": "x.nonzero()",
    "synchronize": "torch.cuda.synchronize()",
    "event, synchronize": "e.synchronize()",
    "event, query": "e.query()",
    "stream, query": "torch.cuda.default_stream().query()",
    "a second capture": "torch.cuda.CUDAGraph().capture_begin()",
}


@pytest.mark.parametrize("what", NOT_CAPTURED)
def test_what_waits_cannot_be_captured(device, what):
    x, event = torch.zeros(2, device="cuda"), torch.cuda.Event()
    event.record()
    graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    default = torch.cuda.current_stream()
    with (
        pytest.raises(RuntimeError, match="previous error") as caught,
        torch.cuda.graph(graph, pool),
    ):
        exec(NOT_CAPTURED[what], {"torch": torch, "x": x, "h": torch.zeros(2), "e": event})
    assert CAPTURING in str(caught.value.__context__)
    assert torch.cuda.current_stream() is not default
    torch.cuda.set_stream(default)
    assert not torch.cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="captures_underway"):
        torch.cuda.empty_cache()
    torch._C._cuda_endAllocateToPool(0, pool)
    torch.cuda.empty_cache()
    assert x.tolist() == [0, 0]


def test_a_pool_is_shared_as_long_as_a_graph_of_it_is_left(device):
    pool, graphs = torch.cuda.graph_pool_handle(), []
    for _ in range(2):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[-1], pool):
            torch.zeros(1, device="cuda")
    graphs.pop()
    graphs[0].reset()
    with (
        pytest.raises(RuntimeError, match="use_count > 0"),
        torch.cuda.graph(torch.cuda.CUDAGraph(), pool),
    ):
        pass


def test_the_default_stream_is_not_captured(device):
    with pytest.raises(RuntimeError, match=CAPTURING):
        torch.cuda.CUDAGraph().capture_begin()


def test_events_do_not_lead_into_a_capture_nor_out_of_it(device):
    before, inside = torch.cuda.Event(), torch.cuda.Event()
    before.record()
    with device.capture():
        with pytest.raises(RuntimeError, match="dependency created on uncaptured work"):
            before.wait()
        inside.record()
    with pytest.raises(RuntimeError, match="last recorded in a capturing stream"):
        inside.wait()


def test_a_stream_that_waits_for_a_captured_one_is_captured_too(device):
    x, side = torch.zeros(1, device="cuda"), torch.cuda.Stream()
    with device.capture() as graph:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add_(1)
        torch.cuda.current_stream().wait_stream(side)
    assert values(device, x) == [0]
    graph.replay()
    assert values(device, x) == [1]
