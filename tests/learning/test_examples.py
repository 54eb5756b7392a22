"""The examples run, small."""

import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch):
    """Imports one by name, for this test only."""

    def load(name):
        monkeypatch.syspath_prepend(EXAMPLES)
        monkeypatch.delitem(sys.modules, name, raising=False)
        return __import__(name)

    return load


def test_mbpo_prints_what_both_reach(example, monkeypatch, capsys):
    mbpo = example("mbpo")
    small = {"ROLLOUTS": 200, "RANDOM_STEPS": 150, "UPDATES": 1, "PATIENCE": 1}
    for name, value in small.items():
        monkeypatch.setattr(mbpo, name, value)
    found = mbpo.main(steps=160, episodes=1)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == list(found) == ["SAC", "MBPO"]
    assert all(-2_000 < value <= 0 for value in found.values())


def test_the_model_learns_what_a_step_does(example, monkeypatch):
    mbpo = example("mbpo")
    monkeypatch.setattr(mbpo, "RANDOM_STEPS", 400)
    fitted = []
    fit = mbpo.Model.fit
    monkeypatch.setattr(mbpo.Model, "fit", lambda *a, **k: fitted.append(fit(*a, **k)))
    mbpo.train(401, with_model=True)
    assert len(fitted) == 1
    assert fitted[0] < 0.02  # of the variance


def test_the_loop_trains_and_evaluates(example, capsys):
    returns = example("loop").main(steps=300, episodes=2)
    assert len(returns) == 2
    assert capsys.readouterr().out.startswith("mean return of 2 greedy episodes after 300 steps")
