"""Baselines of the paper: accuracy on the toy set and mathematical identities."""

import pickle
import warnings

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.base import clone
from sklearn.cross_decomposition import PLSRegression
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from spdnet.baselines import (
    CDL,
    HERML,
    LEML,
    RSR,
    SPDML,
    DeepO2PClassifier,
    ExpressionletClassifier,
    LogEuclideanClassifier,
    MeanFeatureVerifier,
    MinimumDistanceToMean,
    NearestNeighbor,
    SteinSVC,
)
from spdnet.baselines.estimator import subsample
from spdnet.baselines.leml import cyclic_projections, solve_step
from spdnet.baselines.spdml import cost_and_gradient
from spdnet.data import load_digits_spd
from spdnet.linalg import logm, vech
from spdnet.manifolds import METRICS, FlatMetric, affine_invariant, stein
from tests.baselines.toy import toy
from tests.cases import random_spd

TOYS = {}


def halves(seed):
    if seed not in TOYS:
        TOYS[seed] = toy(seed)
    return TOYS[seed]


UNBALANCED = {"n_components": 10, "k_w": 15, "k_b": 10, "balance": False, "tol": 0.03}
BANDS = {
    "NN affine-invariant": (NearestNeighbor("affine_invariant"), 0.50, 0.70),
    "NN Stein": (NearestNeighbor("stein"), 0.50, 0.75),
    "NN log-Euclidean": (NearestNeighbor(), 0.45, 0.70),
    "CDL": (CDL(), 0.95, 1),
    "CDL, chosen": (CDL(reg="auto"), 0.95, 1),
    "CDL-PLS": (CDL("pls", n_components=3), 0.90, 1),
    "logistic": (LogEuclideanClassifier(), 0.93, 1),
    "LDA": (LogEuclideanClassifier(method="lda"), 0.93, 1),
    "ridge": (LogEuclideanClassifier(method="ridge"), 0.93, 1),
    "SVM": (LogEuclideanClassifier(method="svm"), 0.93, 1),
    "mean": (MinimumDistanceToMean(), 0.90, 1),
    "RSR": (RSR(), 0.97, 1),
    "RSR as published": (RSR(beta=10, normalize="columns"), 0.50, 0.75),
    "SVM Stein": (SteinSVC(), 0.97, 1),
    "SPDML-Stein": (SPDML("stein", init="identity", **UNBALANCED), 0.97, 1),
    "SPDML-Stein from LDA": (SPDML("stein", init="lda", **UNBALANCED), 0.97, 1),
    "SPDML-AIM": (SPDML("affine_invariant", init="identity", **UNBALANCED), 0.97, 1),
    "RSR-SPDML": (
        make_pipeline(SPDML("stein", init="identity", **UNBALANCED), RSR()),
        0.97,
        1,
    ),
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2))])
@pytest.mark.parametrize("name", BANDS)
def test_accuracy_on_toy_set_is_in_expected_range(name, seed):
    model, low, high = BANDS[name]
    (X, y), (X_test, y_test) = halves(seed)
    model = clone(model).fit(X, y)
    assert low <= model.score(X_test, y_test) <= high
    if isinstance(model, SPDML):
        assert (np.diff(model.costs_) <= 0).all()
        assert model.costs_[-1] < model.costs_[0]


@pytest.mark.parametrize("seed", range(3))
def test_metric_learning_improves_accuracy_on_toy_set(seed):
    (X, y), (X_test, y_test) = halves(seed)
    plain = NearestNeighbor().fit(X, y).score(X_test, y_test)
    with pytest.warns(ConvergenceWarning, match="8 sweeps"):
        model = LEML(slack=10, spread=1, n_pairs=400, max_sweeps=8).fit(X, y)
    assert model.score(X_test, y_test) >= plain + 0.05


def problem(n=30, d=4, seed=0, labels=("a", "b", "c")):
    X = random_spd(n, d, seed=seed).numpy()
    y = np.array(labels)[np.arange(n) % len(labels)]
    for k, label in enumerate(labels):
        X[y == label, k] *= 3
        X[y == label, :, k] *= 3
    return X, y


METHODS = [
    NearestNeighbor("stein", k=3),
    MinimumDistanceToMean("affine_invariant"),
    CDL(),
    CDL("pls"),
    LEML(n_pairs=60),
    SPDML("stein", 2, tol=0.1),
    SPDML("affine_invariant", 2, tol=0.1),
    RSR(),
    SteinSVC(),
    LogEuclideanClassifier(method="svm"),
]
every_method = pytest.mark.parametrize("model", METHODS, ids=str)


