"""Means of metrics: right, read late, and without a wait but where one is asked for."""

from __future__ import annotations

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
