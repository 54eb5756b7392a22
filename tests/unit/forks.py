"""Children of a process of its own for each test, since threads do not survive a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def forked(child: Callable[[], None]) -> int:
    """The number of a child, which ends with 1 where it raises, or else with 0."""
    number = os.fork()
    if number == 0:
        try:
            child()
            os._exit(0)
        except BaseException:  # there is nobody above
            traceback.print_exc()
        os._exit(1)
    return number


def answer_of(module: str, call: str, folder: Path, timeout: float) -> int:
    """The number that a function of a module of tests gives, in a process of its own.

    Args:
        module: In this folder: "storage.test_saving".
        call: Of a function there; `folder` is known to it.
        folder: Where it may write.
        timeout: Seconds.
    """
    code = (
        "import sys; from pathlib import Path; import torch; torch.set_num_threads(1); "
        f"import tests.unit.{module} as t; folder = Path(sys.argv[1]); print(t.{call})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
