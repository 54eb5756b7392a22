"""A number that varies from step to step is caught, and launches are counted."""

import re

import pytest
import torch

from relive.ops.launch import launch
from tests.triton.arguments import BudgetError, FrozenError, Steps, launches, recorded


class Kernel:
    """Counts its launches."""

    arg_names = ("target", "count", "BLOCK")

    def __init__(self, name="add_up"):
        self.__name__ = name
        self.launches = 0

    def __getitem__(self, grid):
        return self.run

    def run(self, *_, **__):
        self.launches += 1


# Pairs of launches of what ought to be one step: (grid, arguments by value, constants), and what
# is said about them.
VARYING = {
    "a number by value": (((1,), [3], {}), ((1,), [4], {}), "count of add_up was 3, now 4"),
    "a constant": (((1,), [3], {"BLOCK": 8}), ((1,), [3], {"BLOCK": 16}), "BLOCK of add_up was 8"),
    "another type": (((1,), [3], {}), ((1,), [3.0], {}), "count of add_up was 3, now 3.0"),
    "the grid": (((1,), [3], {}), ((2,), [3], {}), "the grid of add_up was (1,), now (2,)"),
}


def add(steps, *launched):
    """One step called add; each of `launched` is (kernel, grid, arguments, constants)."""
    with steps.named("add"):
        for kernel, grid, arguments, constants in launched:
            launch(kernel, grid, *arguments, **constants)


@pytest.mark.parametrize("what", VARYING)
def test_what_varies_is_caught(what):
    first, second, message = VARYING[what]
    steps, target = Steps(), torch.zeros(4)
    for grid, numbers, constants in (first, first):
        add(steps, (Kernel(), grid, [target, *numbers], constants))
    grid, numbers, constants = second
    with pytest.raises(FrozenError) as caught:
        add(steps, (Kernel(), grid, [target, *numbers], constants))
    assert message in str(caught.value)


def test_another_shape_of_a_tensor_is_caught():
    steps = Steps()
    add(steps, (Kernel(), (1,), [torch.zeros(4)], {}))
    with pytest.raises(FrozenError, match=r"target of add_up was .*\(4,\)', now .*\(5,\)"):
        add(steps, (Kernel(), (1,), [torch.zeros(5)], {}))


def test_another_kernel_or_one_more_is_caught():
    steps, a, b = Steps(), (Kernel("a"), (1,), [], {}), (Kernel("b"), (1,), [], {})
    add(steps, a)
    with pytest.raises(FrozenError, match=r"launched \['a'\], then \['b'\]"):
        add(steps, b)
    with pytest.raises(FrozenError, match=r"launched \['a'\], then \['a', 'a'\]"):
        add(steps, a, a)


def test_a_size_that_the_host_hands_over_is_caught():
    steps, rows = Steps(), []

    def add_row():
        rows.append(0)
        add(steps, (Kernel(), (1,), [torch.zeros(4), len(rows)], {}))

    add_row()
    with pytest.raises(FrozenError, match="count of add_up was 1, now 2"):
        add_row()


def test_tensors_and_numbers_in_a_tuple_are_looked_at_too():
    steps = Steps()
    for _ in range(2):
        add(steps, (Kernel(), (1,), [(torch.zeros(4), 3)], {}))
    with pytest.raises(FrozenError, match="target of add_up was"):
        add(steps, (Kernel(), (1,), [(torch.zeros(4), 4)], {}))


def test_steps_of_other_names_may_differ():
    steps = Steps()
    for count in (3, 4):
        for _ in range(3):
            with steps.named(f"add of {count}"):
                launch(Kernel(), (1,), torch.zeros(count), count)


def test_values_in_tensors_may_vary():
    steps = Steps()
    for value in range(3):
        with steps.named("add"):
            launch(Kernel(), (1,), torch.full((4,), value))


def test_launches_run_and_are_recorded_in_order():
    kernel = Kernel()
    with recorded() as seen:
        launch(kernel, (2,), torch.zeros(4), 3, BLOCK=8)
        launch(Kernel("other"), (1,), 5)
    launch(kernel, (1,))
    assert kernel.launches == 2
    assert seen == [
        ("add_up", (2,), {"target": "torch.float32 (4,)", "count": 3, "BLOCK": 8}),
        ("other", (1,), {"target": 5}),
    ]


def test_a_budget_holds_for_kernels_of_torch_too():
    kernel, x = Kernel(), torch.zeros(4)
    with launches(at_most=2):
        launch(kernel, (1,), torch.empty(4), x[1:].view(torch.int32))
        x.add_(1)
    said = re.escape("2 launches where 1 are allowed: add_up, aten.add_.Tensor")
    with pytest.raises(BudgetError, match=said), launches(at_most=1):
        launch(kernel, (1,)), x.add_(1)


def test_what_happens_inside_a_launch_is_not_counted():
    class Adding(Kernel):
        def run(self, target, **_):
            target.add_(1)

    target = torch.zeros(4)
    with launches(at_most=1):
        launch(Adding(), (1,), target)
    assert target.tolist() == [1] * 4
