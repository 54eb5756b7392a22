"""Any sequence of calls, found and shrunk by hypothesis, compared with the twin after each."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from relive import Linear, Proportional, RankBased, Recent, Uniform
from tests.properties.calls import FOLDERS, MOST_CAPACITY, SPECIAL_ERRORS, Spec
from tests.properties.pair import Pair

alike = {  # in both prioritized samplers
    "alpha": st.sampled_from([0.0, 0.6, 1.0, 2.0]),
    "beta": st.sampled_from([0.0, 0.4, 1.0, Linear(0.4, 1.0, 10)]),
    "normalize": st.sampled_from([None, "batch", "buffer"]),
    "stratified": st.booleans(),
    "bad_priority": st.sampled_from(["keep", "max", "raise"]),
    "uniform_share": st.sampled_from([0.0, 0.0, 0.3, 1.0]),
    "mixture_weights": st.booleans(),
}
proportional = st.builds(
    Proportional,
    **alike,
    eps=st.sampled_from([0.0, 1e-6]),
    new_priority=st.sampled_from(["max_seen", "max_current"]),
    demo_bonus=st.sampled_from([0.0, 0.5]),
)
ranked = st.builds(RankBased, **alike, resort_every=st.integers(1, 4))
shrinking = st.builds(
    Recent,
    eta=st.sampled_from([0.9, 0.996, Linear(0.9, 1.0, 10)]),
    c_min=st.integers(1, 6),
    updates=st.integers(1, 6),
    of=st.sampled_from(["present", "capacity"]),
)
windows = st.one_of(st.none(), st.builds(Recent, st.integers(1, 8)), shrinking)
specs = st.builds(
    Spec,
    capacity=st.integers(4, 20),
    num_envs=st.integers(1, 4),
    n_step=st.integers(1, 5),
    autoreset=st.sampled_from(["disabled", "next_step", "same_step"]),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    sampler=st.one_of(st.just(Uniform()), proportional, ranked),
    window=windows,
    demo_fraction=st.sampled_from([None, 0.0, 0.3, 0.5, 1.0, Linear(0.9, 0.1, 10)]),
    track_reuse=st.booleans(),
    seed=st.integers(-(2**63), 2**63 - 1),
)
numbers = st.integers(-1000, 1000)
endings = st.sampled_from([(False, False)] * 5 + [(True, False), (False, True), (True, True)])
one_step = st.tuples(numbers, numbers, endings)
errors = st.one_of(
    st.sampled_from(SPECIAL_ERRORS),
    st.floats(width=32, allow_nan=True, allow_infinity=True),
    st.builds(lambda exponent: 2.0**exponent, st.integers(-45, 45)),
)


def stacked(steps: list[tuple[int, int, tuple[bool, bool]]], axes: tuple[int, ...]) -> Any:
    """The arguments of a call; the values of a step follow from two numbers and its ending."""
    first, second, endings = (np.array(values) for values in zip(*steps, strict=True))
    terminated, truncated = endings[:, 0], endings[:, 1]
    values = {
        "obs": np.stack([first, -first], axis=-1).astype(np.float32),
        "action": first,
        "tag": second.astype(np.int32),
        "reward": (second / 8).astype(np.float32),
        "next_obs": np.stack([second + 0.5, -second - 0.5], axis=-1),
        "terminated": terminated,
        "truncated": truncated,
    }
    return {name: value.reshape(*axes, *value.shape[1:]) for name, value in values.items()}


class AnyCalls(RuleBasedStateMachine):
    @initialize(spec=specs)
    def make(self, spec: Spec) -> None:
        self.spec = spec
        self.folder = tempfile.TemporaryDirectory()
        self.pair = Pair(spec, folder=Path(self.folder.name))

    def teardown(self) -> None:
        for number in range(FOLDERS):
            self.pair.finish(number)
        self.folder.cleanup()

    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        envs = self.spec.num_envs
        steps = data.draw(st.lists(one_step, min_size=envs, max_size=envs))
        call = stacked(steps, (envs,))
        if self.spec.autoreset == "same_step":
            call["final_obs"] = call["next_obs"] * 3
        self.pair.call("add", call)

    @rule(data=st.data(), all_lanes=st.booleans(), ready_made=st.booleans())
    def extend(self, data: st.DataObject, all_lanes: bool, ready_made: bool) -> None:
        envs = self.spec.num_envs if all_lanes else 1
        times = data.draw(st.integers(1, 12))
        steps = data.draw(st.lists(one_step, min_size=envs * times, max_size=envs * times))
        call = stacked(steps, (times, envs) if all_lanes else (times,))
        call["env"] = None if all_lanes else data.draw(st.integers(0, self.spec.num_envs - 1))
        if ready_made:
            call["discount"] = np.where(call["terminated"], 0, 0.5)
        self.pair.call("extend", call)

    @rule(data=st.data())
    def end_episode(self, data: st.DataObject) -> None:
        lanes = st.one_of(st.none(), st.integers(0, self.spec.num_envs - 1))
        self.pair.call("end_episode", {"env": data.draw(lanes)})

    @rule()
    def clear(self) -> None:
        self.pair.call("clear", {})

    @rule(batch_size=st.integers(1, 12), train=st.booleans())
    def sample(self, batch_size: int, train: bool) -> None:
        self.pair.call("sample", {"batch_size": batch_size, "train": train})

    @precondition(lambda self: self.pair.buffer.prioritized and self.pair.twin.next_id)
    @rule(data=st.data(), kind=st.sampled_from(["td_errors", "td_errors", "priorities"]))
    def update_priorities(self, data: st.DataObject, kind: str) -> None:
        count = data.draw(st.integers(0, 8))
        newest = self.pair.twin.next_id - 1
        ids = st.integers(max(0, newest - self.spec.capacity - 2), newest)
        call = {
            "ids": np.array(data.draw(st.lists(ids, min_size=count, max_size=count)), np.int64),
            kind: np.array(data.draw(st.lists(errors, min_size=count, max_size=count)), np.float32),
        }
        self.pair.call("update_priorities", call)

    @precondition(lambda self: self.pair.buffer.prioritized and self.pair.twin.rows)
    @rule(error=errors, spread=st.sampled_from([1.0, 1.3, 1e6]))
    def update_all_priorities(self, error: float, spread: float) -> None:
        ids = np.array(self.pair.twin.live_ids)
        values = error * np.geomspace(1, spread, len(ids))
        values = np.where(np.abs(values) < 3e38, values, np.inf).astype(np.float32)
        self.pair.call("update_priorities", {"ids": ids, "td_errors": values})

    @precondition(lambda self: self.pair.buffer.prioritized and self.pair.twin.rows)
    @rule()
    def write_back(self) -> None:
        ids = self.pair.buffer.live_ids()
        values = self.pair.buffer.priorities(ids)
        call = {"ids": ids.numpy(), "priorities": values.numpy()}
        self.pair.call("update_priorities", call)

    @rule(data=st.data())
    def sample_range(self, data: st.DataObject) -> None:
        newest = self.pair.twin.next_id
        start = data.draw(st.integers(0, newest + 1))
        stop = data.draw(st.one_of(st.integers(start, newest + 2), st.just(2**62 + 2)))
        self.pair.call("sample_range", {"batch_size": 4, "start": start, "stop": stop})

    @rule(missing=st.sampled_from([0, 0, 0, 1]), reserve=st.integers(0, 3))
    def pin_demonstrations(self, missing: int, reserve: int) -> None:
        number = max(0, len(self.pair.twin.rows) - missing)
        self.pair.call("pin_demonstrations", {"count": number, "reserve": reserve})

    @precondition(lambda self: self.pair.twin.pinned and self.pair.twin.rows)
    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        ids = st.sampled_from(self.pair.twin.live_ids)
        self.pair.call("pin", {"ids": np.array(data.draw(st.lists(ids, min_size=1, max_size=3)))})

    @rule(updates=st.integers(1, 5))
    def start_sweep(self, updates: int) -> None:
        self.pair.call("start_sweep", {"updates": updates})

    @rule(t=st.integers(0, 20))
    def set_progress(self, t: int) -> None:
        self.pair.call("set_progress", {"t": t})

    @rule(seed=st.integers(-(2**63), 2**63 - 1))
    def reseed(self, seed: int) -> None:
        self.pair.call("reseed", {"seed": seed})

    @rule(number=st.integers(0, FOLDERS - 1), background=st.booleans())
    def save(self, number: int, background: bool) -> None:
        self.pair.call("save", {"number": number, "background": background})

    @precondition(lambda self: self.pair.saved)
    @rule(data=st.data(), go_on=st.booleans())
    def load(self, data: st.DataObject, go_on: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.pair.saved)))
        capacities = st.one_of(st.none(), st.integers(self.spec.num_envs, 30))
        call = {"number": number, "capacity": data.draw(capacities), "go_on": go_on}
        self.pair.call("load", call)

    @rule()
    def swap(self) -> None:
        self.pair.call("swap", {})

    @precondition(lambda self: self.pair.twin.capacity < MOST_CAPACITY)
    @rule(more=st.integers(0, 5))
    def grown(self, more: int) -> None:
        self.pair.call("grown", {"more": more})

    @rule(how=st.sampled_from(["pickle", "copy", "deepcopy"]))
    def copied(self, how: str) -> None:
        self.pair.call("copied", {"how": how})


def calls_of(number: int) -> settings:
    """So many examples of up to 25 steps."""
    return settings(
        max_examples=number,
        stateful_step_count=25,
        report_multiple_bugs=False,  # shrinking several takes minutes
        phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
    )


TestAnyCalls = AnyCalls.TestCase
TestAnyCalls.settings = calls_of(max(10, settings.default.max_examples // 2))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_any_sequence_of_calls_for_20_000_steps() -> None:
    made = []

    class Counted(AnyCalls):
        def teardown(self) -> None:
            made.append(self.pair.calls)
            super().teardown()

    run_state_machine_as_test(Counted, settings=calls_of(1000))
    assert sum(made) >= 20_000
