"""Kernels run in one kind of process only: Triton reads TRITON_INTERPRET when it sees a kernel.

ordinary                tests of the tools, and compilation for GPUs that need not be there
TRITON_INTERPRET=1      interpreted/: the kernels, on the CPU
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build"
os.environ.setdefault("TRITON_CACHE_DIR", str(BUILD / "triton-cache"))

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

collect_ignore = ["compiled" if INTERPRETED else "interpreted"]
if find_spec("triton") is None:
    collect_ignore += ["interpreted", "compiled", "checker.py"]
elif INTERPRETED:
    from tests.triton.interpreter import patch_once_a_launch

    patch_once_a_launch()
