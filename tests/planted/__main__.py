"""Plants every fault in turn and says which the suite notices: `python -m tests.planted [WORD]`."""

from __future__ import annotations

import sys

from tests.planted.faults import FAULTS
from tests.planted.planting import try_all


def main(word: str = "") -> int:
    chosen = tuple(fault for fault in FAULTS if word in f"{fault.what} {fault.file}")
    missed = 0
    for verdict in try_all(chosen):
        missed += not verdict.caught
        outcome = "caught    " if verdict.caught else "NOT CAUGHT"
        line = f"{outcome} {verdict.seconds:5.0f} s  {verdict.fault.what}\n{'':20}{verdict.by}\n"
        sys.stdout.write(line)
        sys.stdout.flush()
    sys.stdout.write(f"{len(chosen) - missed} of {len(chosen)} caught\n")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
