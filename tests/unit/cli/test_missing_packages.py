"""A package that is not installed: each command says in one line which extra has it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

from relive.cli.main import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path

EXTRAS = {
    "tyro": "relive[train]",
    "rich": "relive[train]",
    "safetensors": "relive[train]",
    "gymnasium": "relive[gym]",
    "pygame": "gymnasium[classic-control]",
    "av": "relive[video]",
    "matplotlib": "relive[report]",
    "h5py": "relive[demos]",
    "pyarrow": "relive[record]",
    "PIL": "relive[record]",
    "minari": "relive[record]",
}
RECORD = "record --expert mountain-car-continuous --episodes 1 --out"
NEEDS = {
    "train dqn --env CartPole-v1 --device cpu --total-steps 20": "tyro rich gymnasium safetensors",
    "train sac --env MountainCarContinuous-v0 --device cpu --demos.path demos": "h5py",
    "train --resume run --total-steps 200": "safetensors",
    "eval run": "tyro rich gymnasium safetensors",
    "eval run --video film.mp4": "av pygame",
    f"{RECORD} out": "tyro rich gymnasium minari h5py PIL",
    f"{RECORD} out --format arrow": "pyarrow PIL",
    "export run": "tyro rich safetensors",
    "watch run --once": "tyro rich",
    "report run": "tyro rich matplotlib",
    "bench --quick --workload W4 --chart chart.svg": "tyro rich matplotlib",
    "doctor": "tyro rich",
    "plan --env CartPole-v1": "tyro rich gymnasium",
}
CASES = [(words, package) for words, packages in NEEDS.items() for package in packages.split()]
CASES += [(words, "all") for words in NEEDS]
# All packages are loaded once; each case is a child that forgets those it may not have.
PROGRAM = """
import io, json, os, sys, traceback
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module

cases, extras = json.load(sys.stdin)
from relive.cli.main import main
with redirect_stdout(io.StringIO()):
    run = "train dqn --env CartPole-v1 --device cpu --total-steps 100 --agent.hidden 8 --out run"
    assert main([*run.split(), "--eval-episodes", "0"]) == 0
    assert main("record --expert mountain-car-continuous --episodes 1 --out demos".split()) == 0
for name in ("relive.bench.chart", "av", "pygame", "pyarrow.parquet"):
    import_module(name)
for words, package in cases:
    if not os.fork():
        missing = extras if package == "all" else [package]
        ours = [f"relive.{part}" for part in ("cli", "report", "terminal", "bench")]
        forgotten = tuple(f"{name}." for name in (*missing, "minari", *ours))
        for name in [name for name in sys.modules if f"{name}.".startswith(forgotten)]:
            del sys.modules[name]
        sys.modules.update(dict.fromkeys(missing))
        err = io.StringIO()
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(err):
                status = import_module("relive.cli.main").main(words.split())
        except BaseException:
            status = None
            traceback.print_exc(file=err)
        print(json.dumps([words, package, status, err.getvalue()]), flush=True)
        os._exit(0)
    os.wait()
"""


def test_a_command_names_the_extra_that_it_lacks(tmp_path: Path) -> None:
    assert {words.split()[0] for words in NEEDS} == COMMANDS.keys()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps([CASES, list(EXTRAS)]),
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(words, package) for words, package, _, _ in answers] == CASES
    wrong = [answer for answer in answers if not is_well_said(*answer)]
    assert not wrong
    assert {path.name for path in tmp_path.rglob("*.*")} & {"film.mp4", "chart.svg"} == set()


def is_well_said(words: str, package: str, status: int | None, said: str) -> bool:
    """Whether it is wrong input, in one line with what is missing and where it is."""
    extra = EXTRAS.get(package, "relive[train]")
    if words.startswith(RECORD) and package in ("h5py", "gymnasium"):
        extra = "relive[record]"
    named = extra in said and "is not installed" in said
    return status == 2 and said.startswith("relive: ") and said.count("\n") == 1 and named