@every_method
def test_follows_sklearn_conventions(model):
    X, y = problem()
    model = clone(model)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert model.fit(X, y) is model
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.score(X, y) > 0.8
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), model.predict(X))
    order = np.random.default_rng(0).permutation(len(X))
    np.testing.assert_array_equal(model.predict(X[order]), model.predict(X)[order])
    if hasattr(model, "decision_function"):
        scores = model.decision_function(X)
        np.testing.assert_array_equal(model.classes_[scores.argmax(1)], model.predict(X))
        two = clone(model).fit(X[y != "c"], y[y != "c"])
        scores = two.decision_function(X)
        assert scores.shape == (30,)
        np.testing.assert_array_equal(two.classes_[(scores > 0).astype(int)], two.predict(X))
    if hasattr(model, "transform"):
        assert len(model.transform(X[:5])) == 5


@every_method
@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (lambda X, y: (X[0], y), ValueError, r"\(n_matrices, n, n\)"),
        (lambda X, y: (X[:0], y[:0]), ValueError, "at least one"),
        (lambda X, y: (X[:, :2], y), ValueError, "shape"),
        (lambda X, y: (-X, y), ValueError, r"X\[0\] is not positive definite"),
        (lambda X, y: (X.astype(str), y), TypeError, "numbers, got dtype"),
        (lambda X, y: (X, y[:5]), ValueError, "one label for each of 30"),
        (lambda X, y: (X, ["a"] * 30), ValueError, "two classes"),
    ],
)
def test_invalid_input_raises_message(model, change, kind, message):
    X, y = problem()
    with pytest.raises(kind, match=message):
        clone(model).fit(*change(X, y))
    model = clone(model).fit(X, y)
    with pytest.raises(ValueError, match=r"4, 4"):
        model.predict(random_spd(2, 3).numpy())


