"""Updates that the Blind Cliffwalk needs with each sampler (Schaul et al. 2016, section 3.1).

    python benchmarks/cliffwalk.py

n states in a row, two actions, the right one alternates: it leads on, and in the last state it pays
1 and ends the episode; the wrong one ends it at once. The memory holds the transitions of all 2^n
sequences of actions in random order, N = 2^(n+1) - 2, of which one is rewarded. Q-learning in a
table, one transition an update, until the values are right. Importance weights are ignored, because
what a transition teaches never varies: there is no bias to undo.

Writes results/cliffwalk.json and docs/images/cliffwalk.svg; takes some five minutes.
"""

from __future__ import annotations

import argparse
import json
import statistics
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

from relive import Field, Proportional, RankBased, ReplayBuffer, Uniform

if TYPE_CHECKING:
    from relive.sampling import Sampler

STEP_SIZE = 0.25
NOISE = 0.1  # standard deviation of the first values
GOOD_ENOUGH = 1e-3  # mean squared error

SAMPLERS: dict[str, Sampler] = {
    "uniform": Uniform(),
    "proportional": Proportional(alpha=0.6, eps=1e-4),
    "rank": RankBased(alpha=0.7, resort_every=100),
}
COLORS = {"uniform": "#7f7f7f", "proportional": "#1f77b4", "rank": "#d95f02"}
HERE = Path(__file__).parent
RESULTS = HERE / "results" / "cliffwalk.json"
FIGURE = HERE.parent / "docs" / "images" / "cliffwalk.svg"


def memory(n: int) -> dict[str, np.ndarray]:
    """All 2^(n+1) - 2 transitions, in order of their states; state n is past the end."""
    states = np.repeat(np.arange(n), [2 ** (n - i) for i in range(n)])
    actions = np.arange(len(states)) % 2  # every state has an even number of transitions
    right = actions == states % 2
    rewarded = right & (states == n - 1)
    return {
        "obs": states,
        "action": actions,
        "reward": rewarded.astype(np.float32),
        "next_obs": states + 1,
        "terminated": rewarded | ~right,
    }


def true_values(n: int) -> np.ndarray:
    """Q of every state and action, float64 [n, 2]: gamma^(steps to the reward), or 0."""
    states = np.arange(n)
    values = np.zeros((n, 2))
    values[states, states % 2] = (1 - 1 / n) ** (n - 1 - states)
    return values


def updates_needed(n: int, sampler: Sampler, seed: int) -> int:
    """Updates until the mean squared error of Q is below 1e-3."""
    rng = np.random.default_rng(seed)
    rows = memory(n)
    order = rng.permutation(len(rows["obs"]))
    fields = {"obs": Field((), torch.int64), "action": Field((), torch.int64)}
    buffer = ReplayBuffer(len(order), fields, sampler=sampler, gamma=1 - 1 / n, seed=seed)
    buffer.extend(**{name: column[order] for name, column in rows.items()})

    truth = true_values(n).tolist()
    q = [*rng.normal(0, NOISE, (n, 2)).tolist(), [0.0, 0.0]]
    squared_error = sum((q[i][a] - truth[i][a]) ** 2 for i in range(n) for a in (0, 1))
    batch = buffer.empty_batch(1)
    td_errors = torch.zeros(1)
    # Views of the batch and of the error, made once: a tensor for each number would take most of
    # the time.
    obs, action, next_obs = batch.obs.numpy(), batch.action.numpy(), batch.next_obs.numpy()
    reward, discount, error = batch.reward.numpy(), batch.discount.numpy(), td_errors.numpy()
    updates = 0
    while squared_error >= GOOD_ENOUGH * 2 * n:
        buffer.sample(1, out=batch)
        i, a = obs[0], action[0]
        delta = float(reward[0]) + float(discount[0]) * max(q[next_obs[0]]) - q[i][a]
        squared_error -= (q[i][a] - truth[i][a]) ** 2
        q[i][a] += STEP_SIZE * delta
        squared_error += (q[i][a] - truth[i][a]) ** 2
        if buffer.prioritized:
            error[0] = delta
            buffer.update_priorities(batch.ids, td_errors)
        updates += 1
    return updates


def measure(lengths: list[int], seeds: int) -> dict[str, dict[str, list[int]]]:
    """Updates of every seed, by sampler and number of states."""
    return {
        name: {str(n): [updates_needed(n, sampler, seed) for seed in range(seeds)] for n in lengths}
        for name, sampler in SAMPLERS.items()
    }


def draw(updates: dict[str, dict[str, list[int]]], path: Path) -> None:
    """Updates against the size of the memory: median, and a band from least to most."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cliffwalk"})
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, by_length in updates.items():
        sizes = [2 ** (int(n) + 1) - 2 for n in by_length]
        found = list(by_length.values())
        low, high = [min(f) for f in found], [max(f) for f in found]
        middle = [statistics.median(f) for f in found]
        axes.fill_between(sizes, low, high, color=COLORS[name], alpha=0.2, linewidth=0)
        axes.plot(sizes, middle, color=COLORS[name], marker="o", markersize=3, label=name)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="transitions in the memory, N",
        ylabel="updates needed",
    )
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[2, 4, 6, 8, 10, 12, 14])
    parser.add_argument("--seeds", type=int, default=30)
    options = parser.parse_args()
    torch.set_num_threads(1)
    updates = measure(options.lengths, options.seeds)
    for name, by_length in updates.items():
        for n, found in by_length.items():
            print(
                f"{name:13} n = {n:2}  median {statistics.median(found):9.0f}"
                f"  [{min(found)}, {max(found)}]"
            )
    result = {"torch": version("torch"), "seeds": options.seeds, "updates": updates}
    RESULTS.write_text(json.dumps(result) + "\n", encoding="utf-8")
    draw(updates, FIGURE)


if __name__ == "__main__":
    main()
