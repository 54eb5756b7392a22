"""`relive record`, and training from what it leaves."""

from __future__ import annotations

import filecmp
import json
import re
from typing import TYPE_CHECKING

import minari
import numpy as np
import pytest
from minari.dataset.minari_dataset import parse_dataset_id

from relive.cli.main import main
from relive.demos import read
from relive.demos.recording import dataset_id
from relive.envs.experts import EXPERTS
from relive.training import evaluate, load_policy
from relive.training.recording import recording_seeds
from tests.unit.cli.test_train import TINY

if TYPE_CHECKING:
    from pathlib import Path

PUMP = ["record", "--expert", "mountain-car-continuous", "--episodes", "2"]


@pytest.mark.parametrize("data_format", ["hdf5", "arrow"])
def test_an_expert_is_recorded_for_minari_and_for_us(
    data_format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "car"
    assert main([*PUMP, "--out", str(out), "--format", data_format]) == 0
    found = list(read(out))
    returns = [episode.episode_return for episode in found]
    said = capsys.readouterr().out
    assert f"episodes  2 of MountainCarContinuous-v0, expert {PUMP[2]}, seed 0\n" in said
    assert f"steps     {sum(map(len, found))}, an episode " in said
    assert f"returns   {np.mean(returns):.1f} ± {np.std(returns):.1f}, " in said
    assert f"written   {out} (Minari, {data_format})\n" in said
    assert min(returns) > 90
    assert [episode.seed for episode in found] == recording_seeds(2, 0)
    dataset = minari.MinariDataset(out / "data")
    assert dataset.spec.dataset_id == "car-v0"
    for ours, theirs in zip(found, dataset.iterate_episodes(), strict=True):
        assert np.array_equal(ours.obs, theirs.observations[:-1])
        assert np.array_equal(ours.next_obs, theirs.observations[1:])
        assert np.array_equal(ours.action, theirs.actions)
        assert np.array_equal(ours.reward, theirs.rewards)
    env = dataset.recover_environment()
    obs, _ = env.reset(seed=found[0].seed)
    assert np.array_equal(obs, found[0].obs[0])
    env.close()


@pytest.mark.parametrize("name", ["car-v0", "mine/car-v1", "our/own/mountain_car-v12"])
def test_below_the_folder_of_minari_a_dataset_is_found_by_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "all"))
    monkeypatch.chdir(tmp_path)
    assert main([*PUMP, "--out", f"all/{name}"]) == 0
    assert list(minari.list_local_datasets()) == [name]
    assert minari.load_dataset(name).total_episodes == 2


@pytest.mark.parametrize(
    ("name", "better"),
    [
        ("car", "car-v0"),
        ("mine/mountain car-v1", "mountain-car-v1"),
        ("m/car-v0", "car-v0"),  # of one letter Minari takes none
        ("data/car-v0", "car-v0"),  # a folder with data in it is a dataset itself
        (".", "all-v0"),
    ],
)
def test_below_the_folder_of_minari_a_name_that_it_would_not_list_is_refused(
    name: str,
    better: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "all"))
    assert main([*PUMP, "--out", str(tmp_path / "all" / name)]) == 2
    assert f"name it {better}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["car", "-v0", "v0", "data", "ein auto.v2", "車", "..."])
def test_elsewhere_any_place_will_do_and_minari_takes_the_name(name: str, tmp_path: Path) -> None:
    assert parse_dataset_id(dataset_id(tmp_path / "x" / name))[2] in (0, 2)


def test_the_line_it_ends_with_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PUMP, "--out", str(tmp_path / "car")]) == 0
    line = re.search(r"use +relive (.*)", capsys.readouterr().out)
    assert line is not None
    words = [*line[1].split(), "--total-steps", "60", "--learning-starts", "20"]
    words += ["--agent.hidden", "8", "--eval-episodes", "0", "--replay.capacity", "1000"]
    words += ["--demos.fraction", "0.25", "--device", "cpu", "--replay.batch-size", "8"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert "rows of 2 episodes, mean return 94" in capsys.readouterr().out
    assert json.loads((tmp_path / "run/config.json").read_text())["demos"]["fraction"] == 0.25
    assert main(["train", "--resume", str(tmp_path / "run"), "--demos.episodes", "1"]) == 2
    assert "demos.episodes was None, given 1" in capsys.readouterr().err


def test_a_trained_policy_is_recorded_as_it_is_evaluated(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    assert main([*TINY, "--out", str(run)]) == 0
    words = ["record", "--policy", str(run), "--episodes", "3", "--seed", "5"]
    assert main([*words, "--out", str(out)]) == 0
    seeds = recording_seeds(3, 5)
    returns = evaluate(load_policy(run), "CartPole-v1", seeds)
    found = list(read(out))
    assert [episode.episode_return for episode in found] == list(returns)
    assert found[0].action.dtype == np.int64


def test_the_help_names_every_expert(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["record", "--help"])
    said = re.findall(r"[a-z]+(?:-[a-z]+)+", capsys.readouterr().out)
    assert set(EXPERTS) <= set(said)


def test_a_relative_place_is_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for data_format in ("hdf5", "arrow"):
        assert main([*PUMP, "--out", f"demos/{data_format}", "--format", data_format]) == 0
        assert len(list(read(f"demos/{data_format}"))) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"demos"}


def test_the_same_seed_records_the_same(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        words = [*PUMP, "--format", "arrow", "--seed", seed]
        assert main([*words, "--out", str(tmp_path / name)]) == 0
    a, b, c = (tmp_path / name / "data/0/part-0.arrow" for name in "abc")
    assert filecmp.cmp(a, b, shallow=False)
    assert not filecmp.cmp(a, c, shallow=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--expert mountain-car", "--out is missing"),
        ("--out OUT", "either --policy RUN or --expert NAME"),
        ("--out OUT --expert mountain-car --policy runs/a", "either --policy RUN or --expert"),
        (
            "--out OUT --expert mountian-car",
            "no expert 'mountian-car'; did you mean 'mountain-car'",
        ),
        ("--out OUT --policy nowhere", "nowhere is not a run directory"),
        ("--out OUT --expert mountain-car --episodes 0", "episodes is at least 1"),
        ("--out OUT --expert mountain-car --threads 5000", "threads is at most"),
        ("--out TAKEN --expert mountain-car", "is no dataset of Minari"),
    ],
)
def test_what_cannot_be_recorded_is_told_and_leaves_nothing(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (taken := tmp_path / "taken").mkdir()
    (taken / "notes").touch()
    places = {"OUT": str(tmp_path / "out"), "TAKEN": str(taken)}
    assert main(["record", *(places.get(word, word) for word in words.split())]) == 2
    assert said in capsys.readouterr().err
    assert {path.name for path in tmp_path.rglob("*")} == {"taken", "notes"}


def test_a_dataset_is_replaced_only_if_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "car")]
    assert main([*PUMP, *out]) == 0
    assert main([*PUMP, *out, "--episodes", "1"]) == 2
    assert "has a dataset in it; name another place, or replace it" in capsys.readouterr().err
    assert len(list(read(tmp_path / "car"))) == 2
    assert main([*PUMP, *out, "--episodes", "1", "--overwrite"]) == 0
    assert len(list(read(tmp_path / "car"))) == 1
