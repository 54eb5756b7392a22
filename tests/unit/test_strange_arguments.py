"""Arguments that are of no kind anyone expects: refused by name, and nothing has changed."""

from __future__ import annotations

import fractions
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import (
    Batch,
    ConfigError,
    Field,
    InputError,
    Linear,
    Mixture,
    Proportional,
    ReplayBuffer,
    TrajectoryStore,
    UnsupportedError,
    fields_of,
    plan,
)
from relive.errors import shown
from relive.ops import words as w
from relive.storage import lending
from tests.faults.tagged import FIELDS, row, rows
from tests.unit.unchanged import refused

if TYPE_CHECKING:
    from pathlib import Path

HUGE = 10**5000  # cannot be written, nor become a float
GRADIENT = torch.ones(1, requires_grad=True)
RARE = torch.empty(1, dtype=torch.uint4)  # torch cannot copy it, nor show it
NO_ARRAYS: dict[str, Any] = {
    "ragged": [[1], [1, 2]],
    "tensors that require gradients, in a list": [GRADIENT],
    "meta": torch.zeros(1, device="meta"),
    "sparse": torch.zeros(1).to_sparse(),
    "a type that cannot be copied": RARE,
    "complex": torch.zeros(1, dtype=torch.complex64),
    "objects": np.array([None]),
    "words": np.array(["1"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "records": np.zeros(1, "i4,f4"),
    "longer than a number of torch": np.zeros(1, np.longdouble),
}


@pytest.fixture
def buffer() -> ReplayBuffer:
    made = ReplayBuffer(8, FIELDS, sampler=Proportional())
    made.extend(**rows(range(5)))
    return made


@pytest.mark.parametrize("value", NO_ARRAYS.values(), ids=NO_ARRAYS)
def test_what_is_no_array_of_real_numbers_is_refused_by_every_call(
    buffer: ReplayBuffer, value: Any
) -> None:
    if getattr(value, "dtype", None) != np.longdouble:  # which becomes float32
        for name in ("obs", "action", "reward", "next_obs", "terminated"):
            with refused(buffer, InputError, name):
                buffer.add(**{**rows([0]), "truncated": [False], name: value})
            with refused(buffer, InputError, name):
                buffer.extend(**{**rows([0]), name: value})
    with refused(buffer, InputError, "ids"):
        buffer.update_priorities(value, [1.0])
    with refused(buffer, InputError, "td_errors"):
        buffer.update_priorities([0], value)
    for call in (buffer.rows, buffer.priorities, buffer.pin):
        with refused(buffer, InputError, "ids"):
            call(value)


COUNTS = [HUGE, RARE, np.zeros(2), "8", None, 1.5]


@pytest.mark.parametrize("value", COUNTS, ids=shown)
def test_what_counts_is_a_whole_number_that_fits(buffer: ReplayBuffer, value: Any) -> None:
    for name in ("capacity", "num_envs", "n_step"):
        with pytest.raises(ConfigError, match=rf"{name} is a whole number >= 1; given"):
            ReplayBuffer(**{"capacity": 8, "fields": FIELDS, "autoreset": "disabled", name: value})
    for call in (buffer.sample, buffer.empty_batch, buffer.ready):
        with refused(buffer, InputError, r"batch_size is a whole number >= 1; given"):
            call(value)
    with refused(buffer, InputError, "count is a whole number|only all rows so far"):
        buffer.pin_demonstrations(value)
    with refused(buffer, ConfigError, "capacity (is a whole number|grows from)"):
        buffer.grown(value)


WORDS = [np.array(["max"]), np.zeros(3), RARE, ["max"], b"max", HUGE, torch, {}]


@pytest.mark.parametrize("value", WORDS, ids=shown)
def test_a_choice_is_one_of_its_words(value: Any) -> None:
    for name in ("normalize", "new_priority", "bad_priority"):
        with pytest.raises(ConfigError, match=f"{name} is one of"):
            Proportional(**{name: value})
    for name in ("autoreset", "kernels"):
        with pytest.raises(ConfigError, match=f"{name} is one of"):
            ReplayBuffer(8, FIELDS, **{name: value})
    with pytest.raises(UnsupportedError, match="device is 'cpu' or"):
        ReplayBuffer(8, FIELDS, device=value)
    with pytest.raises(UnsupportedError, match="device is 'cpu' or"):
        plan(8, FIELDS, device=value)
    if not isinstance(value, dict):
        with pytest.raises(ConfigError, match="fields is a mapping"):
            ReplayBuffer(8, value)


@pytest.mark.parametrize("value", [1, "yes", None, np.zeros(2), RARE], ids=shown)
def test_a_setting_that_is_a_flag_is_true_or_false(value: Any) -> None:
    with pytest.raises(ConfigError, match="track_reuse is True or False"):
        ReplayBuffer(8, FIELDS, track_reuse=value)
    with pytest.raises(ConfigError, match="track_reuse is True or False"):
        plan(8, FIELDS, track_reuse=value)


@pytest.mark.parametrize("value", [np.zeros(2), torch.zeros(2), RARE], ids=shown)
def test_what_is_neither_true_nor_false_is_refused(buffer: ReplayBuffer, value: Any) -> None:
    with refused(buffer, InputError, "train is True or False"):
        buffer.sample(2, train=value)
    with refused(buffer, InputError, "train is True or False"):
        Mixture([buffer], [1.0]).sample(2, train=value)


def test_numbers_of_a_schedule_are_numbers() -> None:
    for ends in ((HUGE, 1), (0, "1"), (np.float32("nan"), 1), ([0], 1), (True, 1), (0, 1e301)):
        with pytest.raises(ConfigError, match="finite ends; given"):
            Linear(*ends, steps=1)
    with pytest.raises(ConfigError, match="steps >= 1"):
        Linear(0, 1, HUGE)


def test_a_field_is_of_numbers_that_can_be_copied_and_of_a_size_there_is() -> None:
    for dtype in (torch.uint4, torch.bits8, torch.qint8, torch.complex64, "float32", [1]):
        with pytest.raises(ConfigError, match="dtype is a real"):
            Field((), dtype)
    for shape in ((1,) * 31, (2**40, 2**40), (HUGE,)):
        with pytest.raises(ConfigError, match="at most 30 axes and 2\\^56 values"):
            Field(shape)
    for store in (["uint8"], np.zeros(2), "uint8"):
        with pytest.raises(ConfigError, match="is stored as"):
            Field((), torch.float32, store)


def test_fields_have_names() -> None:
    for names in ({1: Field(), "obs": Field(), "action": Field()}, [Field()], torch.zeros(2), None):
        with pytest.raises(ConfigError, match=r"fields is a mapping|public Python identifier"):
            ReplayBuffer(8, names)


def test_an_environment_has_spaces() -> None:
    with pytest.raises(ConfigError, match="an environment has an observation_space; given 3"):
        fields_of(3)


@pytest.mark.parametrize("path", [3, None, b"x", np.zeros(2), "a\0b"], ids=str)
def test_a_path_is_the_name_of_a_folder(buffer: ReplayBuffer, path: Any) -> None:
    for call in (buffer.save, ReplayBuffer.load, ReplayBuffer.saved_note):
        with pytest.raises(InputError, match="path is the name of a folder"):
            call(path)


def test_what_is_saved_beside_a_buffer_and_how_is_said_plainly(
    buffer: ReplayBuffer, tmp_path: Path
) -> None:
    with refused(buffer, InputError, "background is True or False"):
        buffer.save(tmp_path / "saved", background=np.zeros(2))
    with refused(buffer, InputError, "note cannot be kept"):
        buffer.save(tmp_path / "saved", note=RARE)
    assert not (tmp_path / "saved").exists()


def test_a_store_of_episodes_refuses_what_is_of_no_kind(
    buffer: ReplayBuffer, tmp_path: Path
) -> None:
    for mode in (np.array(["a", "r"]), RARE, None):
        with pytest.raises(ConfigError, match="mode is 'a'"):
            TrajectoryStore(tmp_path / "store", FIELDS, mode=mode)
    with pytest.raises(InputError, match="path is the name of a folder"):
        TrajectoryStore(3, FIELDS)
    with TrajectoryStore(tmp_path / "store", FIELDS) as store:
        store.append(**rows(range(3)))
        with pytest.raises(InputError, match="sync is True or False"):
            store.flush(sync=np.zeros(2))
        with refused(buffer, InputError, "where is a function of an episode"):
            store.fill(buffer, where="all")
        for value in (HUGE, RARE):
            with pytest.raises(InputError, match="numbered from 0; given"):
                store.episode(value)
            with refused(buffer, InputError, "tee takes a TrajectoryStore"):
                buffer.tee(value)


def test_settings_of_another_kind_are_other_settings(buffer: ReplayBuffer) -> None:
    state = buffer.state_dict()
    settings = {**state["settings"], "gamma": np.zeros(2), "seed": RARE}
    with refused(buffer, ConfigError, "gamma is 0.99, given array"):
        buffer.load_state_dict({**state, "settings": settings})


WRONG_WORDS = {
    w.NEXT_ID: -1,
    w.RING_CAPACITY: 0,
    w.DEMO_COUNT: 2**40,
    w.SCALE: 5000,
    w.SWEEP: 2**62,
    w.DRAWS: -1,
    w.MAX_LEAF: -1,  # a NaN
}


@pytest.mark.parametrize("word", WRONG_WORDS)
def test_a_state_that_no_buffer_can_have_is_refused(buffer: ReplayBuffer, word: int) -> None:
    state = buffer.state_dict()
    state["tensors"]["words"][word] = WRONG_WORDS[word]
    with refused(buffer, InputError, "this is the state of no buffer: broken invariant"):
        buffer.load_state_dict(state)


def test_tensors_without_memory_are_no_state(buffer: ReplayBuffer) -> None:
    state = buffer.state_dict()
    for tensors in (None, {**state["tensors"], "leaves": state["tensors"]["leaves"].to("meta")}):
        with refused(buffer, InputError, "are a dict|without memory of its own"):
            buffer.load_state_dict({**state, "tensors": tensors})


def test_what_was_chosen_at_construction_is_not_taken_from_a_state(buffer: ReplayBuffer) -> None:
    state = buffer.state_dict()
    state["tensors"]["words"][w.ROW_BYTES] = 2**40
    buffer.load_state_dict(state)
    assert buffer._state.word(w.ROW_BYTES) == buffer.memory().row_bytes
    buffer.sample(8)


@pytest.mark.parametrize("device", ["gpu", "cuda:99", -1, None, [1], 2**70], ids=str)
def test_a_batch_moves_to_a_device_that_is_there(buffer: ReplayBuffer, device: Any) -> None:
    with pytest.raises(UnsupportedError, match="device is one that torch has"):
        buffer.sample(2).to(device)


def test_a_batch_larger_than_what_is_free_is_refused(
    buffer: ReplayBuffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lending, "LARGE", 1000)
    monkeypatch.setattr(lending, "free_memory", lambda _: 2000)
    assert isinstance(buffer.sample(2), Batch)
    with refused(buffer, InputError, "more than there is; draw it in parts"):
        buffer.sample(1000)


def test_a_mixture_is_made_of_a_list_and_its_ids_are_numbers(buffer: ReplayBuffer) -> None:
    for buffers, shares in ((buffer, [1.0]), ([buffer], 1.0), ([buffer], torch.ones(1)), (3, 3)):
        with pytest.raises(ConfigError, match="is a list, one a buffer"):
            Mixture(buffers, shares)
    with pytest.raises(InputError, match="ids"):
        Mixture([buffer], [1.0]).where("obs")


@pytest.mark.parametrize("kernels", ["cpu", "reference"])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.float16, np.float32(1e6)),
        (torch.float16, torch.tensor(1e6)),
        (torch.float16, 1e6),
        (torch.bfloat16, np.float64(1e300)),
        (torch.float32, np.longdouble(1e300)),
        (torch.float64, np.longdouble("1e4000")),
    ],
    ids=str,
)
def test_a_float_too_large_for_its_field_is_counted_whatever_it_comes_as(
    kernels: str, dtype: torch.dtype, value: Any
) -> None:
    fields = {"obs": Field((), dtype), "action": Field()}
    buffer = ReplayBuffer(8, fields, kernels=kernels)
    buffer.add(**{**row(0), "obs": value})
    several = (
        torch.stack([value, value]) if isinstance(value, torch.Tensor) else np.array([value] * 2)
    )
    buffer.extend(**{**rows([0, 1]), "obs": several})
    assert buffer.stats()["out_of_range"] == 3
    assert buffer.all().obs.isinf().all()


