"""Hindsight: what a step of an environment costs, and a batch of 256.

    make bench            # installs the other libraries, once
    python benchmarks/hindsight_speed.py

Steps of FetchPush's sizes: 25 floats seen, goals of 3, actions of 4, episodes of 50 steps, a sparse
reward, one environment, 4 goals a step ("future"), room for 100,000 steps. `add` is the mean over
whole episodes, so what is done at their end is in it. Stable-Baselines3 relabels what it draws, the
others what they write; so the sum, of a step and the batch that is drawn after it, counts too.
Each library lives in a process of its own; of the CPU times of one thread, in turns, the median of
all rounds counts.

Writes results/hindsight_speed.json.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Calls = tuple[Callable[[], Any], Callable[[], Any]]

STEPS, BATCH, EPISODE, GOALS = 100_000, 256, 50, 4
SEEN, GOAL, ACTION = 25, 3, 4
FILLED, ROUNDS, ADDS, SAMPLES = 40_000, 5, 2_000, 500
PEERS = Path(__file__).parents[1] / "build" / "peers"
RESULTS = Path(__file__).parent / "results" / "hindsight_speed.json"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def reward_of(achieved: Any, desired: Any) -> Any:
    """0 within 5 cm, else -1."""
    return -(np.linalg.norm(achieved - desired, axis=-1) > 0.05).astype(np.float32)


class Walk:
    """An endless run of episodes whose goals are places of a random walk."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self._seen = rng.normal(size=(1_000, SEEN)).astype(np.float32)
        self._goals = (rng.normal(size=(1_000, GOAL)).cumsum(0) * 0.02).astype(np.float32)
        self._actions = rng.normal(size=(1_000, ACTION)).astype(np.float32)
        self.step = 0

    def next(self) -> tuple[Any, Any, Any, Any, bool]:
        """Observation, action, reward, the next one, and whether the episode ends."""
        at, self.step = self.step % 900, self.step + 1
        obs, after = self._observation(at), self._observation(at + 1)
        reward = float(reward_of(after["achieved_goal"], after["desired_goal"]))
        return obs, self._actions[at], reward, after, self.step % EPISODE == 0

    def _observation(self, at: int) -> dict[str, Any]:
        return {
            "observation": self._seen[at],
            "achieved_goal": self._goals[at],
            "desired_goal": self._goals[(self.step // EPISODE * 37) % 1_000],
        }


def relive(*, prioritized: bool = False, n_step: int = 1, hindsight: bool = True) -> Calls:
    """Ours."""
    from relive import Field, Hindsight, Proportional, ReplayBuffer, Uniform

    goal = Field((GOAL,))
    obs = {"observation": Field((SEEN,)), "achieved_goal": goal, "desired_goal": goal}
    sampler = Proportional() if prioritized else Uniform()
    capacity = STEPS * (GOALS + 1)
    fields = {"obs": obs, "action": Field((ACTION,))}
    buffer = ReplayBuffer(capacity, fields, sampler=sampler, n_step=n_step)
    writer = Hindsight(buffer, reward_of, goals=GOALS) if hindsight else buffer
    walk = Walk()

    def add() -> None:
        obs, action, reward, after, ends = walk.next()
        writer.add(
            obs=obs,
            action=action,
            reward=reward,
            next_obs=after,
            terminated=False,
            truncated=ends,
        )

    return add, lambda: buffer.sample(BATCH)


def cpprb(*, prioritized: bool) -> Calls:
    """Goals are rows of one array, behind what is seen."""
    from cpprb import HindsightReplayBuffer

    width = SEEN + GOAL  # what is seen, and where it is
    buffer = HindsightReplayBuffer(
        STEPS * (GOALS + 1),
        {"obs": {"shape": width}, "act": {"shape": ACTION}, "next_obs": {"shape": width}},
        EPISODE,
        lambda state, action, goal: reward_of(state[..., SEEN:], goal)[:, None],  # noqa: ARG005
        goal_func=lambda state: state[..., SEEN:],
        goal_shape=(GOAL,),
        additional_goals=GOALS,
        prioritized=prioritized,
    )
    walk = Walk()

    def add() -> None:
        obs, action, _, after, ends = walk.next()
        seen, then = (np.concatenate([o["observation"], o["achieved_goal"]]) for o in (obs, after))
        buffer.add(obs=seen, act=action, next_obs=then)
        if ends:
            buffer.on_episode_end(obs["desired_goal"])

    return add, lambda: buffer.sample(BATCH)


def stable_baselines3() -> Calls:
    """It asks a vector environment for rewards."""
    from gymnasium import spaces
    from stable_baselines3.her.her_replay_buffer import HerReplayBuffer

    class Rewards:
        num_envs = 1

        def env_method(self, name: str, achieved: Any, desired: Any, *_: Any, **__: Any) -> Any:
            assert name == "compute_reward"
            return [reward_of(achieved, desired)]

    def box(size: int) -> Any:
        return spaces.Box(-np.inf, np.inf, (size,), np.float32)

    goals = {"achieved_goal": box(GOAL), "desired_goal": box(GOAL)}
    buffer = HerReplayBuffer(
        STEPS,
        spaces.Dict({"observation": box(SEEN), **goals}),
        box(ACTION),
        Rewards(),  # type: ignore[arg-type]
        device="cpu",
        n_sampled_goal=GOALS,
    )
    walk = Walk()

    def add() -> None:
        obs, action, reward, after, ends = walk.next()
        now, then = ({key: value[None] for key, value in o.items()} for o in (obs, after))
        infos = [{"TimeLimit.truncated": ends}]
        buffer.add(now, then, action[None], np.array([reward]), np.array([ends]), infos)

    return add, lambda: buffer.sample(BATCH)


def copies() -> Calls:
    """The floor: NumPy alone copies one row a step with its four, and the rows of a batch."""
    walk, rng = Walk(), np.random.default_rng(1)
    width = 2 * (SEEN + 2 * GOAL) + ACTION + 2
    rows = np.zeros((STEPS * (GOALS + 1), width), np.float32)
    five, out = np.zeros((GOALS + 1, width), np.float32), np.empty((BATCH, width), np.float32)

    def add() -> None:
        walk.next()
        at = walk.step % STEPS * (GOALS + 1)
        rows[at : at + GOALS + 1] = five

    def sample() -> None:
        np.take(rows, rng.integers(0, len(rows), BATCH), axis=0, out=out, mode="clip")

    return add, sample


SIDES: dict[str, tuple[str | None, Callable[[], Calls]]] = {  # environment, and what is made there
    "copies of NumPy": (None, copies),
    "relive without hindsight": (None, lambda: relive(hindsight=False)),
    "relive": (None, relive),
    "relive, 3-step returns": (None, lambda: relive(n_step=3)),
    "relive, priorities": (None, lambda: relive(prioritized=True)),
    "Stable-Baselines3": ("stable-baselines3", stable_baselines3),
    "cpprb": ("cpprb", lambda: cpprb(prioritized=False)),
    "cpprb, priorities": ("cpprb", lambda: cpprb(prioritized=True)),
}


def measure(name: str) -> None:
    """Serve one side: a line a round."""
    add, sample = SIDES[name][1]()
    for _ in range(FILLED):
        add()
    sample()
    for _ in sys.stdin:
        times = {"add": per_call(add, ADDS), "sample": per_call(sample, SAMPLES)}
        print(json.dumps({**times, "both": times["add"] + times["sample"]}), flush=True)


def per_call(call: Callable[[], Any], count: int) -> float:
    """Microseconds of CPU."""
    began = time.process_time()
    for _ in range(count):
        call()
    return (time.process_time() - began) / count * 1e6


def main() -> None:
    """Measure all sides, those whose library is there."""
    children = {}
    for name, (peer, _) in SIDES.items():
        python = Path(sys.executable) if peer is None else PEERS / peer / "bin" / "python"
        if python.exists():
            children[name] = subprocess.Popen(
                [python, __file__, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **ONE_THREAD},
            )
    found: dict[str, list[dict[str, float]]] = {name: [] for name in children}
    for _ in range(ROUNDS):
        for name, child in children.items():
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            found[name].append(json.loads(child.stdout.readline()))
    for child in children.values():
        child.communicate()
    rows = {
        name: {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
        for name, rounds in found.items()
    }
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    result = {"date": dt.datetime.now(dt.UTC).date().isoformat(), "machine": machine, "sides": rows}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    for name, row in rows.items():
        print(
            f"{name:26} {row['add']:8.1f} us add {row['sample']:9.1f} us sample "
            f"{row['both']:9.1f} us both"
        )


if __name__ == "__main__":
    measure(sys.argv[1]) if len(sys.argv) > 1 else main()