def test_grid_search():
    X, y = problem()
    search = GridSearchCV(CDL(), {"reg": [1e-2, 1.0], "discriminant": ["lda", "pls"]}, cv=3)
    assert search.fit(X, y).best_score_ > 0.8
    pipeline = make_pipeline(SPDML("stein", 3, tol=0.1), RSR())
    search = GridSearchCV(pipeline, {"spdml__n_components": [2, 3]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.5


@pytest.mark.parametrize("name", METRICS)
def test_pairwise_distances(name, monkeypatch):
    X, Y = random_spd(7, 5), random_spd(4, 5, seed=1)
    metric = METRICS[name]
    expected = metric.distance(X[:, None], Y[None]) ** 2
    torch.testing.assert_close(metric.pairwise(X, Y), expected)
    seen = []
    monkeypatch.setattr("spdnet.manifolds.pairs._MAX_BYTES", {"cpu": 3 * 8 * 25})  # three at a time
    D = metric.pairwise(X, progress=lambda *now: seen.append(now))
    torch.testing.assert_close(D, metric.distance(X[:, None], X[None]) ** 2)
    assert torch.equal(D, D.mT)
    assert (D.diagonal() == 0).all()
    assert isinstance(metric, FlatMetric) or seen[-1] == (7, 7)
    A = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    if metric.has("sum_over_pairs"):  # invariant under every congruence
        moved = metric.pairwise(A @ X @ A.mT, A @ Y @ A.mT, check=False)
        torch.testing.assert_close(moved, expected, rtol=1e-8, atol=1e-10)


def test_stein_divergence_of_large_matrices_is_finite():
    X = 1e-3 * torch.eye(400, dtype=torch.float64).expand(2, 400, 400)
    Y = torch.stack([X[0], 2 * X[0]])
    D = stein.pairwise(X[:1], Y)
    torch.testing.assert_close(D[0, 1].item(), 400 * (np.log(1.5) - np.log(2) / 2))


def test_neighbors_vote_with_ties_broken_by_nearest():
    scale = np.array([1.0, 1.1, 2.0, 2.1, 2.2])
    X, y = scale[:, None, None] * np.eye(2), np.array(["x", "y", "y", "z", "z"])
    assert NearestNeighbor(k=1).fit(X, y).predict(1.02 * np.eye(2)[None]) == ["x"]
    assert NearestNeighbor(k=3).fit(X, y).predict(1.02 * np.eye(2)[None]) == ["y"]
    assert NearestNeighbor(k=4).fit(X, y).predict(2.12 * np.eye(2)[None]) == ["z"]
    few = NearestNeighbor(max_train=3).fit(X, y)
    assert sorted(set(few.codes_)) == [0, 1, 2]
    assert len(few.codes_) == 3


def log_rows(X):
    return vech(logm(torch.from_numpy(X))).numpy()


@pytest.mark.parametrize("n", [15, 40])  # fewer and more matrices than entries
def test_cdl_is_kernel_discriminant_analysis(n):
    X, y = problem(n)
    F, codes = log_rows(X), np.unique(y, return_inverse=True)[1]
    K = F @ F.T
    J = np.eye(n) - 1 / n
    Kc = J @ K @ J
    means = np.stack([Kc[codes == c].mean(0) for c in range(3)])
    B = sum((codes == c).sum() * np.outer(means[c], means[c]) for c in range(3))
    s, alpha = scipy.linalg.eigh(B, Kc @ Kc + 0.01 * np.eye(n))
    s, alpha = s[::-1][:2], alpha[:, ::-1][:, :2]
    alpha /= np.sqrt(np.einsum("nk,nm,mk->k", alpha, K, alpha))
    model = CDL().fit(X, y)
    np.testing.assert_allclose(model.eigenvalues_, s, atol=1e-9)
    z, ours = K @ alpha, model.transform(X)
    np.testing.assert_allclose(alpha.sum(0), 0, atol=1e-9)
    np.testing.assert_allclose(np.abs(ours), np.abs(z), atol=1e-7)


def test_cdl_without_regularization_is_linear_discriminant_analysis():
    X, y = problem(40)
    F, codes = log_rows(X), np.unique(y, return_inverse=True)[1]
    F = F - F.mean(0)
    total = F.T @ F
    between = sum(
        (codes == c).sum() * np.outer(F[codes == c].mean(0), F[codes == c].mean(0))
        for c in range(3)
    )
    expected = scipy.linalg.eigh(between, total, eigvals_only=True)[::-1][:2]
    np.testing.assert_allclose(CDL(reg=1e-12).fit(X, y).eigenvalues_, expected, atol=1e-8)


def test_cdl_pls_equals_sklearn():
    X, y = problem(40)
    codes = np.unique(y, return_inverse=True)[1]
    converged = PLSRegression(2, scale=False, tol=1e-28, max_iter=5000)
    expected = converged.fit(log_rows(X), np.eye(3)[codes])
    model = CDL("pls").fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), expected.predict(log_rows(X)))
    np.testing.assert_allclose(model.transform(X), expected.transform(log_rows(X)), atol=1e-10)


def test_cdl_pls_is_the_limit_of_the_power_iterations():
    """On digits, the default tolerance of the iterations stops 1e-3 away from the limit."""
    X, y = load_digits_spd()
    X, y = X[:300], y[:300]
    limit = PLSRegression(9, scale=False, tol=1e-28, max_iter=5000)
    expected = limit.fit(log_rows(X), np.eye(10)[y]).predict(log_rows(X))
    np.testing.assert_allclose(CDL("pls").fit(X, y).decision_function(X), expected, atol=1e-9)


def test_cdl_pls_stops_at_zero_residual():
    X, _ = problem(40)
    twice = np.concatenate([X[:3], X[:3]])  # two directions at most
    model = CDL("pls", n_components=5).fit(twice, np.tile(["a", "b", "c"], 2))
    assert model.transform(twice).shape == (6, 2)
    np.testing.assert_allclose(model.decision_function(twice[:3]), np.eye(3), atol=1e-8)


def test_similarity_is_larger_within_a_class():
    X, y = problem(30)
    same = X[y == "a"]
    for model in (CDL(), LEML(n_pairs=60), SPDML("affine_invariant", 2, tol=0.1)):
        model.fit(X, y)
        alike = model.similarity(same[:5], same[5:9])
        other = model.similarity(same[:5], X[y == "b"][:5])
        assert alike.shape == (5, 4)
        assert alike.mean() > other.mean()
        np.testing.assert_allclose(np.diagonal(model.similarity(X, X)), 0, atol=1e-6)


