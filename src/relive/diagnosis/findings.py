"""Everything that `relive doctor` finds, as one value."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from relive.diagnosis import surroundings
from relive.diagnosis.selftest import FALSE_ALARM, Check, selftest
from relive.diagnosis.speed import Speed, has_room, measure
from relive.diagnosis.surroundings import Cache, Device, Memory
from relive.errors import UnsupportedError
from relive.warmup import warm_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What was found on this machine.

    Attributes:
        devices: The CPU, and what there is of CUDA, with kernels and reasons.
        versions: Package name to version; None if it is not installed.
        missing: Package that is not installed to the command that installs it.
        threads: Cores and threads.
        memory: What is free, and what fits.
        cache: Of compiled kernels; None if there are no kernels.
        checks: The self-test.
        speed: Operations beside their floors; empty if they were not measured.
        speed_why: Why not; empty if they were.
    """

    devices: list[Device]
    versions: dict[str, str | None]
    missing: dict[str, str]
    threads: dict[str, int | float | None]
    memory: Memory
    cache: Cache | None
    checks: list[Check]
    speed: list[Speed]
    speed_why: str

    @property
    def ok(self) -> bool:
        """Whether nothing that was tested failed."""
        return all(check.ok is not False for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        speed = [{**asdict(one), "ratio": one.ratio, "verdict": one.verdict} for one in self.speed]
        return {**asdict(self), "speed": speed, "ok": self.ok, "false_alarm": FALSE_ALARM}


def diagnose(seed: int = 0) -> Findings:
    """Look at this machine, test the buffer on it, measure it. Takes some seconds.

    Args:
        seed: Of the self-test; another one draws other rows.
    """
    try:
        cache = surroundings.cache(warm_up())
    except UnsupportedError:
        cache = None
    checks = selftest(seed)
    speed, why = measured(checks)
    return Findings(
        devices=surroundings.devices(),
        versions=surroundings.versions(),
        missing=surroundings.missing(),
        threads=surroundings.threads(),
        memory=surroundings.memory(),
        cache=cache,
        checks=checks,
        speed=speed,
        speed_why=why,
    )


def measured(checks: list[Check]) -> tuple[list[Speed], str]:
    """The speed, or why it was not measured: what is not right is not timed."""
    if not all(check.ok for check in checks):
        return [], "a self-test did not pass"
    if not has_room():
        return [], "too little memory is free"
    try:
        return measure(), ""
    except ValueError as error:
        return [], f"an operation was not right: {error}"
