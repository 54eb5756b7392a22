"""A buffer on a GPU and one on the CPU live the same life, bit for bit.

Steps come as arrays of the host, as tensors of the device, or some of each; now and then a buffer
is saved and loaded on the other device, copied or grown. Calls that the CPU refuses because of what
is in the buffer (nothing to draw, unknown ids) are not made: a GPU cannot refuse them.
"""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from relive import (
    InputError,
    Linear,
    NotReadyError,
    Proportional,
    RankBased,
    Recent,
    ReplayBuffer,
    Uniform,
    UnsupportedError,
)
from tests.properties.calls import FIELDS, Calls, Spec
from tests.triton.sameness import assert_same_batch_there, assert_same_buffer_there

if TYPE_CHECKING:
    from pathlib import Path

    from tests.triton.pretended import Device

SPECS = {
    "uniform": Spec(sampler=Uniform(), track_reuse=True),
    "uniform, fakes": Spec(sampler=Uniform(), num_envs=3, n_step=3, autoreset="next_step"),
    "proportional": Spec(capacity=40, sampler=Proportional(eps=0.0), n_step=2),
    "same step": Spec(
        capacity=150,
        num_envs=3,
        n_step=4,
        autoreset="same_step",
        track_reuse=True,
        sampler=Proportional(normalize="batch", new_priority="max_current", bad_priority="max"),
    ),
    "fakes": Spec(
        capacity=60,
        num_envs=2,
        n_step=2,
        autoreset="next_step",
        sampler=Proportional(stratified=False, normalize=None, uniform_share=0.2),
    ),
    "ranks": Spec(capacity=50, sampler=RankBased(resort_every=3)),
    "ranks in a window": Spec(
        capacity=60,
        sampler=RankBased(resort_every=5, normalize="batch"),
        window=Recent(15),
        pins=True,
        n_step=2,
    ),
    "sweeps and demonstrations": Spec(
        capacity=60,
        sampler=Proportional(beta=Linear(0.4, 1.0, 50), mixture_weights=True, demo_bonus=0.5),
        window=Recent(c_min=4, updates=7),
        demo_fraction=Linear(0.5, 0.1, 60),
        pins=True,
    ),
    "one pool": Spec(capacity=70, sampler=Uniform(), demo_fraction=None, pins=True, num_envs=2),
    "rows on the host": Spec(capacity=60, sampler=Proportional(), n_step=3),
}


class Life:
    """Two buffers and what is done with both; they are saved into a folder."""

    def __init__(self, spec: Spec, device: Device, seed: int, rows_on: str, folder: Path) -> None:
        self.device, self.rng, self.folder = device, np.random.default_rng(seed), folder
        self.cpu = spec.buffer()
        self.gpu = spec.buffer("auto", device="cuda", rows_on=rows_on)
        self.calls = Calls(spec, self.cpu, seed)
        self.made = 0

    def live(self, number: int) -> None:
        while self.made < number:
            for name, arguments in self.calls.take(10):
                own = getattr(self, name, None)
                own(arguments) if own else self.other(name, arguments)
            self.compare()
            if self.rng.random() < 0.2:
                self.change_places()

    # What is different on a GPU

    def add(self, values: dict[str, Any]) -> None:
        self.cpu.add(**values)
        with self.device.forbid_waits():
            self.gpu.add(**self.given(values))
        self.made += 1

    def extend(self, values: dict[str, Any]) -> None:
        env, values = values["env"], {k: v for k, v in values.items() if k != "env"}
        self.cpu.extend(**values, env=env)
        with self.device.forbid_waits():
            self.gpu.extend(**self.given(values), env=env)
        self.made += 1

    def sample(self, arguments: dict[str, Any]) -> None:
        self.drawn("sample", arguments)

    def sample_range(self, arguments: dict[str, Any]) -> None:
        self.drawn("sample_range", arguments)

    def drawn(self, name: str, arguments: dict[str, Any]) -> None:
        try:
            expected = getattr(self.cpu, name)(**arguments)
        except (NotReadyError, InputError):
            return
        batch = getattr(self.gpu, name)(**arguments)
        assert_same_batch_there(self.device, batch, expected)
        self.made += 1

    def update_priorities(self, arguments: dict[str, Any]) -> None:
        try:
            self.cpu.update_priorities(**arguments)
        except InputError:
            return
        with self.device.forbid_waits():
            self.gpu.update_priorities(**self.given(arguments))
        self.made += 1

    def ready(self, arguments: dict[str, Any]) -> None:
        with self.device.forbid_waits():
            assert self.gpu.ready(**arguments) <= (len(self.cpu) >= arguments["batch_size"])

    def other(self, name: str, arguments: dict[str, Any]) -> None:
        answers = []
        for buffer in (self.cpu, self.gpu):
            try:
                answers.append(getattr(buffer, name)(**arguments))
            except (InputError, UnsupportedError) as error:
                answers.append(str(error))
        expected, given = answers
        if isinstance(expected, torch.Tensor):
            assert torch.equal(self.device.inner(given), expected)
        else:
            assert given == expected
        self.made += 1

    def given(self, values: dict[str, Any]) -> dict[str, Any]:
        """Values as they are, on the device, or some there."""
        share = self.rng.choice([0.0, 0.5, 1.0])
        return {
            name: self.there(name, value) if self.rng.random() < share else value
            for name, value in values.items()
        }

    def there(self, name: str, value: Any) -> Any:
        field = FIELDS.get(name)
        tensor = torch.as_tensor(np.asarray(value))
        if field is not None and not field.dtype.is_floating_point:
            tensor = tensor.to(field.dtype)  # of tensors integers may not be narrowed
        return tensor.pin_memory().to("cuda", non_blocking=True)

    # Other buffers take their place

    def change_places(self) -> None:
        way = self.rng.choice(["crossed", "pickled", "copied", "grown", "state"])
        getattr(self, way)()
        self.calls._buffer = self.cpu
        self.compare()

    def pickled(self) -> None:
        self.cpu, self.gpu = pickle.loads(pickle.dumps((self.cpu, self.gpu)))

    def copied(self) -> None:
        self.cpu, self.gpu = copy.deepcopy((self.cpu, self.gpu))

    def grown(self) -> None:
        capacity = self.cpu.capacity + 3
        self.cpu, self.gpu = self.cpu.grown(capacity), self.gpu.grown(capacity)

    def state(self) -> None:
        """The state of the one on the device goes into another on the device."""
        settings = self.gpu._home.settings.arguments()
        other = ReplayBuffer(**settings)
        other.load_state_dict(self.gpu.state_dict())
        self.gpu = other

    def crossed(self) -> None:
        """Each is what was saved of the other."""
        rows_on = self.gpu._home.settings.rows_on
        self.gpu.save(self.folder / "gpu")
        self.cpu.save(self.folder / "cpu")
        self.gpu = ReplayBuffer.load(self.folder / "cpu", device="cuda")
        self.cpu = ReplayBuffer.load(self.folder / "gpu", device="cpu")
        if rows_on == "host":
            self.gpu.save(self.folder / "back")
            self.gpu = ReplayBuffer.load(self.folder / "back")

    def compare(self) -> None:
        assert_same_buffer_there(self.device, self.gpu, self.cpu)
        assert self.gpu._home.intake.rows <= len(self.cpu)


def live(name: str, device: Device, folder: Path, calls: int) -> None:
    """So many calls on buffers of a kind."""
    rows_on = "host" if name == "rows on the host" else "device"
    Life(SPECS[name], device, len(name), rows_on, folder).live(calls)