def test_rank_one_projection_equals_closed_form():
    rng = np.random.default_rng(0)
    for _ in range(20):
        p, xi, eta = rng.uniform(0.1, 5, 3)
        s = solve_step(np.array([p]), xi, eta)
        assert s == pytest.approx(eta / (eta + 1) * (1 / p - 1 / xi), abs=1e-10)


def test_projection_on_one_constraint_is_optimal():
    """Compare with nearby feasible points."""
    rng = np.random.default_rng(1)
    A = rng.normal(size=(3, 3))
    M, xi0, eta = (A + A.T) @ (A + A.T), 1.0, 0.7
    m, V = np.linalg.eigh(M)
    s = solve_step(m, xi0, eta)
    Q, xi = (V / (1 - s * m)) @ V.T, 1 / (1 / xi0 + s / eta)
    assert np.trace(Q @ M) == pytest.approx(xi)

    def cost(Q, xi):
        _, logdet = np.linalg.slogdet(Q)
        return np.trace(Q) - logdet - 3 + eta * (xi / xi0 - np.log(xi / xi0) - 1)

    best = cost(Q, xi)
    for _ in range(500):
        E = 0.05 * rng.normal(size=(3, 3))
        other = Q + E + E.T
        if np.linalg.eigvalsh(other).min() > 0:
            assert cost(other, np.trace(other @ M)) >= best - 1e-12


def test_leml_distance_equals_learned_matrix():
    X, y = problem(30)
    model = LEML(n_pairs=60, n_components=3).fit(X, y)
    T = logm(torch.from_numpy(X)).numpy()
    A = T[0] - T[1]
    expected = np.sqrt(np.trace(model.Q_ @ A @ A))
    assert -model.similarity(X[:1], X[1:2])[0, 0] == pytest.approx(expected)
    assert np.linalg.eigvalsh(model.Q_).min() > 0
    assert model.transform(X).shape == (30, 3, 3)
    full = LEML(n_pairs=60).fit(X, y)
    s, V = np.linalg.eigh(full.Q_)
    W = V * s**0.25
    np.testing.assert_allclose(W @ W.T @ W @ W.T, full.Q_, atol=1e-10)
    np.testing.assert_allclose(
        np.linalg.eigvalsh(logm(torch.from_numpy(full.transform(X[:1]))).numpy()),
        np.linalg.eigvalsh(W.T @ T[:1] @ W),
        atol=1e-8,
    )
    twice = np.concatenate([X, X])  # copies say nothing, and do no harm
    assert LEML(n_pairs=60).fit(twice, np.concatenate([y, y])).score(X, y) > 0.9


def test_sweeps_stop_when_multipliers_converge():
    sign = np.array([1, -1])
    steps = []

    def step(c, xi, multiplier):
        steps.append(c)
        return xi, 1.0

    assert cyclic_projections(LEML(max_sweeps=9), step, np.ones(2), sign) == 2
    assert steps == [0, 1, 0, 1]


