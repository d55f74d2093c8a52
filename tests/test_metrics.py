from itertools import pairwise

import numpy as np
import pytest

from spdnet.metrics import equal_error_rate, roc, spread, verification_rate


def test_roc_equals_counts():
    rng = np.random.default_rng(0)
    same = rng.random((30, 20)) < 0.3
    scores = np.round(rng.normal(size=(30, 20)) + same, 1)  # with ties
    far, rate = roc(scores, same)
    thresholds = np.unique(scores)[::-1]
    counted = [((scores >= t)[~same].mean(), (scores >= t)[same].mean()) for t in thresholds]
    np.testing.assert_allclose(np.stack([far, rate], 1), [(0, 0), *counted])
    for false, true in counted:
        highest = max(r for f, r in counted if f == false)
        assert verification_rate(scores, same, far=false) == highest >= true
    rising = [(a, b) for a, b in pairwise(counted) if a[0] < b[0] and a[1] < b[1]]
    (f0, r0), (f1, r1) = rising[3]
    middle = verification_rate(scores, same, far=(f0 + f1) / 2)
    assert middle == pytest.approx((r0 + r1) / 2)


def test_verification_rate_uses_impostor_quantile():
    rng = np.random.default_rng(1)
    same = np.arange(20_000) < 2000
    scores = rng.normal(size=20_000) + 2 * same
    threshold = np.quantile(scores[~same], 0.99)
    expected = (scores[same] > threshold).mean()
    assert verification_rate(scores, same) == pytest.approx(expected, abs=2e-3)
    assert verification_rate(scores, same, far=1) == 1
    assert verification_rate(scores, same, far=0) == (scores[same] > scores[~same].max()).mean()


def test_rates_of_perfect_reversed_and_constant_scores():
    same = np.array([True, True, False, False])
    assert verification_rate([4.0, 3.0, 2.0, 1.0], same) == 1
    assert verification_rate([1.0, 2.0, 3.0, 4.0], same) == 0
    assert equal_error_rate([4.0, 3.0, 2.0, 1.0], same) == 0
    assert equal_error_rate([1.0, 2.0, 3.0, 4.0], same) == 1
    assert equal_error_rate([1.0, 1.0, 1.0, 1.0], same) == pytest.approx(0.5)


def test_equal_error_rate_of_normal_scores():
    rng = np.random.default_rng(2)
    same = np.arange(40_000) % 2 == 0
    scores = rng.normal(size=40_000) + 2 * same
    assert equal_error_rate(scores, same) == pytest.approx(0.1587, abs=0.01)  # Phi(-1)


def test_spread():
    assert spread([1.0, 2.0, 3.0]) == (2.0, 1.0)
    assert np.isnan(spread([1.0]).deviation)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: roc([1.0, 2.0], [True]), "one shape"),
        (lambda: roc([1.0, 2.0], [1, 0]), "booleans same"),
        (lambda: roc([1.0, np.nan], [True, False]), "finite"),
        (lambda: roc([1.0, 2.0], [True, True]), "none of different"),
        (lambda: roc([1.0, 2.0], [False, False]), "none of one person"),
        (lambda: verification_rate([1.0, 2.0], [True, False], far=2), "far"),
        (lambda: spread([]), "one-dimensional array"),
    ],
)
def test_invalid_input_raises_message(call, message):
    with pytest.raises(ValueError, match=message):
        call()
