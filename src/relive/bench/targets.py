"""What the figures should be, as ratios to others of the same run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relive.bench.environments import PEERS
from relive.bench.workloads import column

BEST_PEER = "best peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A column of ours is at most `most` times another.

    Attributes:
        versus: a column of the same case, "best peer", or a workload, for the same column there.
    """

    workload: str
    case: str
    ours: str
    versus: str
    most: float


def _targets() -> list[Target]:
    both = [column("batch"), column("buffer")]
    found = []

    def want(workload: str, case: str, ours: str, versus: str, most: float) -> None:
        target = Target(workload=workload, case=case, ours=ours, versus=versus, most=most)
        found.append(target)

    for name, fresh in (("W1", 0.5), ("W2", 0.7)):
        for ours in both:
            want(name, "per sample 256", ours, BEST_PEER, 0.3)
            want(name, "per sample 256", f"{ours} out", BEST_PEER, 0.2)
        want(name, "per update 256", both[0], BEST_PEER, 0.2)
        want(name, "per update 256", both[1], BEST_PEER, 0.25)
        for ours in both:
            want(name, "per step 256", ours, BEST_PEER, 0.2)
        for ours in both:
            want(name, "per add 1", ours, BEST_PEER, 0.3)
            want(name, "per add 1024", ours, BEST_PEER, 0.5)
        want(name, "uniform add 1", column(""), "stable-baselines3", 1.0)
        want(name, "uniform sample 256", column(""), BEST_PEER, fresh)
        for rows in (256, 4096):
            want(name, f"uniform sample {rows}", column("", out=True), "take", 1.2)
    want("W3", "uniform sample 256", column("", out=True), "copy", 1.25)
    want("W3", "uniform scaled 256", column("", out=True), "convert", 1 / 3)
    for ours in both:
        want("W4", "per sample 256", f"{ours} out", "W4-100k", 3.0)
        want("W4", "per update 256", ours, "W4-100k", 3.0)
        want("W4", "per add 1", ours, "W4-100k", 3.0)
    return found


TARGETS = _targets()


def judge(workloads: dict[str, Any]) -> list[dict[str, Any]]:
    """Every target of the workloads that were measured.

    Returns:
        For each: what it compares, "limit", the "ratio" of median CPU times and whether it was
        "met"; both None where one of the two has no figure.
    """
    verdicts = []
    for target in TARGETS:
        if target.workload not in workloads:
            continue
        cases = workloads[target.workload]["cases"]
        figures = cases.get(target.case, {})
        ours = median(figures, target.ours)
        if target.versus == BEST_PEER:
            against, other = best_peer(figures)
        elif target.versus in figures or target.versus not in workloads:
            against, other = target.versus, median(figures, target.versus)
        else:
            elsewhere = workloads[target.versus]["cases"].get(target.case, {})
            against, other = target.versus, median(elsewhere, target.ours)
        ratio = ours / other if ours is not None and other else None
        verdicts.append(
            {
                "workload": target.workload,
                "case": target.case,
                "ours": target.ours,
                "versus": against,
                "limit": target.most,
                "ratio": ratio,
                "met": None if ratio is None else ratio <= target.most,
            }
        )
    return verdicts


def median(figures: dict[str, Any], name: str) -> float | None:
    """Median CPU time of a column, in microseconds."""
    return figures[name]["cpu"]["median"] if name in figures else None


def best_peer(figures: dict[str, Any]) -> tuple[str, float | None]:
    """The fastest peer of a case."""
    times = {name: figures[name]["cpu"]["median"] for name in PEERS if name in figures}
    if not times:
        return BEST_PEER, None
    best = min(times, key=lambda name: times[name])
    return best, times[best]