@pytest.mark.parametrize("metric", ["affine_invariant", "stein"])
def test_spdml_gradients(metric):
    X = random_spd(5, 4)
    pairs = torch.tensor([[0, 1], [1, 2], [3, 4]])
    weights = torch.tensor([1.0, -0.5, 2.0], dtype=torch.float64)
    U = torch.linalg.qr(torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).double())[0]
    value, G = cost_and_gradient(X, U, pairs, weights, METRICS[metric])
    assert (U.mT @ G).abs().max() < 1e-10  # another basis of the columns changes nothing
    A = [U.mT @ x @ U for x in X]
    squares = METRICS[metric].squared_distance(
        torch.stack([A[0], A[1], A[3]]), torch.stack([A[1], A[2], A[4]])
    )
    assert value == pytest.approx((weights * squares).sum().item())
    expected = torch.zeros_like(U)
    for (i, j), w in zip(pairs.tolist(), weights, strict=True):
        if metric == "stein":
            middle = torch.linalg.inv((A[i] + A[j]) / 2)
            expected = expected + w * (
                (X[i] + X[j]) @ U @ middle
                - X[i] @ U @ torch.linalg.inv(A[i])
                - X[j] @ U @ torch.linalg.inv(A[j])
            )
        else:
            ratio = A[i] @ torch.linalg.inv(A[j])
            log = torch.from_numpy(scipy.linalg.logm(ratio.numpy()))
            difference = X[i] @ U @ torch.linalg.inv(A[i]) - X[j] @ U @ torch.linalg.inv(A[j])
            expected = expected + 4 * w * difference @ log
    torch.testing.assert_close(G, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("balance", [True, False])
def test_spdml_affinity_equals_paper(balance):
    """The affinity is 1 if at least one matrix is a neighbor of the other."""
    X, y = problem(12)
    model = SPDML("stein", 4, k_w=2, k_b=1, init="identity", balance=balance).fit(X, y)
    D = stein.pairwise(torch.from_numpy(X)).numpy()
    G = np.zeros((2, 12, 12))
    for i in range(12):
        for kind, k in ((0, 2), (1, 1)):
            candidates = [j for j in range(12) if j != i and (y[i] != y[j]) == bool(kind)]
            for j in sorted(candidates, key=lambda j, i=i: D[i, j])[:k]:
                G[kind, i, j] = G[kind, j, i] = 1
    if balance:
        G = G / G.sum((1, 2), keepdims=True)
    assert model.costs_[0] == pytest.approx(((G[0] - G[1]) * D).sum())  # the whole space


@pytest.mark.parametrize("metric", ["stein", "affine_invariant"])
def test_spdml_converges_or_warns(metric):
    X, y = problem(40, 6)
    limit = SPDML(metric, 3, tol=1e-7).fit(X, y).costs_
    usual = SPDML(metric, 3).fit(X, y)
    assert usual.costs_[-1] - limit[-1] < 1e-4 * (limit[0] - limit[-1])
    with pytest.warns(ConvergenceWarning, match="not converged to tol=0.001 after 2 iterations"):
        short = SPDML(metric, 3, max_iter=2).fit(X, y)
    assert short.n_iter_ == 2
    assert short.costs_[-1] > usual.costs_[-1]


@pytest.mark.parametrize("init", ["pca", "identity", "lda", "random"])
@pytest.mark.parametrize("balance", [True, False])
def test_spdml_initialization(init, balance):
    X, y = problem(30)
    model = SPDML("stein", 2, init=init, balance=balance, tol=0.1).fit(X, y)
    np.testing.assert_allclose(model.U_.T @ model.U_, np.eye(2), atol=1e-10)
    assert (np.diff(model.costs_) <= 0).all()
    np.testing.assert_allclose(model.transform(X), model.U_.T @ X @ model.U_, atol=1e-10)
    assert SPDML("stein").fit(X, y).U_.shape == (4, 2)
    with pytest.raises(ValueError, match="n_components <= 4"):
        SPDML("stein", 5).fit(X, y)


def test_sparse_codes_satisfy_optimality_conditions():
    X, y = problem(30)
    model = RSR(alpha=0.02, max_iter=100_000).fit(X, y)
    K = np.exp(-model.beta_ * stein.pairwise(torch.from_numpy(X)).numpy())
    A = model.dictionary_
    np.testing.assert_allclose(A.T @ A, K, atol=1e-8)
    new = random_spd(4, 4, seed=9).numpy()
    k = model._kernel(torch.from_numpy(new))
    codes = model._sparse_codes(model._targets(torch.from_numpy(new)))
    gradient = codes @ K - k
    at_zero = codes == 0
    assert at_zero.any()
    assert (np.abs(gradient[at_zero]) <= 0.02 + 1e-4).all()
    np.testing.assert_allclose(gradient[~at_zero], -0.02 * np.sign(codes[~at_zero]), atol=1e-4)


def test_zero_codes_warn():
    X, y = problem(30)
    with pytest.warns(RuntimeWarning, match="codes are zero"):
        RSR(beta=1e4).fit(X, y).predict(random_spd(4, 4, seed=9).numpy())
    assert RSR().fit(X, y).beta_ == pytest.approx(
        1 / np.median(stein.pairwise(torch.from_numpy(X))[np.triu_indices(30, 1)]),
        rel=0.05,
    )


def sets(n=40, d=4, seed=0):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return [rng.normal(size=(20 + i % 5, d)) * (1 + label) for i, label in enumerate(y)], y


@pytest.mark.parametrize("model", [HERML(), ExpressionletClassifier(2)], ids=str)
def test_set_methods(model):
    X, y = sets()
    new, truth = sets(seed=1)
    model = clone(model)
    with pytest.raises(NotFittedError):
        model.predict(X)
    assert model.fit(X, y).score(new, truth) > 0.9
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(model)).predict(new), model.predict(new)
    )
    with pytest.raises(ValueError, match=r"frames, 4.*X\[1\]"):
        model.predict([X[0], X[1][:, :3]])
    with pytest.raises(ValueError, match=r"finite.*X\[0\]"):
        model.predict([np.full((5, 4), np.nan)])
    with pytest.raises(ValueError, match="one label"):
        clone(model).fit(X, y[:3])
    with pytest.raises(ValueError, match="two classes"):
        clone(model).fit(X, np.zeros(40))
    with pytest.raises(ValueError, match="at least one set"):
        clone(model).fit([], [])


