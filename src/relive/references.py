"""Results that others have published, to hold ours against."""

from __future__ import annotations

REFERENCES: dict[str, float] = {
    "CartPole-v1": 500.0,
    "Acrobot-v1": -76.6,
    "Pendulum-v1": -151.9,
}
REFERENCES |= {f"torch/{env}": mean for env, mean in REFERENCES.items()}  # the same, as tensor code
"""The best mean return of the RL Baselines3 Zoo's DQN, DDPG, TD3, SAC; see docs/results.md."""
