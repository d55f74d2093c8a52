"""Registration of metrics and selection by name."""

import copy
import pickle

import pytest
import torch
from sklearn.base import clone

from spdnet import SPDNet
from spdnet.baselines import SPDML, MinimumDistanceToMean, NearestNeighbor
from spdnet.linalg import cholesky, expm, logm
from spdnet.manifolds import (
    METRICS,
    FlatMetric,
    Metric,
    MetricNames,
    bures_wasserstein,
    get_metric,
    log_euclidean,
    register_metric,
    stein,
)
from spdnet.manifolds.power_euclidean import PowerEuclidean
from spdnet.nn import SPDMLR, Center, MinimumDistance, SPDBatchNorm, SPDPool, SPDResidual
from spdnet.runs import Settings
from spdnet.training import RECIPES
from tests.cases import random_spd


class DoubledLog(FlatMetric):
    """Metric with twice the log-Euclidean distance."""

    name = "doubled_log"

    def coordinates(self, X, *, check=True, who=None, name="X"):
        if check:
            cholesky(X.detach(), who=who or "doubled_log.coordinates", name=name)
        return 2 * logm(X, check=False)

    def from_coordinates(self, C):
        return expm(C / 2, check=False)


class Trace(Metric):
    """Metric with the required methods only."""

    name = "trace"

    def squared_distance(self, X, Y, *, check=True):
        return (X - Y).diagonal(dim1=-2, dim2=-1).sum(-1).square()

    def distance(self, X, Y, *, check=True):
        return self.squared_distance(X, Y).sqrt()

    def mean(self, X, weights=None, *, check=True):
        return X.mean(-3)


@pytest.fixture
def doubled():
    metric = register_metric(DoubledLog())
    yield metric
    del METRICS[metric.name]


def test_registered_metric_is_found_by_name(doubled):
    X, Y = random_spd(8, 3), random_spd(8, 3, seed=1)
    y = torch.arange(8) % 2
    torch.testing.assert_close(doubled.distance(X, Y), 2 * log_euclidean.distance(X, Y))
    torch.testing.assert_close(doubled.pairwise(X, Y), 4 * log_euclidean.pairwise(X, Y))
    for layer in (Center, lambda n, m, **k: SPDPool("channels", metric=m)):
        assert layer(3, "doubled_log", dtype=torch.float64)(X).isfinite().all()
    by_name = MinimumDistance(3, 2, "doubled_log", dtype=torch.float64).fit(X, y)
    like = MinimumDistance(3, 2, "log_euclidean", dtype=torch.float64).fit(X, y)
    torch.testing.assert_close(by_name(X), 4 * like(X))
    for name in ("doubled_log", "log_euclidean"):  # the means of both are the same
        layer = SPDBatchNorm(3, name, variance=False, dtype=torch.float64)
        torch.testing.assert_close(layer(X), SPDBatchNorm(3, variance=False).double()(X))
    net = SPDNet((3, 3), 2, norm="doubled_log", head="doubled_log", center="doubled_log")
    assert net(X.float()).shape == (8, 2)
    for model in (NearestNeighbor, MinimumDistanceToMean):
        predicted = model("doubled_log").fit(X, y).predict(Y)
        assert (predicted == model("log_euclidean").fit(X, y).predict(Y)).all()
    assert RECIPES["paper"].changed(norm="doubled_log", head="doubled_log").norm == "doubled_log"
    assert Settings(data="digits", center="doubled_log").center == "doubled_log"


REFUSED = {
    "layer": lambda: SPDMLR(3, 2, "doubled"),
    "norm": lambda: SPDNet((3, 2), 2, norm="doubled"),
    "head": lambda: SPDNet((3, 2), 2, head="doubled"),
    "baseline": lambda: NearestNeighbor("doubled").fit(random_spd(4, 3), [0, 0, 1, 1]),
    "recipe": lambda: RECIPES["paper"].changed(center="doubled"),
}


@pytest.mark.parametrize("caller", REFUSED)
def test_registered_metric_is_listed_in_errors(caller, doubled):
    with pytest.raises(ValueError, match=r"expected .*'doubled_log'.*did you mean 'doubled_log'"):
        REFUSED[caller]()


