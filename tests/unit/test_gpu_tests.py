"""`make test-gpu`: every test in a process of its own, within a time, and told in a line."""

import json
import sys
import textwrap

import pytest
import torch

from tests.gpu import __main__ as program

TESTS = """
    import os, time

    def test_holds():
        pass

    def test_fails():
        assert "what is there" == "what was wanted"

    def test_loses_the_device():
        os._exit(-9)

    def test_hangs():
        time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "tests/gpu").mkdir(parents=True)
    (tmp_path / "tests/gpu/test_some.py").write_text(textwrap.dedent(TESTS))
    monkeypatch.setattr(program, "ROOT", tmp_path)
    monkeypatch.setattr(program, "PYTEST", [sys.executable, "-m", "pytest", "-q", "--tb=short"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    return tmp_path


def test_what_fails_or_hangs_is_told_and_the_rest_goes_on(folder, capsys):
    file = folder / "found.json"
    assert program.main(["--save", str(file), "--limit", "10", "--workers", "2"]) == 1
    found = {name.partition("::")[2]: one for name, one in json.loads(file.read_text()).items()}
    assert {name: one["ok"] for name, one in found.items()} == {
        "test_holds": True,
        "test_fails": False,
        "test_loses_the_device": False,
        "test_hangs": False,
    }
    assert "in test_hangs" in found["test_hangs"]["output"]
    assert found["test_hangs"]["output"].endswith("ended after 10 s")
    said = capsys.readouterr().out
    assert "::test_fails: AssertionError: assert 'what is there' == 'what was wanted'" in said
    assert said.endswith(f"1 of 4 went well; written to {file}\n")


def test_what_there_is_no_time_for_is_left_out(folder, capsys):
    save = ["--save", str(folder / "found.json")]
    assert program.main([*save, "--seconds", "0", "-k", "holds"]) == 1
    assert "no time left" in capsys.readouterr().out


def test_without_a_device_nothing_is_tested(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert program.main([]) == 2
