"""Windows on the newest rows: which rows, how a sweep goes, what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from relive import (
    ConfigError,
    Linear,
    Proportional,
    RankBased,
    Recent,
    ReplayBuffer,
    Uniform,
    UnsupportedError,
)
from tests.faults.tagged import FIELDS, rows, write
from tests.unit.unchanged import refused

SAMPLERS = [Uniform(), Proportional(alpha=1.0, eps=0.0), RankBased(resort_every=1)]


def filled(kernels: str, number: int, window: Recent | None, **settings: Any) -> ReplayBuffer:
    settings = {"capacity": 10, "sampler": SAMPLERS[0], **settings}
    return write(
        ReplayBuffer(fields=FIELDS, kernels=kernels, gamma=0.5, window=window, **settings),
        range(number),
    )


def window_of(buffer: ReplayBuffer, *, train: bool = False) -> list[int]:
    """The rows that come up in a batch so large that each row of the window does."""
    return sorted(set(buffer.sample(300, train=train).ids.tolist()))


# A fixed window


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(
    ("number", "count", "expected"),
    [
        (3, 5, range(3)),
        (5, 5, range(5)),
        (9, 5, range(4, 9)),
        (13, 5, range(8, 13)),  # over the end of the ring
        (20, 10, range(10, 20)),
        (13, 10, range(3, 13)),
        (13, 99, range(3, 13)),
        (13, 2**61, range(3, 13)),
        (13, 1, [12]),
    ],
)
def test_a_fixed_window_has_the_newest_rows(
    kernels: str, sampler: Any, number: int, count: int, expected: Any
) -> None:
    buffer = filled(kernels, number, Recent(count), sampler=sampler)
    assert window_of(buffer) == list(expected)
    assert window_of(buffer, train=True) == list(expected)  # and it stays
    assert window_of(buffer, train=True) == list(expected)


def test_a_buffer_of_one_row_has_a_window_too(kernels: str) -> None:
    for sampler in SAMPLERS:
        assert window_of(filled(kernels, 3, Recent(5), capacity=1, sampler=sampler)) == [2]


def test_rows_outside_the_window_keep_their_priorities_and_can_be_updated(kernels: str) -> None:
    buffer = filled(kernels, 10, Recent(3), sampler=SAMPLERS[1])
    buffer.update_priorities(range(10), [1e6] * 7 + [0.0, 1.0, 3.0])
    assert window_of(buffer) == [8, 9]
    counts = buffer.sample(400).ids.bincount(minlength=10).tolist()
    assert counts == [0] * 8 + [100, 300]  # stratified
    assert buffer.priorities([0, 9]).tolist() == [1e6, 3]
    buffer.check()


def test_a_window_whose_rows_have_no_priority_cannot_be_drawn_from(kernels: str) -> None:
    buffer = filled(kernels, 10, Recent(3), sampler=SAMPLERS[1])
    buffer.update_priorities([7, 8, 9], [0.0, 0.0, 0.0])
    assert not buffer.ready()
    with refused(buffer, RuntimeError, "all priorities are 0"):
        buffer.sample(4)
    write(buffer, [10])
    assert window_of(buffer) == [10]


def test_a_window_counts_rows_not_steps_of_several_environments(kernels: str) -> None:
    buffer = ReplayBuffer(
        20,
        FIELDS,
        kernels=kernels,
        num_envs=2,
        n_step=2,
        gamma=0.5,
        autoreset="disabled",
        window=Recent(3),
    )
    for env in (0, 1):
        buffer.extend(**rows(range(5)), env=env)
    assert window_of(buffer) == [7, 8, 9]
    buffer.clear()
    assert not buffer.ready()
    buffer.extend(**rows(range(2)), env=1)
    assert window_of(buffer) == [10, 11]


# One that shrinks: c_k = min(live, max(floor(N eta^(k 1000 / K)), c_min))

SWEEPS = [  # window, rows written of capacity 10, sizes of the windows of successive batches
    ({"eta": 0.5, "c_min": 1, "updates": 1000}, 10, [5, 2, 1, 1]),
    ({"eta": 0.5, "c_min": 3, "updates": 1000}, 10, [5, 3, 3]),
    ({"eta": 0.5, "c_min": 1, "updates": 2000}, 10, [7, 5, 3, 2, 1]),  # 10 / sqrt(2) = 7.07
    ({"eta": 0.999, "c_min": 1, "updates": 4}, 10, [7, 6, 4, 3, 7, 6, 4, 3]),
    ({"eta": 0.999, "c_min": 1, "updates": 4}, 23, [7, 6, 4, 3, 7]),
    ({"eta": 0.999, "c_min": 1, "updates": 1}, 10, [3, 3, 3]),
    ({"eta": 1.0, "c_min": 1, "updates": 3}, 10, [10, 10, 10, 10]),
    ({"eta": 1e-6, "c_min": 1, "updates": 2}, 10, [1, 1, 1]),
    ({"eta": 1e-6, "c_min": 2**61, "updates": 2}, 10, [10, 10]),
    ({"eta": 0.5, "c_min": 4, "updates": 1000}, 3, [3, 3]),
    ({"eta": 0.5, "c_min": 1, "updates": 1000}, 6, [3, 1]),
    ({"eta": 0.5, "c_min": 1, "updates": 1000, "of": "capacity"}, 6, [5, 2, 1]),
    ({"eta": 0.8, "c_min": 1, "updates": 1000, "of": "capacity"}, 6, [6, 6, 5, 4]),  # 8 6.4 5.1 4.1
    ({"eta": Linear(0.5, 1.0, 2), "c_min": 1, "updates": 1000}, 10, [5, 5, 10, 10]),  # .75^2 = .56
]


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize(("settings", "number", "sizes"), SWEEPS)
def test_a_window_shrinks_over_a_sweep(
    kernels: str, sampler: Any, settings: dict[str, Any], number: int, sizes: list[int]
) -> None:
    buffer = filled(kernels, number, Recent(**settings), sampler=sampler)
    for size in sizes:
        expected = list(range(number - size, number))
        assert window_of(buffer) == expected  # leaves the sweep alone
        buffer.sample_range(1, 0, number)  # and so does this
        assert window_of(buffer, train=True) == expected
    buffer.check()


def test_a_sweep_can_be_begun_by_hand_with_another_length(kernels: str) -> None:
    buffer = filled(kernels, 10, Recent(eta=0.999, c_min=1, updates=4))
    sizes = []
    for updates in (None, 2, 1, 4):
        if updates is not None:
            buffer.start_sweep(updates)
        sizes += [len(window_of(buffer, train=True)) for _ in range(3)]
    # 10 * .999^(1000 k / K): 7.8 6.1 4.7 3.7 of 4, 6.1 3.7 of 2, 3.7 of 1
    assert sizes == [7, 6, 4, 6, 3, 6, 3, 3, 3, 7, 6, 4]


def test_a_sweep_goes_on_after_a_clear_a_reseed_and_a_set_progress(kernels: str) -> None:
    buffer = filled(kernels, 10, Recent(eta=0.999, c_min=1, updates=4))
    assert len(window_of(buffer, train=True)) == 7
    buffer.clear()
    buffer.extend(**rows(range(10)))
    assert len(window_of(buffer, train=True)) == 6
    buffer.reseed(5)
    assert len(window_of(buffer, train=True)) == 4
    buffer.set_progress(0)
    assert len(window_of(buffer, train=True)) == 3


def test_the_window_that_shrinks_counts_no_demonstration(kernels: str) -> None:
    buffer = filled(kernels, 4, Recent(eta=0.5, c_min=1, updates=1000), demo_fraction=0.5)
    buffer.pin_demonstrations(4)
    write(buffer, range(4, 20))
    for size in (3, 1, 1):
        assert window_of(buffer, train=True) == [0, 1, 2, 3, *range(20 - size, 20)]


@pytest.mark.parametrize("updates", [0, -1, 1.5, True, None, "3", 2**62])
def test_a_sweep_of_no_length_is_refused(kernels: str, updates: Any) -> None:
    buffer = filled(kernels, 10, Recent(eta=0.999, c_min=1, updates=4))
    with refused(buffer, ValueError, "updates is a whole number >= 1"):
        buffer.start_sweep(updates)


@pytest.mark.parametrize("window", [None, Recent(3)])
def test_a_sweep_without_a_window_that_shrinks_is_refused(
    kernels: str, window: Recent | None
) -> None:
    buffer = filled(kernels, 10, window)
    with refused(buffer, UnsupportedError, r"only window=Recent\(eta=\.\.\.\) has sweeps"):
        buffer.start_sweep(3)


def test_a_buffer_tells_its_window() -> None:
    assert filled("cpu", 1, Recent(3)).window == Recent(3)
    assert filled("cpu", 1, None).window is None


REFUSED = [
    ({"count": 0}, "count is a whole number >= 1; given 0"),
    ({"count": True}, "count is a whole number >= 1"),
    ({"count": 2.0}, "count is a whole number >= 1"),
    ({"c_min": 0}, "c_min is a whole number >= 1"),
    ({"c_min": None}, "c_min is a whole number >= 1"),
    ({"updates": 0}, "updates is a whole number >= 1"),
    ({"updates": 2**62}, "updates is a whole number >= 1"),
    ({"eta": 0.0}, r"eta lies in \[1e-06, 1\]"),
    ({"eta": 1.5}, r"eta lies in \[1e-06, 1\]"),
    ({"eta": float("nan")}, "eta lies in|finite"),
    ({"eta": "0.9"}, "eta is a number or a Linear"),
    ({"eta": Linear(0.9, 1.1, 5)}, r"eta lies in \[1e-06, 1\]"),
    ({"of": "rows"}, "of is one of 'present', 'capacity'; given 'rows'"),
    ({"count": 5, "eta": 0.5}, r"a fixed window and takes nothing else; given \['eta'\] too"),
    ({"count": 5, "c_min": 1, "of": "capacity"}, r"given \['c_min', 'of'\] too"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_a_window_that_cannot_be_meant_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Recent(**settings)


@pytest.mark.parametrize("window", [5, Recent, "recent", (0, 5)])
def test_what_is_no_window_is_refused(window: Any) -> None:
    with pytest.raises(ConfigError, match=r"window is None or Recent\(\.\.\.\)"):
        ReplayBuffer(10, FIELDS, window=window)
