import copy
import tempfile

import pytest
import torch
from torch import multiprocessing

from spdnet.linalg import congruence, expm, invsqrtm, powm, sqrtm, symmetrize
from spdnet.manifolds import MetricNames, affine_invariant, get_metric
from spdnet.nn import SPDDomainBatchNorm
from spdnet.testing import assert_spd, check_layer
from tests.cases import every_dtype, random_spd, with_spectrum

METRICS = tuple(MetricNames("normalization"))
every_metric = pytest.mark.parametrize("metric", METRICS)
X = torch.cat([random_spd(6, 3), 9 * random_spd(6, 3, seed=1)])
DOMAIN = torch.tensor([0] * 6 + [2] * 6)


def make(metric="affine_invariant", **settings):
    settings = {"n_domains": 3, "eps": 0.0, "dtype": torch.float64, **settings}
    return SPDDomainBatchNorm(3, metric=metric, **settings)


def statistics(metric, X):
    manifold = get_metric(metric)
    M = manifold.mean(X)
    return M, (manifold.distance(M, X) ** 2).mean()


@every_metric
def test_each_domain_has_mean_bias_and_dispersion_scale(metric):
    layer = make(metric, bias=True)
    with torch.no_grad():
        layer.scale.fill_(0.7)
        layer.bias.copy_(torch.tensor([[0.1, 0.0, 0.0], [0.2, -0.3, 0.0], [0.4, 0.0, 0.2]]))
    Y = layer(X, DOMAIN).detach()
    assert_spd(Y)
    bias = (
        layer.metric.from_coordinates(layer.metric.project_coordinates(layer.bias.detach()))
        if (metric != "affine_invariant")
        else expm(symmetrize(layer.bias.detach()))
    )
    for d in (0, 2):
        M, variance = statistics(metric, Y[d == DOMAIN])
        torch.testing.assert_close(M, bias, rtol=0, atol=1e-6)
        torch.testing.assert_close(variance.item(), 0.49, rtol=0, atol=1e-6)
    assert layer.num_batches_tracked.tolist() == [1, 0, 1]


@every_metric
@pytest.mark.parametrize("variance", [True, False])
def test_evaluation_after_one_batch_equals_training_output(metric, variance):
    layer = make(metric, variance=variance)
    assert (layer.scale is None) is (not variance)
    expected = layer(X, DOMAIN).detach()
    torch.testing.assert_close(layer.eval()(X, DOMAIN).detach(), expected)


def test_running_mean_moves_along_geodesic():
    layer = make(momentum=0.25, eval_momentum=0.5)
    first, second = random_spd(5, 3, seed=3), 4 * random_spd(5, 3, seed=4)
    for batch in (first, second):
        layer(batch, torch.ones(5, dtype=torch.long))
    means = [affine_invariant.mean(batch) for batch in (first, second)]
    for eta, M, v in (
        (0.25, layer.running_mean[1], layer.running_var[1]),
        (0.5, layer.eval_mean[1], layer.eval_var[1]),
    ):
        expected = affine_invariant.geodesic(*means, eta)
        torch.testing.assert_close(M, expected)
        before = (affine_invariant.distance(means[0], first) ** 2).mean()
        batch = (affine_invariant.distance(expected, second) ** 2).mean()
        torch.testing.assert_close(v, (1 - eta) * before + eta * batch)
    torch.testing.assert_close(layer.running_mean[0], torch.eye(3, dtype=torch.float64))


def test_training_uses_the_running_statistics():
    layer = make(momentum=0.25, variance=False)
    layer(X[:6], DOMAIN[:6])
    Y = layer(X[6:], DOMAIN[:6])
    expected = congruence(X[6:], invsqrtm(layer.running_mean[0]))
    torch.testing.assert_close(Y, expected)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("batches_before", [0, 1])
