"""Folders that something has happened to, and folders that someone made up: refused, or sound.

A file is cut, emptied, removed, replaced by another, or some of its bits are turned; or a manifest
and files are altered and given the right checksums again, as by someone who means harm. Loading
says what is wrong, or gives a buffer of which every invariant holds and which works.
"""

from __future__ import annotations

import json
import os
import resource
import zlib
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from relive import CorruptError, ReliveError, ReplayBuffer
from relive.storage.files import write_manifest
from tests.fuzz.bad_values import SIZES, one
from tests.fuzz.entries import MAKERS, of_buffer, steps

if TYPE_CHECKING:
    from pathlib import Path

SHORT, LONG = 200, 2_500  # for each kind of buffer
Files = dict[str, bytes]
HOSTILE = [None, True, "", "x", "../../x", "/etc/passwd", "rows-1.bin", "state-1.bin", "float32"]
HOSTILE += [[], {}, [1], {"kind": "Field"}, {"kind": "Uniform"}, [[[]]], 0.5, -0.5, 1e308]
HOSTILE += [float("nan"), float("inf"), *(size for size in SIZES if abs(size) < 2**70)]


def saved(buffer: ReplayBuffer, folder: Path) -> Files:
    """Saved twice, so that there are rows of two saves and rows that changed; with a note."""
    for save in range(2):
        for _ in range(3):
            given = steps(buffer, buffer.num_envs)
            final = {"final_obs": None} if buffer._home.settings.resets == "same_step" else {}
            buffer.add(**given, **final)
        if buffer.prioritized:
            ids = buffer.live_ids()
            buffer.update_priorities(ids, torch.linspace(0.1, 3, len(ids)))
        buffer.save(folder, note={"step": save, "weights": torch.ones(3)})
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def damaged(rng: np.random.Generator, files: Files, others: Files) -> Files:
    """Something has happened to one file or two."""
    found = dict(files)
    name, other = one(rng, sorted(files)), one(rng, sorted(files))
    content = files[name]
    match int(rng.integers(7)):
        case 0:
            found[name] = content[: int(rng.integers(len(content)))]
        case 1:
            found[name] = with_other_bits(rng, content, 1 + int(rng.integers(3)))
        case 2:
            found[name], found[other] = files[other], content
        case 3:
            found[name] = b""
        case 4:
            del found[name]
        case 5:
            found[name] = one(rng, list(others.values()))
        case _:
            found[name] = one(rng, [rng.bytes(len(content)), bytes(len(content)), content * 2])
    return found


def with_other_bits(rng: np.random.Generator, content: bytes, count: int) -> bytes:
    changed = bytearray(content)
    for _ in range(count):
        changed[int(rng.integers(len(changed)))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def forged(rng: np.random.Generator, files: Files, folder: Path) -> Files:
    """Altered, and all checksums are right."""
    found = dict(files)
    manifest = json.loads(files["manifest.json"])
    manifest.pop("crc32")
    if rng.random() < 0.5:
        altered = at_random(rng, manifest)
        manifest = altered if isinstance(altered, dict) else manifest
    else:
        stored = one(rng, [manifest["state"], *manifest["segments"]])
        content = with_other_numbers(rng, files[stored["file"]])
        found[stored["file"]] = content
        stored["crc32"] = zlib.crc32(content)
    write_manifest(folder, "forged.json", manifest)
    found["manifest.json"] = (folder / "forged.json").read_bytes()
    return found


def at_random(rng: np.random.Generator, node: Any) -> Any:
    """JSON of which one part, somewhere, is another one."""
    if not node or not isinstance(node, dict | list) or rng.random() < 0.1:
        return one(rng, HOSTILE)
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    key = one(rng, keys)
    changed = node.copy()
    if rng.random() < 0.05:
        del changed[key]
    else:
        changed[key] = at_random(rng, node[key])
    return changed


def with_other_numbers(rng: np.random.Generator, content: bytes) -> bytes:
    """Some of its 64-bit or 32-bit words are extreme ones."""
    kind, extremes = one(
        rng,
        [
            ("<i8", [0, 1, -1, 2, 2**31, 2**61, 2**62, 2**63 - 1, -(2**63)]),
            ("<f4", [np.nan, np.inf, -1.0, 1e30, 1e-38]),
            ("<f8", [np.nan, np.inf, -1.0, 1e300]),
            ("<i4", [0, -1, 1, 2**31 - 1, -(2**31)]),
        ],
    )
    numbers = np.frombuffer(content[: len(content) // 8 * 8], kind).copy()
    for _ in range(int(rng.integers(1, 4))):
        numbers[int(rng.integers(len(numbers)))] = one(rng, extremes)
    return numbers.tobytes() + content[len(content) // 8 * 8 :]


def put(folder: Path, files: Files) -> None:
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


def outcome(rng: np.random.Generator, folder: Path) -> str:
    """What loading gives; a buffer that is given is sound and works."""
    with suppress(ReliveError):
        ReplayBuffer.saved_note(folder)
    capacity = None if rng.random() < 0.7 else int(rng.integers(1, 40))
    try:
        buffer = ReplayBuffer.load(folder, capacity=capacity)
    except ReliveError as error:
        return type(error).__name__
    buffer.check()
    for name, function, arguments in of_buffer(buffer, rng, folder):
        if name not in ("grown", "save", "load"):
            with suppress(ReliveError):  # it has no priorities, no window, ...
                function(**arguments)
    buffer.check()
    buffer.stats()
    return "loaded"


COUNTS = [pytest.param(SHORT, id="some"), pytest.param(LONG, id="many", marks=pytest.mark.long)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("maker", MAKERS.values(), ids=MAKERS)
def test_a_folder_is_refused_or_the_buffer_in_it_is_sound(
    maker: Any, count: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(count)
    files = saved(maker(), tmp_path / "whole")
    others = saved(MAKERS["uniform"](), tmp_path / "others")
    folder = tmp_path / "spoilt"
    folder.mkdir()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found: Counter[str] = Counter()
    for _ in range(count):
        spoil = one(rng, [damaged, forged])
        put(folder, spoil(rng, files, others if spoil is damaged else tmp_path))
        found[outcome(rng, folder)] += 1
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 300_000  # kilobytes: nothing huge was asked for
    assert found["CorruptError"] > count / 2
    assert found["loaded"] > count / 20  # by far not everything that can be changed is wrong


def test_a_pipe_or_a_folder_in_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    files = saved(MAKERS["uniform"](), folder)
    for name, content in files.items():
        for make in (os.mkfifo, os.mkdir):
            (folder / name).unlink()
            make(folder / name)
            with pytest.raises(CorruptError, match=name):
                ReplayBuffer.load(folder)
            (folder / name).rmdir() if make is os.mkdir else (folder / name).unlink()
            (folder / name).write_bytes(content)
    ReplayBuffer.load(folder).check()
