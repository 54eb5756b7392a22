"""Trainings that stop after every turn: what `train_speed.py` starts, in each side's interpreter.

    python benchmarks/train_sides.py stable-baselines3 sac 250

The words are the side, the algorithm and the environment steps of a turn. Whenever a turn is over
it prints the seconds it took, by the clock and of the CPU, and waits for a line of input.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

CARTPOLE = {  # of the RL Zoo
    "env": "CartPole-v1",
    "lr": 2.3e-3,
    "hidden": 256,
    "batch_size": 64,
    "capacity": 100_000,
    "learning_starts": 2_560,
    "gamma": 0.99,
    "train_every": 256,
    "updates_per_train": 128,
    "epsilon_end": 0.04,
    "epsilon_fraction": 0.16,
    "max_grad_norm": 10.0,
}
CHEETAH = {  # of the papers
    "env": "HalfCheetah-v5",
    "lr": 3e-4,
    "hidden": 256,
    "batch_size": 256,
    "capacity": 1_000_000,
    "learning_starts": 1_000,
    "gamma": 0.99,
    "tau": 0.005,
}
SETTINGS = {"dqn": CARTPOLE, "sac": CHEETAH, "td3": CHEETAH}
MOST_STEPS = 100_000  # a training that is planned to go on for longer than it is asked to


class Turns:
    """Called with the number of every step, or of some; returns when the next turn may begin.

    The first turn begins when learning does.
    """

    def __init__(self, steps: int, begin: int) -> None:
        self.steps, self.begin = steps, begin
        self._began: tuple[float, float] | None = None

    def __call__(self, step: int) -> None:
        """Steps made so far."""
        if step < self.begin or (step - self.begin) % self.steps:
            return
        if self._began is not None:
            wall, cpu = self._began
            print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]), flush=True)
        if not sys.stdin.readline():
            raise SystemExit
        self._began = time.perf_counter(), time.process_time()


def relive(algorithm: str, turns: Turns, sampler: str = "uniform") -> None:
    """Ours, by the trainer."""
    from relive.agents import DQNConfig, SACConfig, TD3Config
    from relive.training import ReplayConfig, TrainConfig, train
    from relive.training.records import TrainingProgress

    s = SETTINGS[algorithm]
    if algorithm == "dqn":
        agent = DQNConfig(
            double=False,
            hidden=(s["hidden"],) * 2,
            lr=s["lr"],
            target_period=s["updates_per_train"],  # the peer's copies fall between its bursts
            max_grad_norm=s["max_grad_norm"],
            epsilon_end=s["epsilon_end"],
            epsilon_fraction=s["epsilon_fraction"],
        )
    else:
        kind = {"sac": SACConfig, "td3": TD3Config}[algorithm]
        agent = kind(hidden=(s["hidden"],) * 2, lr=s["lr"], tau=s["tau"])
    config = TrainConfig(
        env=s["env"],
        total_steps=MOST_STEPS,
        device="cpu",
        threads=1,
        learning_starts=s["learning_starts"],
        train_every=s.get("train_every", 1),
        updates_per_train=s.get("updates_per_train", 1),
        eval_episodes=0,
        log_every=turns.steps,
        save_every=0,
        replay=ReplayConfig(
            sampler=sampler,
            capacity=s["capacity"],
            batch_size=s["batch_size"],
            gamma=s["gamma"],
        ),
        agent=agent,
    )
    for record in train(config):
        if isinstance(record, TrainingProgress):
            turns(record.step)


def stable_baselines3(algorithm: str, turns: Turns) -> None:
    """Stable-Baselines3."""
    import numpy as np
    import stable_baselines3 as sb3
    import torch
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.noise import NormalActionNoise

    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            turns(self.num_timesteps)
            return True

    torch.set_num_threads(1)
    s = SETTINGS[algorithm]
    settings = {
        "learning_rate": s["lr"],
        "policy_kwargs": {"net_arch": [s["hidden"]] * 2},
        "batch_size": s["batch_size"],
        "buffer_size": s["capacity"],
        "learning_starts": s["learning_starts"],
        "gamma": s["gamma"],
        "seed": 0,
        "device": "cpu",
    }
    if algorithm == "dqn":
        kind = sb3.DQN
        settings |= {
            "train_freq": s["train_every"],
            "gradient_steps": s["updates_per_train"],
            "target_update_interval": 10,
            "exploration_final_eps": s["epsilon_end"],
            "exploration_fraction": s["epsilon_fraction"],
            "max_grad_norm": s["max_grad_norm"],
        }
    else:
        kind = {"sac": sb3.SAC, "td3": sb3.TD3}[algorithm]
        settings |= {"tau": s["tau"], "train_freq": 1, "gradient_steps": 1}
    if algorithm == "td3":
        settings["action_noise"] = NormalActionNoise(np.zeros(6), np.full(6, 0.1))
    kind("MlpPolicy", s["env"], **settings).learn(MOST_STEPS, callback=Stop())


def plain(algorithm: str, turns: Turns) -> None:
    """One file a user would write."""
    from plain import sac, td3

    script, s = {"sac": sac, "td3": td3}[algorithm], SETTINGS[algorithm]
    words = {
        "env": s["env"],
        "steps": MOST_STEPS,
        "learning-starts": s["learning_starts"],
        "capacity": s["capacity"],
        "batch-size": s["batch_size"],
        "hidden": s["hidden"],
        "gamma": s["gamma"],
        "tau": s["tau"],
        "lr": s["lr"],
    }
    script.train(script.settings([f"--{name}={value}" for name, value in words.items()]), turns)


SIDES: dict[str, Callable[[str, Turns], None]] = {
    "relive": relive,
    "relive-prioritized": lambda algorithm, turns: relive(algorithm, turns, "proportional"),
    "stable-baselines3": stable_baselines3,
    "plain": plain,
}

if __name__ == "__main__":
    side, algorithm, steps = sys.argv[1:]
    SIDES[side](algorithm, Turns(int(steps), SETTINGS[algorithm]["learning_starts"]))