def test_herml_distances_of_new_sets():
    X, y = sets(12)
    model = HERML().fit(X, y)
    D = model.distances(X)
    np.testing.assert_allclose(np.diagonal(D), 0, atol=1e-5)
    expected = -np.sqrt(np.maximum(D[:3, 3:7], 0))
    np.testing.assert_allclose(model.similarity(X[:3], X[3:7]), expected, atol=1e-6)
    learned = [K.copy() for K in model.kernels_]
    learned = model._learn_kernels(learned)
    total = sum(np.add.outer(np.diagonal(K), np.diagonal(K)) - 2 * K for K in learned)
    np.testing.assert_allclose(D, total, atol=1e-5)
    with pytest.raises(ValueError, match="differ"):
        HERML().fit([np.ones((3, 4)), *X[1:]], y)


def test_mean_features():
    X, _ = sets(6)
    model = MeanFeatureVerifier().fit(X)
    assert model.similarity(X, X[:4]).shape == (6, 4)
    np.testing.assert_allclose(np.diagonal(model.similarity(X, X)), 1)
    scaled = [values * np.arange(1, len(values) + 1)[:, None] for values in X]
    np.testing.assert_allclose(np.diagonal(model.similarity(X, scaled)), 1)
    opposite = [-values for values in X]
    np.testing.assert_allclose(np.diagonal(model.similarity(X, opposite)), -1)


def test_progress_is_shown_for_long_work(capsys, monkeypatch):
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr("spdnet.baselines.estimator.time.monotonic", lambda: next(clock))
    X, y = problem(30)
    NearestNeighbor("stein", verbose=True).fit(X, y).predict(X)
    assert "distances 30 of 30" in capsys.readouterr().err
    NearestNeighbor("stein").fit(X, y).predict(X)
    assert capsys.readouterr().err == ""


def test_default_settings_do_not_warn():
    X, y = problem(30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for model in METHODS:
            clone(model).fit(X, y).predict(X)


@pytest.mark.parametrize("metric", ["log_euclidean", "affine_invariant"])
def test_means_and_distances_equal_pyriemann(metric):
    """Compare with an independent implementation."""
    classification = pytest.importorskip("pyriemann.classification")
    X, y = problem(40, seed=3)
    name = {"log_euclidean": "logeuclid", "affine_invariant": "riemann"}[metric]
    theirs = classification.MDM(metric=name).fit(X, y)
    ours = MinimumDistanceToMean(metric).fit(X, y)
    np.testing.assert_allclose(ours.means_, theirs.covmeans_, rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


def test_default_metric_equals_pyriemann():
    classification = pytest.importorskip("pyriemann.classification")
    X, y = problem(40, seed=3)
    new, _ = problem(40, seed=4)
    theirs = classification.MDM().fit(X, y)
    ours = MinimumDistanceToMean().fit(X, y)
    np.testing.assert_allclose(ours.means_, theirs.covmeans_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(ours.transform(new), theirs.transform(new), rtol=1e-6)
    np.testing.assert_allclose(ours.predict_proba(new), theirs.predict_proba(new), rtol=1e-6)
    np.testing.assert_array_equal(ours.predict(new), theirs.predict(new))


@pytest.mark.parametrize("method", ["logistic", "ridge", "svm"])
def test_more_features_than_matrices(method):
    X, y = problem(30, 9)
    new, _ = problem(30, 9, seed=5)
    model = LogEuclideanClassifier(2.0, method=method, gamma=0.5).fit(X, y)
    mean = log_rows(X).mean(0)
    scale = np.sqrt(((log_rows(X) - mean) ** 2).sum(1).mean())
    plain = {
        "logistic": LogisticRegression(C=2.0, tol=1e-8),
        "ridge": RidgeClassifier(0.5),
        "svm": SVC(C=2.0, gamma=0.5),
    }[method].fit((log_rows(X) - mean) / scale, y)
    rows = (log_rows(new) - mean) / scale
    np.testing.assert_array_equal(model.predict(new), plain.predict(rows))
    tol = 1e-3 if method == "logistic" else 1e-9
    np.testing.assert_allclose(
        model.decision_function(new), plain.decision_function(rows), atol=tol
    )
    assert hasattr(model, "predict_proba") == (method == "logistic")


def test_affine_invariant_distances_of_ill_conditioned_matrices():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(2, 6, 6)))[0]
    s = np.logspace(-4, 4, 6)
    X = torch.from_numpy((Q * s) @ Q.transpose(0, 2, 1))
    X = (X + X.mT) / 2
    D = affine_invariant.pairwise(X)
    other = affine_invariant.pairwise(X.flip(0))
    torch.testing.assert_close(D[0, 1], other[0, 1], rtol=1e-6, atol=0)
    exact = affine_invariant.pairwise(torch.linalg.inv(X[:1]), torch.linalg.inv(X[1:]), check=False)
    torch.testing.assert_close(D[0, 1], exact[0, 0], rtol=1e-4, atol=0)


def test_indefinite_kernel_is_projected():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(60, 3, 3)))[0]
    s = 10 ** rng.uniform(-1.5, 1.5, size=(60, 3))
    X = (Q * s[:, None]) @ Q.transpose(0, 2, 1)
    y = (s[:, 0] > 1).astype(int)
    model = SteinSVC(beta=0.1).fit(X, y)
    assert model.projection_ is not None
    P = model.projection_
    np.testing.assert_allclose(P @ P, P, atol=1e-10)
    K = model._projected_kernel(torch.from_numpy(X))
    assert np.linalg.eigvalsh((K + K.T) / 2).min() > -1e-9
    assert SteinSVC().fit(*problem()).projection_ is None