def test_derivatives_include_batch_statistics(metric, batches_before):
    layer = make(metric, eps=1e-3, momentum=0.4)
    for _ in range(batches_before):
        layer(2 * X, DOMAIN)

    def forward(A, scale):
        fresh = copy.deepcopy(layer)  # the statistics start from the same place
        del fresh.scale
        fresh.scale = scale
        return fresh(A @ A.mT, DOMAIN)

    A = torch.linalg.cholesky(X).requires_grad_()
    scale = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(forward, (A, scale), rtol=1e-4, fast_mode=True)


def test_one_karcher_step_equals_original_implementation():
    layer = make(karcher_steps=1, variance=False)
    M = X[:6].mean(0)
    logs = affine_invariant.log(M, X[:6]).mean(0)
    expected = affine_invariant.exp(M, logs)
    layer(X[:6], DOMAIN[:6])
    torch.testing.assert_close(layer.running_mean[0], expected)
    root = sqrtm(expected)
    assert_spd(root)


@every_metric
def test_evaluation_mode_satisfies_layer_properties(metric):
    layer = make(metric, n_domains=1, eps=1e-5)
    layer(X)
    check_layer(layer.eval(), X[:2])


@every_metric
def test_refit_unseen_domain_without_labels(metric):
    layer = make(metric)
    layer(X, DOMAIN)
    layer.eval()
    new = 100 * random_spd(7, 3, seed=5)
    ones = torch.ones(7, dtype=torch.long)
    with pytest.raises(ValueError, match="refit"):
        layer(new, ones)
    layer.refit(new, 1)
    M, variance = statistics(metric, layer(new, ones).detach())
    torch.testing.assert_close(M, torch.eye(3, dtype=torch.float64), rtol=0, atol=1e-6)
    torch.testing.assert_close(variance.item(), 1.0, rtol=0, atol=1e-6)


def test_add_domain():
    layer = make()
    layer(X, DOMAIN)
    before = layer.eval()(X, DOMAIN)
    number = layer.add_domain()
    assert number == 3
    assert layer.n_domains == 4
    torch.testing.assert_close(layer(X, DOMAIN), before)
    layer.refit(X, number)
    layer(X, torch.full((12,), number))
    other = make(n_domains=4)
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other.eval()(X, DOMAIN), before)
    plain = make(variance=False)
    assert plain.add_domain() == 3
    assert plain.running_var is None


@every_metric
def test_single_matrix_domain_uses_dispersion_of_other_domains(metric):
    layer = make(metric, n_domains=4, eps=1e-5)
    layer(X, DOMAIN)
    known = layer.eval_var[[0, 2]].mean()
    layer(9 * X[:1], torch.ones(1, dtype=torch.long))  # the first batch of it
    torch.testing.assert_close(layer.eval_var[1], known)
    torch.testing.assert_close(layer.running_var[1], known)
    layer.eval()
    with pytest.warns(RuntimeWarning, match="domain 3"):
        layer.refit(X[3:4], 3)
    assert layer.eval_var[3] > 0.1
    assert layer(X[:5], torch.full((5,), 3)).isfinite().all()
    alone = make(metric, n_domains=1)  # nothing is known of any
    assert alone(X[:1]).isfinite().all()
    assert alone.eval_var.item() == 1.0


