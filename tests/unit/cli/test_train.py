"""`relive train`, then `relive eval` and `relive report` on what it leaves."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import gymnasium
import pytest

from relive.cli import train
from relive.cli.main import main
from relive.errors import ConfigError, MissingExtraError
from relive.report import page
from relive.storage.writer_lock import Lock
from relive.training.records import EpisodeEnded

if TYPE_CHECKING:
    from pathlib import Path

    from relive.training.records import Record

TINY = ["train", "dqn", "--env", "CartPole-v1", "--device", "cpu", "--total-steps", "300"]
TINY += ["--learning-starts", "100", "--train-every", "10", "--updates-per-train", "1"]
TINY += ["--replay.batch-size", "8", "--agent.hidden", "8", "--log-every", "100"]
TINY += ["--eval-episodes", "2"]
FILES = {
    "checkpoint",
    "config.json",
    "lock",
    "metrics.jsonl",
    "policy.safetensors",
    "report.html",
    "tensorboard",
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"


def records(out: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("sampler", ["uniform", "proportional"])
def test_training_leaves_a_run_directory_to_evaluate_and_report(
    out: Path, sampler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TINY, "--out", str(out), "--replay.sampler", sampler]) == 0
    assert {path.name for path in out.iterdir()} == FILES
    assert list((out / "tensorboard").iterdir())
    said = capsys.readouterr().out
    assert f"report  {out / 'report.html'}" in said
    assert "(reference 500)" in said

    assert main(["eval", str(out), "--episodes", "2"]) == 0
    shown = dict(re.findall(r"^(\w+) +(.*)$", capsys.readouterr().out, re.MULTILINE))
    evaluated = next(record for record in records(out) if record["record"] == "evaluated")
    assert [float(value) for value in shown["returns"].split()] == evaluated["returns"]
    assert shown["mean"] == f"{evaluated['mean']:.1f} ± {evaluated['std']:.1f}"
    assert shown["reference"] == "500"

    (out / "report.html").unlink()
    assert main(["report", str(out)]) == 0
    html = (out / "report.html").read_text(encoding="utf-8")
    assert f"DQN · CartPole-v1 · {sampler} · seed 0" in html
    assert ("Priorities" in html) is (sampler == "proportional")


@pytest.mark.parametrize("algorithm", ["c51", "ddpg", "td3", "sac"])
def test_every_algorithm_is_trained_evaluated_watched_and_reported(
    out: Path, algorithm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    env = "CartPole-v1" if algorithm == "c51" else "Pendulum-v1"
    words = ["train", algorithm, *TINY[2:], "--env", env, "--total-steps", "120"]
    assert main([*words, "--out", str(out)]) == 0
    assert main(["eval", str(out), "--episodes", "1"]) == 0
    assert main(["watch", str(out), "--once"]) == 0
    assert main(["report", str(out)]) == 0
    assert f"{algorithm} on {env}" in capsys.readouterr().out
    html = (out / "report.html").read_text(encoding="utf-8")
    assert f"{algorithm.upper()} · {env} · " in html
    assert json.loads((out / "config.json").read_text())["algorithm"] == algorithm


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "sac --env Pendulum-v1 --agent.epsilon-end 0",
            "no option '--agent.epsilon-end' here; dqn and c51 have it",
        ),
        ("dqn --env CartPole-v1 --target-noise 3", "no option '--target-noise' here; td3 has it"),
        ("td3 --env Pendulum-v1 --agent.policy-dealy 1", "'--agent.policy-delay'"),
        ("sac --env CartPole-v1", "for numbered actions: dqn, c51"),
        ("c51 --env Pendulum-v1", "for continuous actions: ddpg, td3, sac"),
        ("ddpg --seed 1", "--env is missing"),
        ("dqn --env torch/LunarLander-v3", "leave out torch/"),
    ],
)
def test_an_option_or_environment_of_another_agent_is_refused(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words.split()]) == 2
    assert said in capsys.readouterr().err


def test_a_recipe_is_what_its_run_is_called(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "rainbow", *TINY[2:], "--total-steps", "120", "--out", str(out)]) == 0
    assert "rainbow on CartPole-v1" in capsys.readouterr().out
    assert "rainbow · CartPole-v1" in (out / "report.html").read_text(encoding="utf-8")
    assert json.loads((out / "config.json").read_text())["name"] == "rainbow"
    assert main(["watch", str(out), "--once"]) == 0
    assert "rainbow on CartPole-v1" in capsys.readouterr().out


def test_rlpd_without_demonstrations_is_told_in_the_terminal(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "rlpd", *TINY[2:], "--env", "Pendulum-v1", "--total-steps", "90"]
    assert main([*words, "--name", "another", "--out", str(out)]) == 0
    assert "\ndemonstrations none: rlpd is meant to draw half" in capsys.readouterr().out
    assert "demonstrations" in records(out)[0]["chosen"]


def test_settings_are_those_of_the_preset_but_for_what_is_given(out: Path) -> None:
    settings = train.settings(
        ["dqn", "--env", "CartPole-v1", "--agent.lr", "0.5", "--out", str(out)]
    )
    preset = train.preset("dqn", "CartPole-v1")
    assert settings.agent.lr == 0.5
    assert settings.out == out
    assert settings.train_every == preset.train_every != train.TrainConfig(env="x").train_every


def test_a_preset_of_another_sampler_does_not_stand_in_the_way() -> None:
    words = ["rainbow", "--env", "CartPole-v1", "--replay.sampler", "uniform"]
    assert train.settings(words).replay.alpha == 0.6  # the preset has 0.5, for priorities
    with pytest.raises(ConfigError, match=r"replay\.alpha 0\.3 does nothing"):
        train.settings([*words, "--replay.alpha", "0.3"])  # what is said must mean something
    with pytest.raises(ConfigError, match="uniform"):
        train.settings(["rainbow", "--env", "CartPole-v1", "--replay.sampler", "uniformly"])


@pytest.mark.parametrize(
    ("words", "is_told"),
    [(["c51", "--env", "Acrobot-v1"], True), (["c51", "--env", "CartPole-v1"], False),
     (["rainbow", "--env", "CartPole-v1"], True), (["dqn", "--env", "Acrobot-v1"], False),
     (["rainbow", "--env", "CartPole-v1", "--agent.v-min", "0", "--agent.v-max", "100"], False),
     (["c51", "--env", "Acrobot-v1", "--agent.v-min=-10"], False)],
)  # fmt: skip
def test_atoms_that_nobody_has_chosen_are_told(
    words: list[str], is_told: bool, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words, "--total-steps", "20", "--eval-episodes", "0", "--device", "cpu",
                 "--replay.capacity", "1000", "--out", str(out)]) == 0  # fmt: skip
    assert ("atoms from -10 to 10" in capsys.readouterr().out) == is_told


def test_ctrl_c_keeps_what_there_is_and_reports_it(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Impatient(train.Console):
        """Presses Ctrl-C when the first episode ends."""

        def record(self, record: Record) -> None:
            super().record(record)
            if isinstance(record, EpisodeEnded):
                signal.raise_signal(signal.SIGINT)

    out = out.with_name("my run")
    monkeypatch.setattr(train, "Console", Impatient)
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main([*TINY, "--out", str(out)]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert {path.name for path in out.iterdir()} == FILES
    assert records(out)[-1]["interrupted"] is True
    said = capsys.readouterr().out
    assert f"report  {out / 'report.html'}" in said
    assert f"\ngo on   relive train --resume '{out}'\n" in said
    assert "interrupted at step" in (out / "report.html").read_text(encoding="utf-8")


def test_a_missing_extra_is_told_and_does_not_stop_the_run(
    out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: object) -> None:
        raise MissingExtraError("a package", extra="name")

    monkeypatch.setattr(train, "TensorBoard", missing)
    monkeypatch.setattr(page, "write_report", missing)
    assert main([*TINY, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "no TensorBoard: a package is not installed: pip install 'relive[name]'\n" in said
    assert "report  none: a package is not installed: pip install 'relive[name]'\n" in said
    assert {path.name for path in out.iterdir()} == FILES - {"report.html", "tensorboard"}


def test_a_hint_can_be_typed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "my run"
    (out / "checkpoint").mkdir(parents=True)
    (out / "checkpoint" / "manifest.json").touch()
    assert main([*TINY, "--out", str(out)]) == 2
    assert f"relive train --resume '{out}'\n" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["eval", "export"])
def test_a_run_that_is_going_has_no_policy_yet(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / "config.json").write_text('{"env": "CartPole-v1"}')
    lock = Lock(tmp_path, "")
    assert main([command, str(tmp_path)]) == 2
    assert "is going and there is no policy yet: one comes with" in capsys.readouterr().err
    lock.release()
    assert main([command, str(tmp_path)]) == 2
    assert "there is no policy at" in capsys.readouterr().err


def test_a_directory_with_a_run_in_it_is_refused_and_left_alone(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TINY, "--out", str(out)]) == 0
    before = (out / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert main([*TINY, "--out", str(out)]) == 2
    assert "has a run in it" in capsys.readouterr().err
    assert (out / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("wrong", ["--env CartPol-v1", "--env Pendulum-v1"])
def test_an_environment_that_cannot_be_used_leaves_nothing_behind(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "dqn", *wrong.split()]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_buffer_that_cannot_be_made_leaves_no_run_behind(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TINY, "--out", str(out), "--replay.capacity", str(10**11)]) == 2
    assert "would fit" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize("command", ["eval", "report"])
def test_a_directory_without_a_run_is_refused_by_name(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path)]) == 2
    assert f"{tmp_path} is not a run directory" in capsys.readouterr().err


def test_a_run_of_a_script_goes_on_with_the_module_that_registers_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "run")
    (tmp_path / "own_poles.py").write_text(
        "import gymnasium as gym\n"
        "made_by = 'gymnasium.envs.classic_control:CartPoleEnv'\n"
        "gym.register('Pole-v0', made_by, max_episode_steps=20)\n"
    )
    gymnasium.register("Pole-v0", "gymnasium.envs.classic_control:CartPoleEnv")  # in a script
    assert main([*TINY, "--env", "Pole-v0", "--out", out, "--total-steps", "200"]) == 0
    del gymnasium.registry["Pole-v0"]
    monkeypatch.syspath_prepend(tmp_path)
    named = ["--env", "own_poles:Pole-v0"]
    try:
        assert main(["eval", out]) == 2
        assert "in front: --env module:Pole-v0" in capsys.readouterr().err
        assert main(["eval", out, "--env", "CartPole-v1"]) == 2
        assert "was trained in Pole-v0, given CartPole-v1; only" in capsys.readouterr().err
        assert main(["eval", out, *named, "--episodes", "1"]) == 0
        assert main(["record", "--policy", out, *named, "--out", str(tmp_path / "data")]) == 0
        assert "of own_poles:Pole-v0, policy run" in capsys.readouterr().out
        assert main(["train", "--resume", out, *named, "--total-steps", "300"]) == 0
    finally:
        gymnasium.registry.pop("Pole-v0", None)


def test_a_run_that_was_stopped_goes_on(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--out", str(out), "--save-every", "100"]) == 0
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(lines[:-1]))  # killed before its last record
    assert main(["train", "--resume", str(out)]) == 0
    assert "going on after step 300" in capsys.readouterr().out
    assert records(out)[-1]["record"] == "run_ended"
    assert main(["train", "--resume", str(out)]) == 2
    assert "has come to its end" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--resume names a run directory"),
        (["OUT", "--seed", "9"], "seed was 0, given 9"),
        (["OUT", "--replay.capacity=77"], "replay.capacity was"),
        (["OUT", "--replay.smapler", "rank"], "there is no option '--replay.smapler'"),
        (["nowhere"], "nowhere is not a run directory"),
    ],
)
def test_what_does_not_fit_an_old_run_is_told(
    out: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main([*TINY, "--out", str(out)]) == 0
    words = [str(out) if word == "OUT" else word for word in words]
    assert main(["train", "--resume", *words]) == 2
    assert said in capsys.readouterr().err


def test_an_old_run_keeps_its_algorithm(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--out", str(out)]) == 0
    assert main(["train", "c51", "--resume", str(out)]) == 2
    assert "trains dqn, given c51" in capsys.readouterr().err


def test_a_page_is_written_over_no_other_file(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*TINY, "--eval-episodes", "0", "--out", str(out)]) == 0
    notes, other = tmp_path / "notes.html", tmp_path / "other"
    notes.write_text("precious")
    other.mkdir()
    (other / "metrics.jsonl").touch()
    for target, said in (
        (tmp_path / "notes.txt", "a page is a file NAME.html"),
        (notes, "no page of relive report"),
        (other, "is another run"),
    ):
        assert main(["report", str(out), "--out", str(target)]) == 2
        assert said in capsys.readouterr().err
    assert notes.read_text() == "precious"
    page = tmp_path / "page.html"
    for _ in range(2):
        assert main(["report", str(out), "--out", str(page)]) == 0
