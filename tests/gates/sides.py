"""Where a gate runs: as the definition, on the CPU, or on a pretended GPU.

What runs on a GPU launches Triton's kernels, which needs a process of its own
(TRITON_INTERPRET=1); there the other two are left out.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.triton.pretended import pretended

if TYPE_CHECKING:
    from collections.abc import Iterator

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
PLACES = {  # arguments of a buffer that lives there
    "reference": {"kernels": "reference"},
    "cpu": {"kernels": "cpu"},
    "gpu": {"device": "cuda"},
}
SIDES = ["gpu"] if INTERPRETED else ["reference", "cpu"]


@contextmanager
def at(side: str) -> Iterator[dict[str, Any]]:
    """The arguments of a buffer that lives on a side, while there is such a device."""
    if side == "gpu":
        with pretended():
            yield PLACES[side]
    else:
        yield PLACES[side]