@pytest.mark.parametrize("settings", [{}, {"karcher_steps": 1, "dispersion": "tangent"}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ill_conditioned_single_matrix_has_no_variance_of_its_own(settings, dtype):
    A = with_spectrum([1.0, 1e-2, 1e-4, 1e-6]).to(dtype)
    layer = SPDDomainBatchNorm(4, 2, dtype=dtype, **settings)
    layer(torch.stack([A, A, 4 * A]), torch.tensor([0, 1, 1]))
    assert layer.running_var[0] == layer.eval_var[0] == 1
    with pytest.warns(RuntimeWarning, match="several matrices of domain 0"):
        layer.refit(A[None], 0)
    assert layer.eval_var[0] == 1
    if not settings:
        layer.momentum = 1.0  # as in the first epoch of annealing
        layer(torch.stack([A, A, 4 * A]), torch.tensor([0, 1, 1]))
        assert layer.running_var[0] == 1


def test_training_continues_after_refit():
    layer, plain = make(momentum=0.1), make(momentum=0.1)
    ones = torch.ones(12, dtype=torch.long)
    layer.refit(X, 1)
    plain(X, ones)
    torch.testing.assert_close(layer.running_mean, plain.running_mean)
    torch.testing.assert_close(layer.running_var, plain.running_var)
    layer(X, ones)
    torch.testing.assert_close(layer.running_mean[1], affine_invariant.mean(X))


def test_half_precision_is_computed_in_float32():
    layer = SPDDomainBatchNorm(3, 1)
    assert layer(X.to(torch.bfloat16)).dtype == torch.float32
    layer.refit(X.to(torch.bfloat16), 0)


def test_momentum_decreases_from_one_to_final_value():
    layer = make(momentum=0.25)
    etas = []
    for epoch in range(1, 6):
        layer.anneal(epoch, 5)
        etas.append(layer.momentum)
    assert etas[0] == pytest.approx(1)
    assert etas[2] == pytest.approx(1 - 0.25**0.5 + 0.25)
    assert etas[-1] == pytest.approx(0.25)
    assert etas == sorted(etas, reverse=True)
    layer.anneal(1, 1)
    assert layer.momentum == pytest.approx(0.25)


SETTINGS = [
    {"metric": "log_euclidean"},
    {"metric": "log_cholesky", "power": 0.5, "start": "identity"},
    {},
    {"variance": False, "power": 0.5},
    {"karcher_steps": 1, "root": "cholesky"},
    {"karcher_steps": 1, "dispersion": "tangent", "start": "identity"},
    {"karcher_steps": 3, "dispersion": "tangent", "momentum": 1.0},
]
BATCHES = ([3, 0, 0, 2, 0, 3, 0, 2, 2, 0], [1, 2, 1, 2, 2, 1, 3, 1, 3, 2])  # old and new domains


def gradients(layer, X, domain):
    """Compute a loss whose gradients are those of separate batches, and the gradients."""
    X = X.clone().requires_grad_()
    Y = layer(X, domain)
    weight = torch.arange(1.0, 4.0).to(X.dtype)
    loss = (Y @ Y * weight).real.sum()
    return Y.detach(), *torch.autograd.grad(loss, [X, *layer.parameters()])


@every_dtype
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_domains_of_a_batch_equal_separate_batches(settings, dtype):
    together = make(n_domains=4, bias=True, dtype=dtype, **settings)
    alone = copy.deepcopy(together)
    for seed, batch in enumerate(BATCHES):
        X, domain = random_spd(10, 3, seed=seed, dtype=dtype), torch.tensor(batch)
        X = (1 + domain)[:, None, None] * X
        Y, dX, *expected = gradients(together, X, domain)
        sums = [torch.zeros_like(p) for p in expected]
        for d in domain.unique():
            part = domain == d
            y, dx, *own = gradients(alone, X[part], domain[part])
            torch.testing.assert_close(Y[part], y, rtol=1e-9, atol=1e-11)
            torch.testing.assert_close(dX[part], dx, rtol=1e-8, atol=1e-9)
            sums = [a + b for a, b in zip(sums, own, strict=True)]
        torch.testing.assert_close(sums, expected, rtol=1e-8, atol=1e-9)
        torch.testing.assert_close(dict(together.state_dict()), dict(alone.state_dict()))


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_equal_matrices_have_finite_gradients(settings):
    layer = make(n_domains=4, **{**settings, "eps": 1e-5})
    few = torch.cat([X[:1], X[:1], torch.eye(3).double()[None], X[2:6]])
    domain = torch.tensor([3, 3, 1, 0, 0, 0, 0])
    for _ in range(2):
        for found in gradients(layer, few, domain):
            assert found.isfinite().all()


@pytest.mark.parametrize(("single", "other"), [(0, 2), (2, 0)])
def test_first_variance_of_a_single_matrix_is_that_of_domains_before_its_batch(single, other):
    layer = make()
    layer(X[:4], torch.ones(4, dtype=torch.long))
    known = layer.running_var[1].clone()
    layer(X[4:9], torch.tensor([single] + [other] * 4))
    for var in (layer.running_var, layer.eval_var):
        torch.testing.assert_close(var[single], known)
        assert var[other] != known


def test_domains_in_one_batch_are_independent():
    layer = make()
    layer(X, DOMAIN)
    layer.eval()
    together = layer(X, DOMAIN)
    torch.testing.assert_close(together[6:], layer(X[6:], DOMAIN[6:]), rtol=0, atol=1e-13)
    channels = layer(X.reshape(6, 2, 3, 3), torch.tensor([0, 0, 0, 2, 2, 2]))
    torch.testing.assert_close(channels.reshape(12, 3, 3), together)
    torch.testing.assert_close(layer(X[7], DOMAIN[7]), together[7])


def test_empty_batch_single_matrix_and_extreme_input():
    layer = make()
    assert layer(X[:0], DOMAIN[:0]).shape == (0, 3, 3)
    assert layer(X[:1], DOMAIN[:1]).isfinite().all()
    assert SPDDomainBatchNorm(3, 1)(X.float()).dtype == torch.float32
    layer = make()
    layer(X, DOMAIN)
    layer.eval()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X, DOMAIN), layer(X, DOMAIN))
    layer.reset_parameters()
    assert layer.num_batches_tracked.tolist() == [0, 0, 0]
    torch.testing.assert_close(layer.eval_mean, torch.eye(3).double().expand(3, 3, 3))
    wide = torch.diag(torch.tensor([1e-6, 1.0, 1e2])).double().expand(4, 3, 3)
    assert make()(powm(wide, 1.0), torch.zeros(4, dtype=torch.long)).isfinite().all()


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (None, "domains"),
        (torch.tensor([0]), "12"),
        (torch.zeros(12), "integers"),
        (torch.full((12,), 3), "from 0 to 2"),
        (torch.full((12,), -1), "from 0 to 2"),
        ([0] * 12, "tensor"),
    ],
)
def test_invalid_domains_raise_message(domain, text):
    with pytest.raises(ValueError, match=text):
        make()(X, domain)


