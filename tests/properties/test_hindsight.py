"""Hindsight writes what a slow twin writes, bit for bit, whatever the environments do.

The twin keeps whole episodes as lists and makes every row by itself, with numbers of the reference
generator, from the words of Andrychowicz et al. 2017 and the rules of n-step returns.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from relive import Field, Hindsight, ReplayBuffer
from relive.ops.philox.reference import philox

GAMMA = 0.9
FIELDS = {
    "obs": {
        "observation": Field((2,)),
        "achieved_goal": Field((2,)),
        "desired_goal": Field((2,)),
    },
    "action": Field((), torch.int64),
    "log_prob": Field((), torch.float64),
}


def reward(achieved, desired):
    """Dense, so that any confusion of goals shows."""
    return -np.abs(achieved - desired).sum(-1) * np.float64(0.7)


def terminated(achieved, desired):
    return (achieved == desired).all(-1)


class Twin:
    """Hindsight, step by step and row by row."""

    def __init__(self, buffer, goals, strategy, seed, ends):
        self.buffer, self.goals, self.strategy, self.seed = buffer, goals, strategy, seed
        self.ends = ends
        self.episodes = [[] for _ in range(buffer.num_envs)]
        self.fake = [False] * buffer.num_envs
        self.number = 0

    def add(self, steps, autoreset):
        """One step of every environment; each has the true next observation."""
        ended = []
        for lane, step in enumerate(steps):
            if self.fake[lane]:
                self.fake[lane] = False
                continue
            self.episodes[lane].append(step)
            if step["terminated"] or step["truncated"]:
                self.fake[lane] = autoreset == "next_step"
                ended.append(lane)
        for lane in ended:
            self.relabel(lane)

    def end_episode(self, lanes):
        for lane in lanes:
            self.fake[lane] = False
            if self.episodes[lane]:
                self.episodes[lane][-1] = {**self.episodes[lane][-1], "truncated": True}
                self.relabel(lane)

    def relabel(self, lane):
        episode, self.episodes[lane] = self.episodes[lane], []
        count = len(episode)
        for at in range(count):
            for goal in range(self.goals):
                first = at if self.strategy == "future" else 0
                word = philox(self.seed % 2**64, at * self.goals + goal, self.number)[0]
                chosen = first + word * (count - first) // 2**32
                if self.strategy == "final":
                    chosen = count - 1
                self.write(lane, episode[at:], episode[chosen]["next_obs"]["achieved_goal"])
        self.number += 1

    def write(self, lane, steps, goal):
        window = []
        for step in steps[: self.buffer.n_step]:
            reached = step["next_obs"]["achieved_goal"]
            value = np.float32(reward(reached[None], goal[None])[0])
            end = terminated(reached[None], goal[None])[0] if self.ends else step["terminated"]
            window.append((value, bool(end)))
            if end:
                break
        total = 0.0
        for value, _ in reversed(window):
            total = float(value) + GAMMA * total
        if self.buffer.n_step == 1:
            total = window[0][0]
        first, last, end = steps[0], steps[len(window) - 1], window[-1][1]
        self.buffer.extend(
            obs={key: value[None] for key, value in {**first["obs"], "desired_goal": goal}.items()},
            next_obs={
                key: value[None]
                for key, value in {**last["next_obs"], "desired_goal": goal}.items()
            },
            action=[first["action"]],
            log_prob=[first["log_prob"]],
            reward=np.array([total], np.float32),
            terminated=[end],
            truncated=[last["truncated"]],
            discount=np.array([0.0 if end else GAMMA ** len(window)], np.float32),
            env=lane,
        )


def observation(rng):
    return {key: rng.integers(0, 3, 2).astype(np.float32) for key in FIELDS["obs"]}


def played(rng, num_envs, obs):
    """A step of every environment, going on from what they saw."""
    return [
        {
            "obs": obs[lane],
            "next_obs": observation(rng),
            "action": int(rng.integers(5)),
            "reward": float(rng.normal()),
            "terminated": bool(rng.random() < 0.1),
            "truncated": bool(rng.random() < 0.1),
            "log_prob": float(rng.normal()),
        }
        for lane in range(num_envs)
    ]


def together(values):
    if isinstance(values[0], dict):
        return {key: together([value[key] for value in values]) for key in values[0]}
    return np.stack(values)


def call_of(steps, after, autoreset):
    """What `add` is given for some steps, with the observations that the environments show."""
    call = {key: together([step[key] for step in steps]) for key in steps[0]}
    if autoreset == "same_step":
        ended = call["terminated"] | call["truncated"]
        final = np.array(
            [step["next_obs"] if e else None for step, e in zip(steps, ended, strict=True)], object
        )
        call["final_obs"] = final if ended.any() else None
        call["next_obs"] = together(after)
    return call


KINDS = st.fixed_dictionaries(
    {
        "num_envs": st.integers(1, 3),
        "n_step": st.integers(1, 4),
        "autoreset": st.sampled_from(["disabled", "next_step", "same_step"]),
        "goals": st.integers(1, 3),
        "strategy": st.sampled_from(["future", "episode", "final"]),
        "ends": st.booleans(),
        "seed": st.integers(-(2**63), 2**63 - 1),
        "steps": st.integers(1, 40),
        "capacity": st.sampled_from([7, 50, 2_000]),
        "resumed": st.booleans(),
    }
)


@given(KINDS, st.integers(0, 2**32 - 1))
def test_hindsight_writes_what_a_slow_twin_writes(kind, chance):
    num_envs, autoreset = kind["num_envs"], kind["autoreset"]
    goals = 1 if kind["strategy"] == "final" else kind["goals"]
    buffer, other = (
        ReplayBuffer(
            kind["capacity"],
            FIELDS,
            num_envs=num_envs,
            n_step=kind["n_step"],
            gamma=GAMMA,
            autoreset=autoreset,
        )
        for _ in range(2)
    )
    ends = terminated if kind["ends"] else None

    def new(buffer):
        how = {"goals": goals, "strategy": kind["strategy"], "seed": kind["seed"]}
        return Hindsight(buffer, reward, terminated=ends, **how)

    hindsight = new(buffer)
    twin = Twin(other, goals, kind["strategy"], kind["seed"], kind["ends"])
    rng = np.random.default_rng(chance)
    obs = [observation(rng) for _ in range(num_envs)]
    for step in range(kind["steps"]):
        steps = played(rng, num_envs, obs)
        ended = [it["terminated"] or it["truncated"] for it in steps]
        after = [
            observation(rng) if e else it["next_obs"] for it, e in zip(steps, ended, strict=True)
        ]
        call = call_of(steps, after, autoreset)
        hindsight.add(**call)
        other.add(**call)
        twin.add(steps, autoreset)
        obs = after
        if rng.random() < 0.1:
            lane = int(rng.integers(num_envs))
            hindsight.end_episode(lane)
            other.end_episode(lane)
            twin.end_episode([lane])
        if kind["resumed"] and step == kind["steps"] // 2:
            before, hindsight = hindsight, new(buffer)
            hindsight.load_state_dict(copy.deepcopy(before.state_dict()))
    assert hindsight.episodes == twin.number
    assert len(buffer) == len(other)
    ours, theirs = buffer.state_dict()["tensors"], other.state_dict()["tensors"]
    rows = slice(0, len(buffer))
    assert torch.equal(ours["rows"][rows], theirs["rows"][rows])
    assert torch.equal(ours["lanes"], theirs["lanes"])
    assert buffer.stats() == other.stats()
    buffer.check()
