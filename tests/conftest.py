"""What holds for every test: profiles, long tests, one torch thread, public methods recorded."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import torch
from hypothesis import HealthCheck, settings

from tests.public_methods import PublicMethods

if TYPE_CHECKING:
    import pytest

# dev: quick, as you type. ci: what `make test` runs, the same examples each time. nightly: many.
slow_machine = [HealthCheck.too_slow]
settings.register_profile("dev", max_examples=25, deadline=None, suppress_health_check=slow_machine)
settings.register_profile(
    "ci", max_examples=100, deadline=None, derandomize=True, suppress_health_check=slow_machine
)
settings.register_profile(
    "nightly", max_examples=5000, deadline=None, suppress_health_check=slow_machine
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

torch.set_num_threads(1)  # two test processes share two cores
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as where a shell runs it in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """An option, because `-m "not long"` would make every run one of a part of the suite."""
    parser.addoption("--long", action="store_true", help="run the tests marked long, and no others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Either the long tests or all others."""
    wanted = config.getoption("--long")
    others = [item for item in items if (item.get_closest_marker("long") is not None) != wanted]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in set(others)]


def pytest_configure(config: pytest.Config) -> None:
    """Records from the start, in each process."""
    config.pluginmanager.register(
        PublicMethods(config, ["relive", "relive.agents", "relive.demos"])
    )
