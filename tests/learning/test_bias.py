"""What prioritized draws do to a mean, and how importance weights undo it: a closed form.

One value Q, terminal rows with rewards r_i, priorities |r_i - Q| renewed as rows are drawn. Q comes
to rest where sum_i |r_i - Q|^(alpha (1 - beta)) (r_i - Q) = 0; with 900 rewards of 0 and 100 of 10
that is 10 / (1 + 9^(1 / (1 + alpha (1 - beta)))), and the mean, 1, once beta = 1.
"""

import pytest
import torch

from relive import Field, Proportional, ReplayBuffer

UPDATES, BATCH, STEP, EPS = 30_000, 32, 0.02, 1e-3
REWARDS = torch.cat([torch.zeros(900), torch.full((100,), 10.0)])


def resting_point(alpha, beta, normalize):
    """Mean of Q over the second half of the updates."""
    sampler = Proportional(alpha=alpha, beta=beta, eps=EPS, normalize=normalize)
    fields = {"obs": Field(()), "action": Field((), torch.int64)}
    buffer = ReplayBuffer(len(REWARDS), fields, sampler=sampler)
    nothing = torch.zeros(len(REWARDS))
    buffer.extend(
        obs=nothing,
        action=nothing.long(),
        reward=REWARDS,
        next_obs=nothing,
        terminated=torch.ones(len(REWARDS), dtype=torch.bool),
    )
    batch = buffer.empty_batch(BATCH)
    q, total = torch.zeros(()), torch.zeros(())
    for update in range(UPDATES):
        buffer.sample(BATCH, out=batch)
        delta = batch.reward - q
        buffer.update_priorities(batch.ids, delta)
        q = q + STEP / BATCH * torch.dot(batch.weights, delta)
        if update >= UPDATES // 2:
            total += q
    return total.item() / (UPDATES - UPDATES // 2)


def predicted(alpha, beta):
    return 10 / (1 + 9 ** (1 / (1 + alpha * (1 - beta))))


@pytest.mark.parametrize(("alpha", "beta"), [(0.6, 0.0), (0.6, 0.4), (1.0, 0.0), (0.6, 1.0)])
def test_the_mean_rests_where_the_formula_says(alpha, beta):
    q = resting_point(alpha, beta, "buffer")
    assert q == pytest.approx(predicted(alpha, beta), rel=0.02)


@pytest.mark.parametrize(
    ("normalize", "low", "high"),
    [
        pytest.param("batch", 0.95, 1.05, id="of the batch: unbiased"),
        pytest.param("buffer", 0.0, 0.5, id="of the buffer: one solved row stalls all others"),
    ],
)
def test_at_full_strength_the_normaliser_decides(normalize, low, high):
    assert low <= resting_point(1.0, 1.0, normalize) <= high


@pytest.mark.parametrize(
    ("alpha", "beta", "value"), [(0.6, 0.0, 2.021), (0.6, 0.4, 1.658), (1.0, 0.0, 2.5), (0.6, 1, 1)]
)
def test_the_formula_gives_the_published_values(alpha, beta, value):
    assert predicted(alpha, beta) == pytest.approx(value, abs=5e-4)
