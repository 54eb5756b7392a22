"""Rainbow (Hessel et al. 2018): C51, double, dueling, noisy, on prioritized returns of 3 steps.

By default the paper's settings, with a hundredth of its steps; for MinAtar (Young & Tian 2019) what
a smaller network and a shorter run ask for.
"""

from relive.agents import C51Config
from relive.training.config import ReplayConfig, TrainConfig

DEFAULT = TrainConfig(
    env="",
    total_steps=500_000,
    learning_starts=20_000,
    train_every=4,
    replay=ReplayConfig(
        capacity=1_000_000, batch_size=32, n_step=3, alpha=0.5, beta=0.4, uniform_share=1e-3
    ),
    agent=C51Config(
        double=True,
        dueling=True,
        noisy_sigma=0.5,
        hidden=(512,),
        lr=6.25e-5,
        adam_eps=1.5e-4,
        target_period=2_000,
        epsilon_start=0.0,  # the noise explores
        epsilon_end=0.0,
    ),
)

_MINATAR = TrainConfig(
    env="",
    total_steps=500_000,
    learning_starts=5_000,
    train_every=4,
    replay=ReplayConfig(capacity=500_000, batch_size=64, n_step=3, alpha=0.5, beta=0.4),
    agent=C51Config(
        double=True,
        dueling=True,
        noisy_sigma=0.5,
        v_min=0.0,  # no reward is negative, and discounted returns stay below 20
        v_max=20.0,
        hidden=(128,),
        lr=5e-4,
        lr_end=0.0,
        adam_eps=3.125e-4,
        target_period=1_000,
        epsilon_end=0.05,  # the noise dies out before the game is learned
        epsilon_fraction=0.2,
    ),
)

BY_ENV = {
    f"MinAtar/{game}-{version}": _MINATAR
    for game in ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
    for version in ("v0", "v1")
}
