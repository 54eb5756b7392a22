"""Means of metrics: right, read late, and without a wait but where one is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relive import InputError, MetricMeans, UnsupportedError
from tests.triton.pretended import Device, pretended

NUMBERS = [1.0, 2.0, 6.0]


def test_means_start_anew_each_time_they_are_taken() -> None:
    means = MetricMeans()
    assert means.take() == {}
    assert not means.send()
    for loss in NUMBERS:
        means.add({"loss": torch.tensor(loss), "q": torch.tensor(-loss)})
    assert means.take() == {"loss": 3.0, "q": -3.0}
    assert means.take() == {}
    means.add({"loss": torch.tensor(5.0), "q": torch.tensor(0.0)})
    assert means.take() == {"loss": 5.0, "q": 0.0}


def test_adding_a_metric_keeps_the_tensor_that_was_given_and_not_its_history() -> None:
    means, loss = MetricMeans(), torch.tensor(1.0, requires_grad=True)
    means.add({"loss": 2 * loss})
    means.add({"loss": loss})
    assert loss == 1.0
    assert means.take() == {"loss": 1.5}


def test_narrow_numbers_are_counted_exactly() -> None:
    means = MetricMeans()
    for _ in range(1000):
        means.add({"loss": torch.tensor(3.0, dtype=torch.bfloat16)})
    assert means.take() == {"loss": 3.0}


def test_other_names_are_refused_and_nothing_is_added() -> None:
    means = MetricMeans()
    means.add({"loss": torch.tensor(1.0)})
    with pytest.raises(InputError, match="same names at every call, loss; given q"):
        means.add({"q": torch.tensor(7.0)})
    assert means.take() == {"loss": 1.0}


def test_numbers_are_taken_as_they_are_and_beside_tensors() -> None:
    means = MetricMeans()
    for number in (0.1, np.float32(0.5), 3, True):
        means.add({"reward": number, "loss": torch.tensor(2.0)})
    assert means.take() == {"reward": pytest.approx(1.15), "loss": 2.0}
    means.add({"reward": torch.tensor(0.25), "loss": 1e300})
    assert means.take() == {"reward": 0.25, "loss": 1e300}
    only = MetricMeans()
    only.add({"reward": 0.1})
    assert only.take() == {"reward": 0.1}


NUMBER = r"a metric is a number or a tensor of one, loss\.mean\(\) say; given loss = "
BAD = [
    ({}, r"from names to numbers, \{'loss': loss\} say; given \{\}"),
    (0.5, r"from names to numbers, \{'loss': loss\} say; given 0\.5"),
    ({"loss": torch.ones(3)}, NUMBER + r"a tensor \[3\] of torch\.float32"),
    ({"loss": torch.ones(1)}, NUMBER + r"a tensor \[1\] of torch\.float32"),
    ({"loss": torch.tensor(1j)}, NUMBER + r"a tensor \[\] of torch\.complex64"),
    ({"loss": None}, NUMBER + "None"),
    ({"loss": "0.5"}, NUMBER + "'0.5'"),
    ({"loss": np.ones(2)}, NUMBER + r"array\(\[1\., 1\.\]\)"),
]


@pytest.mark.parametrize(("metrics", "told"), BAD)
def test_what_is_no_number_is_refused_and_nothing_is_added(metrics: Any, told: str) -> None:
    means = MetricMeans()
    with pytest.raises(InputError, match=told):
        means.add(metrics)
    assert means.take() == {}
    means.add({"loss": torch.tensor(1.0)})
    with pytest.raises(InputError, match=told):
        means.add(metrics)
    assert means.take() == {"loss": 1.0}


def test_names_that_are_no_strings_are_told_too() -> None:
    means = MetricMeans()
    means.add({1: 0.5})
    with pytest.raises(InputError, match="same names at every call, 1; given 2"):
        means.add({2: 0.5})


def test_what_was_added_goes_on_after_a_save() -> None:
    means, again = MetricMeans(), MetricMeans()
    again.load_state_dict(means.state_dict(), torch.device("cpu"))
    assert again.take() == {}
    for loss in NUMBERS[:2]:
        means.add({"loss": torch.tensor(loss)})
    again.load_state_dict(means.state_dict(), torch.device("cpu"))
    again.add({"loss": torch.tensor(NUMBERS[2])})
    assert again.take() == {"loss": 3.0}
    assert means.take() == {"loss": 1.5}


@pytest.fixture
def device() -> Device:
    with pretended() as there:
        yield there


def there(number: float) -> dict[str, torch.Tensor]:
    return {"loss": torch.full((), number, device="cuda")}


def test_on_a_device_that_lags_nothing_waits_until_the_means_are_taken(device: Device) -> None:
    means, given = MetricMeans(), [there(number) for number in NUMBERS]
    device.lag = True
    with device.forbid_waits():
        for metrics in given:
            means.add(metrics)
        assert means.send()
        means.add(given[2])
        assert means.latest() == {}
    device.lag = False
    assert means.latest() == {"loss": 3.0}
    del device.waits[:]
    assert means.take() == {"loss": 6.0}
    assert len(device.waits) <= 1


def test_a_device_that_is_far_behind_gets_no_fourth_question_and_nothing_is_lost(
    device: Device,
) -> None:
    means, given = MetricMeans(), [there(number) for number in (1.0, 2.0, 3.0, 4.0, 6.0)]
    means.add(given[0])  # sums are made
    assert means.take() == {"loss": 1.0}
    device.lag = True
    sent = []
    for metrics in given:
        means.add(metrics)
        sent.append(means.send())
    device.lag = False
    assert sent == [True, True, True, False, False]
    assert means.latest() == {"loss": 3.0}
    assert means.take() == {"loss": 5.0}


def test_a_captured_step_adds_at_each_replay(device: Device) -> None:
    means, loss = MetricMeans(), there(1.0)
    means.add(loss)
    means.take()
    with device.capture() as graph:
        means.add(loss)
        with pytest.raises(UnsupportedError, match="captured"):
            means.send()
    for number in NUMBERS:
        loss["loss"].fill_(number)
        graph.replay()
    assert means.take() == {"loss": 3.0}


def test_numbers_and_tensors_of_the_device_are_added_without_a_wait(device: Device) -> None:
    means, loss = MetricMeans(), there(2.0)
    means.add({"reward": 0.5, **loss})
    with device.forbid_waits():
        means.add({"reward": 1.5, **loss})
    assert means.take() == {"reward": 1.0, "loss": 2.0}


def test_a_number_has_no_place_in_a_capture(device: Device) -> None:
    means, loss = MetricMeans(), there(1.0)
    means.add(loss)
    with device.capture() as graph:
        means.add(loss)
        with pytest.raises(UnsupportedError, match="captured in a CUDA graph"):
            means.add({"loss": 1.0})
    means.take()
    graph.replay()
    assert means.take() == {"loss": 1.0}


def test_tensors_of_two_devices_are_refused(device: Device) -> None:
    means = MetricMeans()
    means.add(there(1.0))
    here = {"loss": torch.tensor(3.0)}
    told = r"metrics are on one device, cuda(:0)?; given loss on cpu; loss\.to\('cuda(:0)?'\)"
    with pytest.raises(InputError, match=told):
        means.add(here)
    assert means.take() == {"loss": 1.0}
