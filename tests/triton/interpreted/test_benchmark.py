"""The benchmark for GPUs at small size on a pretended one: it runs, and its times mean nothing."""

import json
from dataclasses import replace
from threading import Event

import pytest
import torch

from benchmarks.gpu import __main__ as program
from benchmarks.gpu import training
from benchmarks.gpu.__main__ import is_lost, main
from benchmarks.gpu.checks import CHECKS
from benchmarks.gpu.flow import FLOW
from benchmarks.gpu.rivals import Rebuilt, Rows
from benchmarks.gpu.sections import OTHERWISE, SECTIONS
from benchmarks.gpu.segment_tree import SegmentTree
from benchmarks.gpu.training import TRAINING, WAYS, loop_of
from benchmarks.gpu.workload import TINY
from relive.agents import DQN
from tests.triton.pretended import pretended
from tests.triton.pretended.derivatives import stand_in_for_derivatives

CPU = torch.device("cpu")
NO_MEASURES = {**CHECKS, **FLOW, **TRAINING}  # tests of their own, here and in tests/gpu


@pytest.mark.parametrize("name", [n for n in SECTIONS if n not in NO_MEASURES])
def test_a_section_that_measures_runs_on_a_device(name):
    with pretended():
        found = SECTIONS[name](torch.device("cuda"), TINY)
    assert found
    json.dumps(found)


@pytest.mark.parametrize("way", WAYS)
def test_a_step_of_training_that_is_measured_runs_over_the_ends_of_episodes(way, monkeypatch):
    stand_in_for_derivatives(monkeypatch)
    with pretended():
        step = loop_of("dqn", torch.device("cuda"), TINY, envs=2, **WAYS[way])
        for _ in range(40):
            step()


def test_of_many_environments_only_replays_are_measured(monkeypatch):
    stand_in_for_derivatives(monkeypatch)
    learn, learned = DQN.learn, []
    monkeypatch.setattr(DQN, "learn", lambda *given: learned.append(1) or learn(*given))
    timed = []
    monkeypatch.setattr(
        training, "microseconds", lambda step, *_: timed.append(calls_of(step)) or {"median": 1.0}
    )

    def calls_of(step):
        before = len(learned)
        for _ in range(2 * training.TARGET_MOVES):
            step()
        return len(learned) - before

    with pretended():
        training.many_environments(torch.device("cuda"), replace(TINY, envs=(128,)))
    assert timed == [0, 0, 0]


@pytest.mark.parametrize(("is_least", "whole"), [(False, 15.0), (True, 1.0)])
def test_the_tree_of_torchrl_sums_and_finds_as_it_does(is_least, whole):
    tree = SegmentTree(5, CPU, is_least=is_least)
    tree.update(torch.tensor([0, 1, 2, 3, 4, 1]), torch.tensor([1.0, 9, 3, 4, 5, 2]))
    assert tree.capacity == 8
    assert tree.tree[1] == tree.query(torch.tensor([0, 5])) == whole
    assert tree.query(torch.tensor([1, 4])) == (2 if is_least else 9)
    assert tree.at(torch.tensor([1, 4])).tolist() == [2, 5]
    if not is_least:
        masses = torch.tensor([0.5, 1.0, 1.5, 3.0, 3.5, 10.0, 10.5, 15.0])
        assert tree.find(masses).tolist() == [0, 0, 1, 1, 2, 3, 4, 4]


def test_the_buffer_of_torchrl_draws_by_priority_and_updates():
    torch.manual_seed(0)
    rival = Rebuilt(Rows(6, 64, CPU), torch.tensor([1.0, 0.0, 3.0, 0.0, 0.0, 4.0]), 64)
    slots = rival.step(torch.zeros(64))
    assert set(slots.tolist()) == {0, 2, 5}
    assert rival.rows.out["obs"][:, 0].tolist() == slots.tolist()
    assert rival.sums.at(slots).max() < 1e-3


def test_the_program_writes_results_and_a_page_and_says_whether_all_went_well(tmp_path):
    with pretended():
        status = main(["--tiny", "--save", str(tmp_path / "gpu.json"), "--only", "memory"])
    results = json.loads((tmp_path / "gpu.json").read_text())
    assert status == (0 if results["sections"]["memory"]["ok"] else 1)
    assert results["machine"]["gpu"] == "Pretended GPU"
    assert (tmp_path / "gpu.md").read_text().startswith("# On Pretended GPU\n")


def test_a_section_that_hangs_is_written_down_and_the_rest_goes_on_elsewhere(tmp_path, monkeypatch):
    file, goes_on, told = tmp_path / "gpu.json", Event(), []

    def again(_):
        told.append(json.loads(file.read_text())["sections"]["stuck"])
        goes_on.set()

    monkeypatch.setattr(program, "again", again)
    monkeypatch.setattr(program, "GRACE", 0.1 - OTHERWISE)
    monkeypatch.setattr(program, "SECTIONS", {"stuck": lambda *_: {"woken": goes_on.wait(30)}})
    with pretended():
        main(["--tiny", "--save", str(file)])
    assert [one["error"] for one in told] == ["hangs"]


def test_behind_a_capture_that_cuda_broke_off_the_rest_goes_on_in_a_new_process():
    with pretended():
        device = torch.device("cuda")
        x = torch.zeros(1, device=device)
        assert not is_lost(device)
        with pytest.raises(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
            x.item()
        assert is_lost(device)
