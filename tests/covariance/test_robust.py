"""M-estimators satisfy their equations, are consistent and equivariant, and resist outliers."""

import numpy as np
import pytest
import torch
from pyriemann.geometry.covariance import covariance_mest
from scipy.stats import chi2
from sklearn.covariance import MinCovDet
from torch.autograd import gradcheck

from spdnet import covariance
from spdnet.covariance import huber, mcd, sample_covariance, student_t, tyler
from spdnet.testing import assert_spd

M_ESTIMATORS = (huber, student_t, tyler)
ROBUST = (*M_ESTIMATORS, mcd)
every = pytest.mark.parametrize("estimator", ROBUST, ids=lambda f: f.__name__)
every_m = pytest.mark.parametrize("estimator", M_ESTIMATORS, ids=lambda f: f.__name__)


def symmetric(X):
    """Return signals whose center is exactly zero."""
    return np.concatenate([X, -X], -1)


@pytest.fixture
def heavy(rng):
    """Return symmetric signals with heavy tails, mixed."""
    return symmetric(rng.normal(size=(4, 4)) @ rng.standard_t(2, size=(4, 60)))


def weighted(X, C, u):
    """Compute the right-hand side of the equation of an M-estimator about zero."""
    d = np.einsum("it,ij,jt->t", X, np.linalg.inv(C), X)
    return (u(d) * X) @ X.T / X.shape[-1]


def test_huber_solves_its_equation(heavy):
    for q in (0.5, 0.9):
        c = chi2.ppf(q, 4)
        b = chi2.cdf(c, 6) + c * (1 - q) / 4
        C = huber(heavy, q=q)
        found = weighted(heavy, C, lambda d, b=b, c=c: np.minimum(1, c / d) / b)
        np.testing.assert_allclose(found, C, rtol=1e-8, atol=1e-9)


def test_student_t_solves_its_equation(heavy):
    for nu in (3.0, 8.0):
        C = student_t(heavy, nu=nu) * (nu - 2) / nu
        found = weighted(heavy, C, lambda d, nu=nu: (4 + nu) / (nu + d))
        np.testing.assert_allclose(found, C, rtol=1e-8, atol=1e-9)


def test_tyler_solves_its_equation(heavy):
    C = tyler(heavy)
    found = weighted(heavy, C, lambda d: 4 / d)
    np.testing.assert_allclose(found / np.trace(found), C / np.trace(C), atol=1e-9)
    d = np.einsum("it,ij,jt->t", heavy, np.linalg.inv(C), heavy)
    np.testing.assert_allclose(np.median(d), chi2.median(4), rtol=1e-2)  # of an odd number
    np.testing.assert_allclose(np.sort(d)[59], chi2.median(4), rtol=1e-8)


def test_centers_solve_their_equations(rng):
    X = rng.standard_t(3, size=(3, 80)) ** 2  # skewed
    C, m = huber(X), np.zeros((3, 1))
    c = chi2.ppf(0.9, 3)
    for _ in range(300):
        d = ((X - m) * np.linalg.solve(C, X - m)).sum(0)
        w = np.minimum(1, c / d)
        m = (X * np.sqrt(w)).sum(1, keepdims=True) / np.sqrt(w).sum()
    b = chi2.cdf(c, 5) + c * 0.1 / 3
    np.testing.assert_allclose((w * (X - m)) @ (X - m).T / 80 / b, C, rtol=1e-7)


@pytest.mark.filterwarnings("ignore:.*expand_dims:DeprecationWarning")  # of pyRiemann
def test_equal_to_pyriemann_where_the_constants_agree(heavy):
    def theirs(kind, **settings):
        return covariance_mest(heavy, kind, tol=1e-12, n_iter_max=5000, **settings)

    expected = theirs("tyl")
    np.testing.assert_allclose(tyler(heavy) / np.trace(tyler(heavy)), expected / np.trace(expected))
    # its weights for complex data with twice nu are those for real data
    np.testing.assert_allclose(student_t(heavy, nu=5) * 3 / 5, theirs("stu", nu=10), rtol=1e-8)


