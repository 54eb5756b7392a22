"""`relive doctor`: what is said of a machine that is well, and of others."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from relive.cli import doctor
from relive.cli.main import main
from relive.diagnosis import Findings, findings
from relive.diagnosis.selftest import Check
from relive.diagnosis.speed import Speed
from relive.diagnosis.surroundings import Cache, Device, Memory

WELL = Findings(
    devices=[
        Device(device="cpu", name="A Chip", kernels="Numba", why="the fastest for cpu"),
        Device(device="cuda", name="none", kernels=None, why="built without CUDA"),
    ],
    versions={"python": "3.11.7", "relive": "0.1.0", "torch": "2.13.0", "triton": None},
    missing={"tyro": "pip install 'relive[train]'", "rich": "pip install 'relive[train]'"},
    threads={"cores": 8, "allowed": 4, "quota": 2.0, "torch_threads": 1},
    memory=Memory(
        free=24 * 10**9,
        row_bytes=192,
        most_rows=120_000_000,
        huge_pages=True,
        huge_pages_why="the system's setting is madvise",
    ),
    cache=Cache(folder="/kernels", loaded=5, compiled=0, seconds=0.4),
    checks=[
        Check(case="uniform", what="frequencies", ok=True, seen="p = 0.37"),
        Check(case="uniform", what="invariants", ok=True, seen="invariants hold"),
        Check(case="rank", what="frequencies", ok=True, seen="p = 0.21"),
    ],
    speed=[
        Speed(what="add", microseconds=3.0, floor=1.5, floor_is="a copy", expected=(1.0, 4.0)),
    ],
    speed_why="",
)
FAILING = replace(
    WELL,
    checks=[*WELL.checks, Check(case="rank", what="frequencies", ok=False, seen="p = 1e-09")],
    speed=[],
    speed_why="a self-test did not pass",
)
BARE = replace(
    WELL,
    devices=[Device(device="cpu", name="A Chip", kernels=None, why="no compilation")],
    threads={"cores": 8, "allowed": None, "quota": None, "torch_threads": 8},
    memory=replace(WELL.memory, free=None, most_rows=None, huge_pages=None, huge_pages_why="?"),
    cache=None,
    checks=[Check(case="rank", what="kernels", ok=None, seen="no compilation")],
)


def words_of(found: Findings, width: int = 100) -> str:
    file = io.StringIO()
    out = Console(file=file, width=width, color_system=None)
    out.print(doctor.table(found))
    out.print(doctor.verdict(found))
    assert max(map(len, file.getvalue().splitlines())) <= width
    return " ".join(file.getvalue().split())


SAID: dict[str, tuple[Findings, list[str]]] = {
    "well": (
        WELL,
        [
            "cpu A Chip: Numba (the fastest for cpu)",
            "cuda none: no kernels (built without CUDA)",
            "8 cores, 4 for this process, limited to the time of 2; PyTorch uses 1",
            "24.00 GB free: 120 000 000 rows of 17 + 17 + 6 floats (192 bytes) with priorities",
            "huge pages yes; the system's setting is madvise",
            "kernels 5 loaded in 0.4 s from /kernels",
            "packages python 3.11.7, relive 0.1.0, torch 2.13.0",
            "missing tyro, rich: pip install 'relive[train]'",
            "uniform ok p = 0.37 · invariants hold",
            "rank ok p = 0.21",
            "one seed in 1 000 000 fails without reason",
            "3.0 µs add: 2.0x the floor; expected 1-4x (1.5 µs: a copy)",
            "All is well.",
        ],
    ),
    "failing": (
        FAILING,
        [
            "uniform ok p = 0.37",
            "rank FAILED p = 1e-09",
            "speed not measured: a self-test did not pass",
            "FAILED: rank: frequencies. Do not trust what is drawn here.",
        ],
    ),
    "bare": (
        BARE,
        [
            "no kernels (no compilation)",
            "8 cores, unknown for this process; PyTorch uses 8",
            "memory the system does not say how much is free",
            "huge pages not known",
            "kernels none",
            "rank not tested no compilation",
            "Not everything could be tested.",
        ],
    ),
    "cold": (
        replace(WELL, cache=Cache(folder="/kernels", loaded=2, compiled=3, seconds=20.0)),
        ["3 compiled and 2 loaded in 20.0 s; the next process loads all from /kernels"],
    ),
    "nowhere to write": (
        replace(WELL, cache=Cache(folder=None, loaded=0, compiled=0, seconds=20.0)),
        ["compiled in 20.0 s, in each process: there is nowhere to keep them; set NUMBA_CACHE_DIR"],
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_what_was_found_is_said(case: str) -> None:
    found, expected = SAID[case]
    words = words_of(found)
    assert [sentence for sentence in expected if sentence not in words] == []


@pytest.mark.parametrize("width", [120, 80, 40])
def test_it_fits_the_terminal(width: int) -> None:
    assert "All is well." in words_of(WELL, width)


@pytest.mark.parametrize(("found", "status"), [(WELL, 0), (FAILING, 1), (BARE, 0)])
def test_a_failed_test_is_the_exit_status(
    found: Findings,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(doctor, "diagnose", lambda _: found)
    assert main(["doctor"]) == status
    capsys.readouterr()
    assert main(["doctor", "--json"]) == status
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said["ok"] is (status == 0)
    assert said["false_alarm"] == 1e-6
    assert said["devices"][0]["name"] == "A Chip"
    assert said["checks"][0] == {
        "case": "uniform" if found is not BARE else "rank",
        "what": "frequencies" if found is not BARE else "kernels",
        "ok": True if found is not BARE else None,
        "seen": "p = 0.37" if found is not BARE else "no compilation",
    }


def test_this_machine_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json", "--seed", "3"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {one["case"] for one in said["checks"]} == {"uniform", "proportional", "rank", "window"}
    assert all(one["ok"] for one in said["checks"])
    assert [one["ratio"] > 0 for one in said["speed"]] == [True, True]
    assert said["cache"]["loaded"] + said["cache"]["compiled"] > 0


def test_what_is_not_right_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert findings.measured(FAILING.checks) == ([], "a self-test did not pass")
    monkeypatch.setattr(findings, "has_room", lambda: False)
    assert findings.measured(WELL.checks) == ([], "too little memory is free")

    def wrong() -> None:
        raise ValueError("a row")

    monkeypatch.setattr(findings, "has_room", lambda: True)
    monkeypatch.setattr(findings, "measure", wrong)
    assert findings.measured(WELL.checks) == ([], "an operation was not right: a row")


BLOCKED = ("gymnasium", "safetensors", "matplotlib", "tensorboard", "triton")


@pytest.mark.parametrize(
    ("blocked", "program", "said"),
    [
        (
            ("tyro", "rich", *BLOCKED),
            "import relive.diagnosis; print('imported')",
            "imported",
        ),
        (
            ("tyro", *BLOCKED),
            "from relive.cli.main import main; main(['doctor'])",
            "relive: tyro is not installed: pip install 'relive[train]'",
        ),
        (BLOCKED, "import relive.cli.doctor; print('imported')", "imported"),
    ],
)
def test_it_needs_what_the_buffer_needs_and_names_what_else_is_missing(
    blocked: tuple[str, ...], program: str, said: str
) -> None:
    block = f"import sys; sys.modules.update(dict.fromkeys({blocked!r})); "
    done = subprocess.run(
        [sys.executable, "-c", block + program], capture_output=True, text=True, check=True
    )
    assert (done.stdout + done.stderr).strip() == said