@pytest.mark.parametrize("value", [RARE, [[1], [1, 2]], np.array({}, object)], ids=shown)
def test_final_observations_are_arrays_too(value: Any) -> None:
    buffer = ReplayBuffer(8, FIELDS, autoreset="same_step")
    ended = {**rows([0]), "truncated": [True]}
    with refused(buffer, InputError, "final_obs|next_obs"):
        buffer.add(**ended, final_obs=value)
    of_gymnasium = np.empty(1, object)
    of_gymnasium[0] = value
    with refused(buffer, InputError, "final_obs|next_obs"):
        buffer.add(**ended, final_obs=of_gymnasium)


def test_arrays_of_a_note_may_be_of_any_order(buffer: ReplayBuffer, tmp_path: Path) -> None:
    note = {"foreign": np.arange(3, dtype=">f4"), "backwards": np.arange(3)[::-1]}
    buffer.save(tmp_path, note=note)
    kept = ReplayBuffer.saved_note(tmp_path)
    assert {name: array.tolist() for name, array in kept.items()} == {
        "foreign": [0, 1, 2],
        "backwards": [2, 1, 0],
    }


def test_any_value_can_be_shown_in_a_message() -> None:
    assert shown(fractions.Fraction(1, 3)) == "Fraction(1, 3)"
    assert shown(HUGE) == "<int>"
    assert shown(RARE) == "<Tensor>"
    assert shown("x" * 1000) == "'" + "x" * 199 + "..."


def test_a_negated_view_is_stored_as_what_it_says(buffer: ReplayBuffer) -> None:
    negated = torch.complex(torch.zeros(3), torch.ones(3)).conj().imag  # the sign is a mark only
    assert negated.is_neg()
    buffer.extend(**{**rows([5, 6, 7]), "obs": negated})
    assert buffer.rows([5, 6, 7]).obs.tolist() == [-1, -1, -1]