def test_invalid_input_raises_message():
    layer = make()
    with pytest.raises(ValueError, match="positive"):
        layer(-X, DOMAIN)
    with pytest.raises(ValueError, match="integers"):
        layer(X[0], DOMAIN[:1])
    with pytest.raises(ValueError, match="add_domain"):
        layer.refit(X, 3)
    with pytest.raises(ValueError, match="none"):
        layer.refit(X[:0], 0)
    for epoch, epochs in ((0, 5), (1, 0), (1.5, 3)):
        with pytest.raises((ValueError, TypeError), match="epoch"):
            layer.anneal(epoch, epochs)
    with pytest.raises(TypeError, match="variance"):
        make(variance="entrywise")
    with pytest.raises(TypeError, match="an integer"):
        layer.refit(X, "a")
    for settings in ({"momentum": 0.0}, {"eval_momentum": 2.0}, {"n_domains": 0}, {"power": 0.0}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            make(**settings)


def _train_parts(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    found = []
    for settings in SETTINGS[2:]:
        layer = make(bias=True, **settings)
        # the first process has but one of the domains, then none
        for part in ((slice(0, 4), slice(4, 12))[rank], (slice(0), slice(12))[rank]):
            found.append(gradients(layer, X[part], DOMAIN[part])[:2])
        found.append(dict(layer.state_dict()))
    torch.save(found, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_two_processes_share_statistics():
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_train_parts, args=(folder,), nprocs=2)
        found = zip(*(torch.load(f"{folder}/{rank}.pt") for rank in range(2)), strict=True)
    for settings in SETTINGS[2:]:
        layer = make(bias=True, **settings)
        for _ in range(2):
            for expected, *parts in zip(gradients(layer, X, DOMAIN)[:2], *next(found), strict=True):
                torch.testing.assert_close(torch.cat(parts), expected, rtol=1e-8, atol=1e-9)
        for state in next(found):
            torch.testing.assert_close(state, dict(layer.state_dict()))
