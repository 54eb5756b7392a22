"""A manifest with the right checksum that says what cannot be."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from relive import ConfigError, CorruptError, InputError, Proportional, ReplayBuffer
from relive.ops import words as w
from relive.storage.files import read_manifest, write_manifest
from tests.faults.tagged import FIELDS, rows

if TYPE_CHECKING:
    from pathlib import Path

FIRST, STATE = ("segments", 0), ("state",)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    buffer = ReplayBuffer(30, FIELDS, sampler=Proportional())
    for _ in range(2):
        buffer.extend(**rows(range(10)))
        buffer.save(tmp_path / "saved", note={"step": 3})
    return tmp_path / "saved"


FORGED: list[tuple[tuple[Any, ...], Any]] = [
    ((*FIRST, "file"), "../../x"),
    ((*FIRST, "file"), "/etc/passwd"),
    ((*FIRST, "file"), "rows-1.bin/../../rows-1.bin"),
    ((*FIRST, "start"), -5),
    ((*FIRST, "stop"), 2**40),
    ((*FIRST, "stop"), 5),
    ((*FIRST, "nbytes"), 10**15),
    (FIRST, 3),
    (("segments",), []),
    (("segments",), {}),
    ((*STATE, "file"), "../state-1.bin"),
    ((*STATE, "nbytes"), -1),
    ((*STATE, "crc32"), "0"),
    (STATE, None),
    (("row_bytes",), 2**50),
    (("row_bytes",), 0),
    (("stop",), -1),
    (("stop",), 2**62),
    (("ring_start",), 29),
    (("ring_start",), 2**61),
    (("ring_start",), "3"),
    (("last",), [0.5]),
    (("changed",), [1] * 10),
    (("arrays",), []),
    (("arrays", "leaves"), ["float32", [2**40]]),
    (("arrays", "leaves"), ["float32", [-20]]),
    (("arrays", "leaves"), ["load", [20]]),
    (("arrays", "leaves"), ["int32", [20]]),
    (("arrays", "lanes"), ["int64", [2, 2]]),
    (("arrays", "note.0"), ["uint8", [10**11]]),
    (("settings",), []),
    (("settings", "fields"), None),
    (("settings", "sampler", "kind"), "System"),
    (("settings", "capacity"), 10**12),
    (("settings", "capacity"), -3),
    (("settings", "n_step"), 4),
    (("settings", "num_envs"), 10**9),
    (("settings", "sampler", "alpha"), float("nan")),
]


@pytest.mark.parametrize(("where", "value"), FORGED, ids=str)
def test_what_cannot_be_is_refused(saved: Path, where: tuple[Any, ...], value: Any) -> None:
    manifest = read_manifest(saved, "manifest.json")
    node = manifest
    for key in where[:-1]:
        node = node[key]
    node[where[-1]] = value
    write_manifest(saved, "manifest.json", manifest)
    with pytest.raises((CorruptError, ConfigError)):
        ReplayBuffer.load(saved)


@pytest.mark.parametrize("absolute", [False, True])
def test_a_file_outside_of_the_folder_is_not_read(saved: Path, absolute: bool) -> None:
    manifest = read_manifest(saved, "manifest.json")
    for stored in (manifest["segments"][0], manifest["state"]):
        name = stored["file"]
        (saved.parent / name).write_bytes((saved / name).read_bytes())  # the right content
        stored["file"] = str(saved.parent / name) if absolute else f"../{name}"
        write_manifest(saved, "manifest.json", manifest)
        with pytest.raises(CorruptError, match=r"manifest\.json is damaged"):
            ReplayBuffer.load(saved)
        stored["file"] = name


def test_a_manifest_without_a_part_is_refused(saved: Path) -> None:
    manifest = read_manifest(saved, "manifest.json")
    for part in set(manifest) - {"note"}:
        rest = {name: value for name, value in manifest.items() if name != part}
        write_manifest(saved, "manifest.json", rest)
        with pytest.raises((CorruptError, InputError)):
            ReplayBuffer.load(saved)


def test_a_copy_with_an_id_that_is_none_is_refused(saved: Path) -> None:
    buffer = ReplayBuffer.load(saved)
    buffer.clear()
    buffer.extend(**rows(range(5)))
    buffer.pin_demonstrations(5, reserve=2)
    buffer.pin([buffer.live_ids()[0]])
    buffer.save(saved)
    manifest = read_manifest(saved, "manifest.json")
    state = saved / manifest["state"]["file"]
    words = np.frombuffer(state.read_bytes(), np.int64, count=w.NUM_WORDS - w.FIRST_SAVED).copy()
    words[w.ADDED_FIRST_ID - w.FIRST_SAVED] = 2**61
    content = words.tobytes() + state.read_bytes()[len(words) * 8 :]
    state.write_bytes(content)
    manifest["state"]["crc32"] = zlib.crc32(content)
    write_manifest(saved, "manifest.json", manifest)
    for capacity in (None, 40):
        with pytest.raises(CorruptError, match="added demonstrations have ids"):
            ReplayBuffer.load(saved, capacity=capacity)


def test_a_manifest_nested_too_deep_is_refused(saved: Path) -> None:
    manifest = read_manifest(saved, "manifest.json")
    text = json.dumps({**manifest, "crc32": 0})
    deep = "[" * 100_000 + "]" * 100_000
    (saved / "manifest.json").write_text(text.replace('"format": 1', f'"format": {deep}'))
    with pytest.raises(CorruptError, match="not what save"):
        ReplayBuffer.load(saved)


NUMBERS = {
    w.NEXT_ID: [-1, 5, 2**62],
    w.BASE_ID: [-1, 21],
    w.RING_START: [-1, 3, 30],
    w.RING_CAPACITY: [0, -4],
    w.DEMO_COUNT: [-1, 1, 2**40],
    w.DEMO_ADDED: [-1, 2**62],
    w.ADDED_FIRST_ID: [0, -(2**63)],
    w.SCALE: [5000, -5000],
    w.SWEEP: [-1, 7],
    w.PROGRESS: [-1],
    w.DRAWS: [-1],
    w.SAMPLES: [-3],
    w.MAX_LEAF: [-1],  # a NaN
}


@pytest.mark.parametrize("word", NUMBERS)
def test_numbers_that_no_buffer_can_have_are_refused(saved: Path, word: int) -> None:
    manifest = read_manifest(saved, "manifest.json")
    state = saved / manifest["state"]["file"]
    whole = state.read_bytes()
    for number in NUMBERS[word]:
        words = np.frombuffer(whole[: len(whole) // 8 * 8], np.int64).copy()
        words[word - w.FIRST_SAVED] = number  # words are the first array
        content = words.tobytes() + whole[len(words) * 8 :]
        state.write_bytes(content)
        manifest["state"]["crc32"] = zlib.crc32(content)
        write_manifest(saved, "manifest.json", manifest)
        with pytest.raises(CorruptError, match=r"damaged|broken invariant"):
            ReplayBuffer.load(saved)


def test_settings_are_not_taken_from_the_numbers_of_a_state(saved: Path) -> None:
    manifest = read_manifest(saved, "manifest.json")
    state = saved / manifest["state"]["file"]
    words = np.frombuffer(state.read_bytes(), np.float64, count=w.NUM_WORDS - w.FIRST_SAVED).copy()
    words[w.ALPHA - w.FIRST_SAVED] = np.nan
    content = words.tobytes() + state.read_bytes()[len(words) * 8 :]
    state.write_bytes(content)
    manifest["state"]["crc32"] = zlib.crc32(content)
    write_manifest(saved, "manifest.json", manifest)
    buffer = ReplayBuffer.load(saved)
    assert buffer._state.real(w.ALPHA) == Proportional().alpha
