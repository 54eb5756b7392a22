"""Means of numbers that stay on the device until somebody looks at them.

M  metrics
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from relive.declared import plain
from relive.errors import InputError, shown
from relive.gpu.capture import refuse_capture
from relive.gpu.readback import Readback


class MetricMeans:
    """Means of metrics over many steps, without a wait in any of them.

        means = MetricMeans()
        means.add({"loss": loss, "q": q.mean()})     at every step
        means.take()                                 now and then: {"loss": 0.031, "q": 14.2}

    Sums and their count are on the device, where a step that is captured in a CUDA graph adds to
    them at each replay. The host waits in `take` only; `send` and `latest` never do: `send` has the
    means of what was added since the last one copied, and `latest` gives those that have arrived.
    """

    def __init__(self) -> None:
        self._names: list[str] = []
        self._sums: Tensor | None = None  # [M + 1], behind them how many were added
        self._one: Tensor | None = None
        self._sent: Readback | None = None

    def add(self, metrics: Mapping[str, Tensor | float]) -> None:
        """Adds one value of each metric. The first call must not be captured; never waits.

        Args:
            metrics: name to 0-dimensional float tensor, or to a number; the same names, tensors on
                the same device, at every call. Detached; not kept.

        Raises:
            InputError: other names than before, another device, or what is no number; nothing has
                been added.
            UnsupportedError: a number while the current stream of their device is being captured,
                where every replay would add the same.
        """
        if (type(metrics) is not dict and not isinstance(metrics, Mapping)) or not metrics:
            raise InputError(
                "metrics are a mapping from names to numbers, {'loss': loss} say; "
                f"given {shown(metrics)}"
            )
        if self._sums is not None and self._names != list(metrics):
            raise InputError(
                f"metrics have the same names at every call, {', '.join(map(str, self._names))}; "
                f"given {', '.join(map(str, metrics))}"
            )
        if self._sums is None:
            self._begin(dict(zip(metrics, self._tensors(metrics), strict=True)))
        try:
            values = torch.stack([*metrics.values(), self._one])  # type: ignore[list-item]
        except (TypeError, RuntimeError):  # there are numbers, or what is refused
            values = torch.stack([*self._tensors(metrics), self._one])  # type: ignore[list-item]
        if values.is_complex():
            self._tensors(metrics)
        self._sums += values.detach() if values.requires_grad else values  # type: ignore[operator]

    def send(self) -> bool:
        """Sends the means since the last `send` or `take` to the host; never waits.

        Returns:
            False if nothing was sent, because nothing was ever added or three are under way: what
            was added stays, for the next.

        Raises:
            UnsupportedError: the current stream of their device is being captured.
        """
        if self._sums is None:
            return False
        assert self._sent is not None  # made with the sums
        if not self._sent.ask(self._sums):
            return False
        self._sums.zero_()
        return True

    def latest(self) -> dict[str, float]:
        """The means that arrived last; empty before the first. Never waits."""
        return {} if self._sent is None else self._means(self._sent.latest())

    def take(self) -> dict[str, float]:
        """The means since the last `send` or `take`; empty if nothing was added.

        Waits for the device.
        """
        if self._sums is None:
            return {}
        assert self._sent is not None  # made with the sums
        while not self.send():
            self._sent.wait()
        return self._means(self._sent.wait())

    def state_dict(self) -> dict[str, Any]:
        """What has been added since the last `send` or `take`. Waits for the device."""
        sums = None if self._sums is None else self._sums.cpu()
        count = 0 if sums is None else int(sums[-1])
        if sums is None or not count:
            return {"names": [], "sums": None, "count": 0}
        return {"names": self._names, "sums": sums[:-1].clone(), "count": count}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        """Goes on from what `state_dict` gave, on a device. Waits for it."""
        sums = state["sums"]
        if sums is None:
            self._sums = self._sent = None
            return
        self._begin(dict(zip(state["names"], sums.to(device), strict=True)))
        assert self._sums is not None  # made just now
        self._sums[:-1] = sums.to(device)
        self._sums[-1:].fill_(state["count"])

    def _tensors(self, metrics: Mapping[str, Tensor | float]) -> list[Tensor]:
        """Of each metric a tensor `[]`, all on the device of the sums, or of the first tensor."""
        tensors = (value for value in (self._sums, *metrics.values()) if isinstance(value, Tensor))
        device = next((tensor.device for tensor in tensors), torch.device("cpu"))
        return [_tensor(name, value, device) for name, value in metrics.items()]

    def _begin(self, metrics: Mapping[str, Tensor]) -> None:
        values = list(metrics.values())
        self._names = list(metrics)
        # float32 counts to 2^24 exactly, and lifts what is narrower
        self._one = torch.ones((), dtype=torch.float32, device=values[0].device)
        self._sums = torch.zeros_like(torch.stack([*values, self._one]).detach())
        self._sent = Readback(torch.zeros(len(self._sums), dtype=self._sums.dtype, device="cpu"))

    def _means(self, sums: Tensor) -> dict[str, float]:
        """Name to mean; empty where nothing was added."""
        *totals, count = sums.tolist()
        return {name: t / count for name, t in zip(self._names, totals, strict=True) if count}


def _tensor(name: str, value: Tensor | float, device: torch.device) -> Tensor:
    if not isinstance(value, Tensor):
        number = plain(value)
        if not isinstance(number, int | float):
            raise _no_number(name, shown(value))
        refuse_capture(device)
        return torch.full((), float(number), dtype=torch.float64, device=device)
    if value.ndim or value.is_complex():
        raise _no_number(name, f"a tensor {[*value.shape]} of {value.dtype}")
    if value.device != device:
        raise InputError(
            f"metrics are on one device, {device}; given {name} on {value.device}; "
            f"{name}.to('{device}')"
        )
    return value


def _no_number(name: str, given: str) -> InputError:
    return InputError(
        f"a metric is a number or a tensor of one, loss.mean() say; given {name} = {given}"
    )