def test_max_train_limits_training_matrices():
    codes = np.repeat(np.arange(10), 4)
    kept = subsample(codes, 15)
    assert len(kept) == 15
    assert set(codes[kept]) == set(range(10))
    assert len(subsample(codes, 3)) == 10  # each class at least once
    assert len(subsample(codes, None)) == 40


def test_identical_matrices_are_refused_or_warned_about():
    X = np.repeat(random_spd(1, 4).numpy(), 12, 0)
    y = np.arange(12) % 2
    for model in (CDL(), CDL("pls")):
        with pytest.raises(ValueError, match="all are equal"):
            model.fit(X, y)
    single = problem(3)  # one of each class
    assert SPDML("stein", 2, init="lda", tol=0.1).fit(*single).U_.shape == (4, 2)
    X, y = problem(30)
    with pytest.warns(RuntimeWarning, match="codes are zero"):
        RSR(beta=1e5, normalize="columns").fit(X, y).predict(random_spd(4, 4, seed=9).numpy())


def test_herml_without_means_and_with_copies():
    X, y = sets(20)
    centered = [np.round(8 * values) for values in X]
    centered = [np.concatenate([values, -values]) for values in centered]  # all means are zero
    model = HERML().fit(centered, y)
    assert np.isinf(model.widths_[0])
    assert np.isfinite(model.distances(centered)).all()
    assert model.score(centered, y) > 0.9
    copies = X + [values * (1 + 1e-8) for values in X]
    assert HERML().fit(copies, np.concatenate([y, y])).score(X, y) > 0.9


def test_expressionlets_of_many_features():
    rng = np.random.default_rng(0)
    y = np.arange(20) % 2
    X = [rng.normal(size=(30, 12)) * (1 + label) for label in y]
    model = ExpressionletClassifier(4).fit(X, y)
    assert model.transform(X).shape == (20, 4 * 78)
    assert model.rotation_.shape == (4 * 78, 20)
    assert model.score(X, y) > 0.9


def test_deep_o2p_channels():
    X, y = np.random.default_rng(0).normal(size=(20, 3, 8, 8)), np.arange(20) % 2
    model = DeepO2PClassifier(epochs=1, batch_size=10, device="cpu").fit(X, y)
    assert model.decision_function(X).shape == (20,)
    with pytest.raises(ValueError, match="3 channels"):
        model.predict(X[:, 0])
    with pytest.raises(ValueError, match="images"):
        model.predict(X[0, 0])