@pytest.mark.parametrize("seed", [0, 3])
def test_mcd_equals_scikit_learn(rng, seed):
    X = rng.normal(size=(2, 3, 50)) * np.array([1.0, 3.0, 0.2])[:, None]
    for x, C in zip(X, mcd(X, seed=seed)):
        expected = MinCovDet(random_state=seed).fit(x.T).covariance_
        np.testing.assert_allclose(C, expected, rtol=1e-10, atol=1e-12)


def test_limits_of_the_parameters(heavy):
    sample = heavy @ heavy.T / 120
    np.testing.assert_allclose(student_t(heavy, nu=1e12), sample, rtol=1e-6)
    light = symmetric(np.clip(heavy, -1, 1))
    np.testing.assert_allclose(huber(light, q=1 - 1e-12), light @ light.T / 240, rtol=1e-6)


@pytest.mark.parametrize("n", [1, 4])
def test_scale_is_consistent_for_gaussian_signals(rng, n):
    A = rng.normal(size=(n, n))
    X = A @ rng.normal(size=(n, 40_000)) + 5
    for estimator, count, atol in ((huber, 40_000, 0.03), (tyler, 40_000, 0.03), (mcd, 2000, 0.1)):
        C = np.linalg.solve(A, np.linalg.solve(A, estimator(X[:, :count])).T)
        np.testing.assert_allclose(C, np.eye(n), atol=atol)


def test_student_t_is_the_covariance_of_t_signals(rng):
    X = rng.normal(size=(3, 40_000)) / np.sqrt(rng.chisquare(6, 40_000) / 6)
    np.testing.assert_allclose(student_t(X, nu=6), 1.5 * np.eye(3), atol=0.05)


@every
def test_affine_equivariance(rng, estimator):
    X = rng.standard_t(3, size=(4, 100))
    X = symmetric(X) if estimator is tyler else X  # the medians are not equivariant
    C = estimator(X)
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    units = np.diag([1e-12, 1.0, 1e6, 1e-3])
    for A in (rng.normal(size=(4, 4)), np.diag([1, 0.1, 1e-2, 1e-4]) @ rotation, units):
        expected = A @ C @ A.T
        scale = np.sqrt(np.diag(expected))
        gap = (estimator(A @ X + 3 * A[:, :1]) - expected) / np.outer(scale, scale)
        np.testing.assert_allclose(gap, 0, atol=1e-9)


@every
@pytest.mark.parametrize("kind", ["scattered", "huge", "one channel"])
def test_outliers_change_little(rng, estimator, kind):
    X = rng.normal(size=(3, 400))
    clean = estimator(X)
    if kind == "one channel":
        X[0, :40] += rng.choice([-1e5, 1e5], 40)  # a tenth
    else:
        X[:, :80] *= {"scattered": 30.0, "huge": 1e8}[kind]  # a fifth
    C = estimator(X)
    ratio = np.linalg.eigvals(np.linalg.solve(clean, C)).real
    assert 0.6 < ratio.min() < ratio.max() < 8
    assert np.linalg.eigvals(np.linalg.solve(clean, sample_covariance(X))).real.max() > 100


def test_mcd_resists_a_cluster(rng):
    X = rng.normal(size=(3, 200))
    X[:, :50] += 50
    np.testing.assert_allclose(mcd(X), np.eye(3), atol=0.4)
    assert np.trace(huber(X)) > 100


@every
def test_a_signal_does_not_depend_on_its_batch(rng, estimator):
    X = rng.normal(size=(2, 3, 3, 40))
    X[1, 0, :, 9:] *= 1e-3  # needs more iterations
    C = estimator(X)
    assert C.shape == (2, 3, 3, 3)
    for index in np.ndindex(2, 3):
        np.testing.assert_allclose(C[index], estimator(X[index]), rtol=1e-9, atol=1e-12)
    assert estimator(X[:0]).shape == (0, 3, 3, 3)


