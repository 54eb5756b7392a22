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


def test_the_loop_trains_and_evaluates(example, capsys):
    returns = example("loop").main(steps=300, episodes=2)
    assert len(returns) == 2
    assert capsys.readouterr().out.startswith("mean return of 2 greedy episodes after 300 steps")
