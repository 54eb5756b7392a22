"""Settings of the samplers."""

import math

import pytest

from relive import ConfigError, Field, Linear, Proportional, ReplayBuffer, Uniform
from relive.ops import words as w

FIELDS = {"obs": Field(), "action": Field()}

REFUSED = [
    ({"alpha": -0.1}, r"alpha lies in \[0, 2\]"),
    ({"alpha": 2.1}, r"alpha lies in \[0, 2\]"),
    ({"alpha": math.nan}, r"alpha lies in \[0, 2\]"),
    ({"alpha": "0.6"}, r"alpha lies in \[0, 2\]"),
    ({"alpha": True}, r"alpha lies in \[0, 2\]"),
    ({"beta": 1.5}, r"beta lies in \[0, 1\]"),
    ({"beta": Linear(0.4, 1.1, 10)}, r"beta lies in \[0, 1\]"),
    ({"beta": None}, r"beta is a number or a Linear"),
    ({"beta": True}, r"beta is a number or a Linear"),
    ({"eps": -1e-9}, r"eps lies in \[0, 1\]"),
    ({"weight_clip": 0}, "weight_clip lies in"),
    ({"normalize": "max"}, "normalize is one of None, 'batch', 'buffer'"),
    ({"new_priority": "mean"}, "new_priority is one of 'max_seen', 'max_current'"),
    ({"bad_priority": "skip"}, "bad_priority is one of 'keep', 'max', 'raise'"),
    ({"stratified": 1}, "stratified is True or False"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED)
def test_a_setting_that_cannot_work_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Proportional(**settings)


def test_extra_trees_are_only_kept_where_they_are_needed():
    table = [  # sampler, prioritized, smallest, largest
        (Uniform(), False, False, False),
        (Proportional(), True, True, False),
        (Proportional(normalize="batch"), True, False, False),
        (Proportional(normalize=None, new_priority="max_current"), True, False, True),
    ]
    for sampler, prioritized, smallest, largest in table:
        state = ReplayBuffer(20, FIELDS, sampler=sampler)._state
        kept = [len(tensor) > 0 for tensor in (state.sums, state.mins, state.maxs)]
        assert kept == [prioritized, smallest, largest]
        assert (sampler.prioritized, sampler.needs_smallest, sampler.needs_largest) == (
            prioritized,
            smallest,
            largest,
        )


def test_settings_reach_the_words_of_the_state():
    sampler = Proportional(alpha=0.7, beta=Linear(0.3, 0.9, 77), eps=1e-3, weight_clip=5.0)
    state = ReplayBuffer(20, FIELDS, sampler=sampler)._state
    reals = [w.ALPHA, w.EPS, w.BETA_START, w.BETA_END, w.BETA_STEPS, w.WEIGHT_CLIP]
    assert [state.real(word) for word in reals] == [0.7, 1e-3, 0.3, 0.9, 77.0, 5.0]
    assert [state.word(word) for word in (w.WEIGHTING, w.STRATIFIED, w.NORMALIZE)] == [
        w.PROPORTIONAL,
        1,
        w.BUFFER_NORMALIZER,
    ]


def test_the_words_do_not_overlap():
    names = [
        name
        for name, value in vars(w).items()
        if isinstance(value, int)
        and name.isupper()
        and not name.startswith(("LANE_", "MAX_LEVELS"))
    ]
    indices = [getattr(w, name) for name in names[: names.index("NUM_WORDS")] if name != "FLOATS"]
    assert len(set(indices)) == len(indices)
    assert max(indices) < w.NUM_WORDS
    assert w.LEVEL_0 + w.MAX_LEVELS < w.TRACK_REUSE