@every
def test_dtypes(rng, estimator):
    X = rng.normal(size=(2, 3, 40)).astype(np.float32)
    C = estimator(X)
    assert C.dtype == np.float32
    np.testing.assert_allclose(C, estimator(X.astype(float)), rtol=1e-6)
    assert estimator(torch.from_numpy(X).bfloat16()).dtype == torch.bfloat16
    assert_spd(torch.from_numpy(estimator(X.astype(float))))


def test_observations_at_the_center_are_left_out_of_tyler(heavy):
    with_zeros = np.concatenate([heavy, np.zeros((4, 50))], -1)
    np.testing.assert_allclose(tyler(with_zeros), tyler(heavy), rtol=1e-8)
    assert np.trace(huber(with_zeros)) < np.trace(huber(heavy))  # counts them


@every_m
def test_derivative(rng, estimator):
    X = torch.from_numpy(rng.normal(size=(2, 2, 12))).requires_grad_()
    assert gradcheck(estimator, X, fast_mode=True)


def test_mcd_refuses_a_derivative(rng):
    X = torch.from_numpy(rng.normal(size=(2, 12))).requires_grad_()
    with pytest.raises(NotImplementedError, match="mcd: has no derivative"):
        mcd(X)
    assert mcd(X.detach()).shape == (2, 2)


@every
def test_signals_without_an_estimate_raise_message(rng, estimator):
    who = estimator.__name__
    with pytest.raises(ValueError, match=f"{who}: expected X with more observations.*4 obs"):
        estimator(rng.normal(size=(2, 4, 4)))
    X = rng.normal(size=(2, 4, 50))
    X[1] -= X[1].mean(0)  # average reference
    with pytest.raises(ValueError, match=rf"{who}: .*in X\[1\] the channels are linearly dep"):
        estimator(X)
    X[1, 2] = 1.0
    with pytest.raises(ValueError, match=rf"{who}: .*in X\[1\] the channels are linearly dep"):
        estimator(X)
    with pytest.raises(ValueError, match=rf"{who}: .*X\[0\] contains NaN"):
        estimator(np.full((2, 3, 9), np.nan))
    with pytest.raises(ValueError, match=rf"{who}: expected X of shape \(..., channels, time\)"):
        estimator(np.ones(3))


@every_m
@pytest.mark.parametrize("basis", ["axes", "rotated"])
def test_too_many_observations_in_a_subspace(rng, estimator, basis):
    """Tyler's estimator exists if fewer than 2/3 are in a plane, the other if fewer than 7/8."""
    fewer = 36 if estimator is tyler else 50
    for count in (fewer, 58):
        X = rng.normal(size=(3, 60))
        X[2, :count] = 0
        if basis == "rotated":
            X = np.linalg.qr(rng.normal(size=(3, 3)))[0] @ X
        X = symmetric(X)
        if count == fewer:
            assert_spd(torch.from_numpy(estimator(X)))
        else:
            with pytest.raises(ValueError, match=rf"{estimator.__name__}: .*X the iteration"):
                estimator(X)


def test_mcd_of_constant_channels(rng):
    X = np.where(np.arange(50) < 30, 1.0, rng.normal(size=(3, 50)))
    with pytest.raises(ValueError, match=r"mcd: .*in X half of the values of a channel are equal"):
        mcd(X)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: huber(X, q=0), "huber: expected q > 0 and < 1"),
        (lambda X: huber(X, q=1), "huber: expected q > 0 and < 1"),
        (lambda X: student_t(X, nu=2), "student_t: expected nu > 2"),
    ],
)
def test_invalid_parameters_raise_message(heavy, call, message):
    with pytest.raises(ValueError, match=message):
        call(heavy)


@every
def test_estimators_have_names(heavy, estimator):
    assert covariance.ESTIMATORS[estimator.__name__] is estimator
    np.testing.assert_array_equal(
        covariance.estimate(heavy, estimator.__name__, reg=0.0), estimator(heavy)
    )
