"""Results that others have published, to hold ours against."""

from __future__ import annotations

REFERENCES: dict[str, float] = {
    "CartPole-v1": 500.0,
    "Acrobot-v1": -76.6,
}
"""Mean return of the RL Baselines3 Zoo's DQN; docs/results.md says after how many steps."""
