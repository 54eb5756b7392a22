"""What a rollout makes of observations before anybody sees them."""

import numpy as np

from relive.training.rollout import narrow, not_finite


def test_wide_floats_are_narrowed_and_all_else_is_what_it_was():
    exact, counts = np.float32([[0.1, 2.0]]), np.int64([[3]])
    given = {"wide": np.float64([[0.1, 2.0]]), "deep": {"exact": exact, "counts": counts}}
    found = narrow(given)
    assert found["wide"].dtype == np.float32
    assert np.array_equal(found["wide"], exact)
    assert found["deep"]["exact"] is exact
    assert found["deep"]["counts"] is counts
    assert given["wide"].dtype == np.float64


def test_what_is_too_large_for_float32_is_told_by_name_after_it_is_narrowed():
    found = narrow({"speed": np.float64([1e300]), "place": np.float64([1.0])})
    assert not_finite(found) == "an observation, in speed,"


def test_numbers_that_float32_does_not_hold_raise_nothing_whatever_numpy_was_told():
    with np.errstate(all="raise"):
        found = narrow(np.float64([1e-300, 1e300, np.nan]))
    assert found.tolist()[:2] == [0.0, np.inf]
