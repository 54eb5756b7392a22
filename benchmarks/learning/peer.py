"""SAC of Stable-Baselines3 with the settings of our preset, told in records like ours.

    build/peers/stable-baselines3/bin/python benchmarks/learning/peer.py --env HalfCheetah-v5 \
        --total-steps 100000 --seed 0 --out runs/sb3

Needs stable-baselines3 and gymnasium[mujoco], and nothing of relive. Its defaults are those of the
paper, as ours are: layers of 256 and 256, batches of 256, step size 3e-4, tau 0.005, gamma 0.99, a
temperature that is tuned to minus the dimensions of the actions. Learning starts at step 10,000.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path

import gymnasium
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback

FIRST_SEED = 10_000_019  # of the greedy episodes, as in relive.training.evaluation_seeds


class Records(BaseCallback):
    """Writes a line for every episode that ends."""

    def __init__(self, file) -> None:
        super().__init__()
        self.file = file

    def _on_step(self) -> bool:
        for env, info in enumerate(self.locals["infos"]):
            if "episode" in info:
                ended = {
                    "record": "episode_ended",
                    "step": self.num_timesteps,
                    "env": env,
                    "episode_return": float(info["episode"]["r"]),
                    "length": int(info["episode"]["l"]),
                }
                self.file.write(json.dumps(ended) + "\n")
        return True


def main() -> None:
    """Trains, evaluates, writes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--env", required=True)
    parser.add_argument("--total-steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--eval-episodes", type=int, default=10)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    model = SAC(
        "MlpPolicy",
        options.env,
        learning_starts=10_000,
        batch_size=256,
        buffer_size=min(1_000_000, options.total_steps),
        seed=options.seed,
        device="cpu",
    )
    names = ("stable-baselines3", "torch", "gymnasium", "mujoco", "numpy")
    with (options.out / "metrics.jsonl").open("w", buffering=1) as file:
        started = {
            "record": "run_started",
            "step": 0,
            "config": {name: str(value) for name, value in vars(options).items()},
            "versions": {name: version(name) for name in names},
        }
        file.write(json.dumps(started) + "\n")
        model.learn(options.total_steps, callback=Records(file))
        returns = [played(model, options.env, FIRST_SEED + k) for k in range(options.eval_episodes)]
        evaluated = {"record": "evaluated", "step": options.total_steps, "returns": returns}
        file.write(json.dumps(evaluated) + "\n")
        ended = {
            "record": "run_ended",
            "step": options.total_steps,
            "updates": options.total_steps - 10_000,
            "seconds": time.perf_counter() - start,
            "interrupted": False,
        }
        file.write(json.dumps(ended) + "\n")


def played(model: SAC, env_id: str, seed: int) -> float:
    """The return of one greedy episode."""
    env = gymnasium.make(env_id)
    obs, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        action, _ = model.predict(obs, deterministic=True)
        obs, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        over = terminated or truncated
    env.close()
    return total


if __name__ == "__main__":
    main()