def test_metric_names_depend_on_available_methods():
    assert list(MetricNames()) == list(METRICS)
    assert set(MetricNames("normalization")) == {
        "log_euclidean",
        "affine_invariant",
        "log_cholesky",
    }
    assert set(MetricNames("sum_over_pairs")) == {"affine_invariant", "stein"}
    assert set(MetricNames("logits")) == set(METRICS) - {"stein"}
    with pytest.raises(ValueError, match=r"SPDML: .*'affine_invariant', 'stein', got"):
        SPDML("log_euclidean").fit(random_spd(4, 3), [0, 0, 1, 1])
    with pytest.raises(ValueError, match=r"SPDResidual: .*'bures_wasserstein', got 'stein'"):
        SPDResidual(torch.nn.Identity(), "geodesic", stein)
    with pytest.raises(ValueError, match=r"SPDNet: .*norm .*'brooks', .*got 'power_euclidean'"):
        SPDNet((3, 2), 2, norm="power_euclidean")


@pytest.mark.parametrize(
    ("metric", "verb"), [(stein, "geodesic"), (bures_wasserstein, "transport"), (stein, "logits")]
)
def test_missing_method_error_lists_metrics_that_have_it(metric, verb):
    X = random_spd(3)
    arguments = {
        "geodesic": lambda: metric.geodesic(X, X, 0.5),
        "transport": lambda: metric.transport(X, X, X),
        "logits": lambda: metric.logits(X, X, X, power=1.0, alpha=1.0, beta=0.0),
    }
    assert not metric.has(verb)
    with pytest.raises(NotImplementedError, match=f"{metric.name}.{verb}: .*'log_euclidean'"):
        arguments[verb]()


def test_metric_with_distance_and_mean_only():
    X, Y = random_spd(4, 3), random_spd(5, 3, seed=1)
    D = Trace().pairwise(X, Y)
    torch.testing.assert_close(D, Trace().squared_distance(X[:, None], Y))
    model = NearestNeighbor(Trace()).fit(X, [0, 0, 1, 1])
    assert list(model.predict(X)) == [0, 0, 1, 1]
    with pytest.raises(NotImplementedError, match=r"trace\.exp"):
        Trace().exp(X, X)


def test_metric_objects_are_accepted_instead_of_names():
    X = random_spd(6, 3)
    root = PowerEuclidean(0.5)
    expected = 2 * (torch.linalg.eigvalsh(X[0]).sqrt() - 1).norm()
    torch.testing.assert_close(root.distance(X[0], torch.eye(3, dtype=torch.float64)), expected)
    pool = SPDPool("channels", metric=root)
    torch.testing.assert_close(pool(X), root.mean(X))
    layer = MinimumDistance(3, 2, root, dtype=torch.float64)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert twin.metric.power == 0.5
        assert torch.equal(twin(X), layer(X))
    model = clone(MinimumDistanceToMean(root)).fit(X, [0, 0, 0, 1, 1, 1])
    assert model.metric_.power == 0.5
    assert pickle.loads(pickle.dumps(model)).predict(X).shape == (6,)


def test_register_refuses_non_metrics_and_existing_names():
    with pytest.raises(TypeError, match="register_metric: expected an instance"):
        register_metric(DoubledLog)
    with pytest.raises(ValueError, match="'power_euclidean', which is the name of PowerEuclidean"):
        register_metric(PowerEuclidean(0.5))
    with pytest.raises(ValueError, match=r"get_metric: .*got 'euclid'"):
        get_metric("euclid")
    with pytest.raises(ValueError, match="PowerEuclidean: expected power != 0"):
        PowerEuclidean(0.0)


def test_pairwise_refuses_invalid_matrices():
    X = random_spd(2, 3)
    for metric in METRICS.values():
        with pytest.raises(ValueError, match=f"{metric.name}.pairwise: .*positive definite"):
            metric.pairwise(X, -X)
        with pytest.raises(ValueError, match=f"{metric.name}.pairwise"):
            metric.pairwise(X, random_spd(2, 4))
