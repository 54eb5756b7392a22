"""Which command, and what is said when something is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING

import pytest

from relive.cli import report
from relive.cli.main import COMMANDS, main
from relive.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = "train dqn --env CartPole-v1"


@pytest.mark.parametrize("words", [[], ["-h"], ["--help"], ["help"]])
def test_help_lists_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)
    assert max(map(len, out.splitlines())) <= 100


def test_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"relive {version('relive')}\n"


def test_it_can_be_called_without_its_script() -> None:
    words = [sys.executable, "-m", "relive"]
    version_told, refused = (
        subprocess.run([*words, word], capture_output=True, text=True, check=False, timeout=60)
        for word in ("--version", "trian")
    )
    assert version_told.stdout == f"relive {version('relive')}\n"
    assert refused.returncode == 2
    assert "did you mean" in refused.stderr


@pytest.mark.parametrize(
    "command", ["eval", "record", "export", "report", "watch", "doctor", "bench", "plan", TRAIN]
)
def test_each_command_has_help_that_fits(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("--help" in line for line in lines)
    assert not [line for line in lines if len(line) > 80]


def test_train_without_an_environment_has_help_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help"]) == 0
    assert "algorithms: dqn" in capsys.readouterr().out


def test_help_may_come_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "train"]) == main(["train", "--help"]) == 0
    first, second = capsys.readouterr().out.split("usage: ")[1:]
    assert first == second
    with pytest.raises(SystemExit):
        main(["help", "train", "dqn"])
    assert "Train DQN" in capsys.readouterr().out
    assert main(["help", "trian"]) == 2


WRONG = {
    "palm": (
        "there is no command 'palm'; "
        "there are: train, eval, record, export, watch, report, bench, doctor, plan"
    ),
    "trian": (
        "there is no command 'trian'; did you mean 'train'? "
        "There are: train, eval, record, export, watch, report, bench, doctor, plan"
    ),
    "train": "name an algorithm: relive train dqn --env CartPole-v1",
    "train --env x": "name an algorithm: relive train dqn --env CartPole-v1",
    "train dnq": "there is no algorithm 'dnq'; did you mean 'dqn'? There are: dqn, c51, rainbow, "
    "ddpg, td3, sac, rlpd",
    f"{TRAIN} --agent.loss hubr": (
        "there is no --agent.loss 'hubr'; did you mean 'huber'? There are: huber, mse"
    ),
    f"{TRAIN} --replay.capacity x": "--replay.capacity: expected a whole number, got 'x'",
    f"{TRAIN} --agent.lr x": "--agent.lr: expected a number, got 'x'",
    f"{TRAIN} --seed": "Missing value for argument '--seed'.",
    f"{TRAIN} --agent.double yes": "'yes' belongs to no option; a switch is --OPTION or "
    "--no-OPTION, without a word (relive train dqn --help)",
    f"{TRAIN} --total-steps 0": "total_steps is at least 1; given 0",
    "plan": "a row is that of --env (CartPole-v1) or of --obs (51, 4x84x84) and --action: give one",
    "plan --obs 4y": "--obs takes a shape such as 51 or 4x84x84, got '4y'",
    "plan --obs 4 --action x": (
        "--action takes a shape such as 51 or 4x84x84 or discrete, got 'x'"
    ),
    "plan --obs 4 --capacity 0": "capacity is a whole number >= 1; given 0",
    "plan --obs 4 --obs-dtype unit8": (
        "there is no number format 'unit8'; did you mean 'uint8'? "
        "There are: uint8, int32, int64, float16, float32, float64 and 2 more"
    ),
    "eval x --episodes 0": "episodes is at least 1, got 0",
    "eval x --threads 1000000": "threads is at most 1024, got 1000000",
    f"{TRAIN} --threads 1000000": "threads is at most 1024; given 1000000",
    "train dqn": "--env is missing (relive train dqn --help)",
    "train dqn --replay.sampler unifrom": (
        "there is no --replay.sampler 'unifrom'; did you mean 'uniform'? "
        "There are: uniform, proportional, rank; --env is missing"
    ),
    "train dqn --seed x": "--seed: expected a whole number, got 'x'; --env is missing",
    "train dqn --total-steps 0": "total_steps is at least 1; given 0; --env is missing",
    "watch x --every 0": "every lies between 0.05 and 3600 seconds, got 0",
    "export x": ("there is no policy at x; `relive train` leaves one in its run directory"),
    "eval": "name a run (relive eval --help)",
    "export --out x.pt2": "name a run (relive export --help)",
    f"{TRAIN} --threads abc": "--threads: expected a whole number, auto or None, got 'abc'",
    f"{TRAIN} --log-every x": "--log-every: expected a whole number or auto, got 'x'",
    f"{TRAIN} --agent.max-grad-norm x": (
        "--agent.max-grad-norm: expected a number or None, got 'x'"
    ),
    f"{TRAIN} --agent.hidden x": "--agent.hidden: expected whole numbers, got 'x'",
    f"{TRAIN} --total-steps 1e5": (
        "--total-steps: expected a whole number, got '1e5': write 100000"
    ),
    f"{TRAIN} --total-steps 1.55e1": "--total-steps: expected a whole number, got '1.55e1'",
    f"{TRAIN} --log-every 2.5e3": (
        "--log-every: expected a whole number or auto, got '2.5e3': write 2500"
    ),
    f"{TRAIN} --agent.hidden 1e2": "--agent.hidden: expected whole numbers, got '1e2': write 100",
    f"{TRAIN} --replay.alpha -1": "replay.alpha lies in [0, 2]; given -1.0",
    "eval x y": "'y' belongs to no option (relive eval --help)",
    "report x y": "x is not a run directory: it has no metrics.jsonl; `relive train` makes one",
}


@pytest.mark.parametrize("words", WRONG)
def test_wrong_input_is_answered_in_one_line(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # runs that are there would be named
    assert main(words.split()) == 2
    assert capsys.readouterr() == ("", f"relive: {WRONG[words]}\n")


def test_who_names_no_run_is_told_which_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "metrics.jsonl").touch()
    for command in ("eval", "export", "report"):
        assert main([command]) == 2
        said = f"relive: name a run; these are: runs/a (relive {command} --help)\n"
        assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (f"{TRAIN} --sed 1", "--seed"),
        (f"{TRAIN} --sed=1", "--seed"),
        (f"{TRAIN} --lr 1", "--agent.lr"),
        (f"{TRAIN} --replay.gama 1", "--replay.gamma"),
        (f"{TRAIN} --sampler uniform", "--replay.sampler"),
        ("train dqn --sed 1", "--seed"),
        (f"{TRAIN} --learning-rate 3e-4", "--agent.lr'?"),
        (f"{TRAIN} --agent.learning_rate 3e-4", "--agent.lr'?"),
        (f"{TRAIN} --buffer-size=1000", "--replay.capacity'?"),
        (f"{TRAIN} --batch-size 64", "--replay.batch-size'?"),
        (f"{TRAIN} --gamma 0.9", "--replay.gamma'?"),
        (f"{TRAIN} --total-timesteps 1000", "--total-steps'?"),
        (f"{TRAIN} --gradient-steps 1", "--updates-per-train'?"),
        ("train sac --env Pendulum-v1 --tau 0.1", "--agent.tau'?"),
        ("plan --buffer-size 1", "--capacity'?"),
        ("plan --capcity 1", "--capacity"),
        ("eval x --episode 1", "--episodes"),
        ("train dqn --env CartPol-v1", "CartPole-v1"),
        ("plan --env CartPol-v1", "CartPole-v1"),
    ],
)
def test_a_typo_is_answered_with_what_was_meant(
    words: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert said.count("\n") == 1
    assert said.partition("did you mean ")[2].lstrip("'").startswith(meant)


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (InputError("one\n  two"), 2, "relive: one two\n"),
        (KeyboardInterrupt(), 130, "\nrelive: interrupted\n"),
    ],
)
def test_what_a_command_raises_becomes_a_status_and_a_line(
    raised: BaseException,
    status: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: list[str]) -> int:
        raise raised

    monkeypatch.setattr(report, "run", fail)
    assert main(["report"]) == status
    assert capsys.readouterr().err == said


def test_help_loads_nothing_that_a_command_needs() -> None:
    program = (
        "import sys; from relive.cli.main import main; main(['--help']); "
        "print(*sorted({'tyro', 'rich', 'gymnasium', 'matplotlib'} & set(sys.modules)), 'end')"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "end"


def test_letters_that_a_terminal_does_not_know_are_no_error() -> None:
    program = "from relive.cli.main import main; main(['train', 'dqn', '--env', 'Café'])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.startswith("relive: there is no environment 'Caf?'")


def test_a_reader_that_leaves_is_no_error() -> None:
    program = "import sys; from relive.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, *TRAIN.split(), "--help"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
    assert process.returncode == 1
