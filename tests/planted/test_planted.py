"""The suite notices faults that are put into the sources on purpose."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.planted.faults import FAULTS
from tests.planted.planting import ROOT, planted, require_sound, try_one

if TYPE_CHECKING:
    from pathlib import Path

    from tests.planted.faults import Fault


def test_every_fault_can_be_planted_and_its_tests_are_there(tmp_path: Path) -> None:
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    for fault in FAULTS:
        path = source / "relive" / fault.file
        before = path.read_text(encoding="utf-8")
        planted(fault, source)
        compile(path.read_text(encoding="utf-8"), fault.file, "exec")
        path.write_text(before, encoding="utf-8")
        for tests in fault.tests:
            assert (ROOT / tests.split("::")[0]).exists(), tests
    assert len({fault.what for fault in FAULTS}) == len(FAULTS) >= 20


def test_what_is_not_there_exactly_once_cannot_be_planted(tmp_path: Path) -> None:
    (tmp_path / "relive").mkdir()
    (tmp_path / "relive" / "errors.py").write_text("a = 1\na = 1\n")
    fault = FAULTS[0]._replace(file="errors.py", old="a = 1", new="a = 2")
    with pytest.raises(LookupError, match="holds 2 times, not once"):
        planted(fault, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_where_no_fault_is_planted_its_tests_pass() -> None:
    require_sound(FAULTS)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_planted_fault_is_noticed(fault: Fault) -> None:
    verdict = try_one(fault)
    assert verdict.caught, verdict.by
