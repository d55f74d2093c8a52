import copy
import tempfile

import pytest
import torch
from torch import multiprocessing

from spdnet.linalg import cholesky, expm, logm, powm, spectral, symmetrize
from spdnet.linalg.eigh import constant_eigh as eigh
from spdnet.manifolds import affine_invariant, log_cholesky, log_euclidean, normalization
from spdnet.nn import SPDBatchNorm
from spdnet.testing import assert_spd, check_layer
from tests.cases import random_spd, random_symmetric

SETTINGS = {
    "log-Euclidean": {"metric": "log_euclidean"},
    "log-Cholesky": {"metric": "log_cholesky"},
    "log-Cholesky of roots": {"metric": "log_cholesky", "power": 0.5},
    "log-Cholesky of inverse roots": {"metric": "log_cholesky", "power": -0.5},
    "affine-invariant": {"metric": "affine_invariant"},
    "affine-invariant of powers": {"metric": "affine_invariant", "power": 1.5},
    "affine-invariant by Cholesky": {
        "metric": "affine_invariant",
        "root": "cholesky",
        "power": -0.5,
    },
}
MORE = {
    "without variance": {"variance": False},
    "Brooks": {"metric": "affine_invariant", "variance": False},
    "entrywise": {"variance": "entrywise"},
    "entrywise log-Cholesky": {"metric": "log_cholesky", "variance": "entrywise"},
    "not affine": {"affine": False},
    "Brooks, not affine": {"metric": "affine_invariant", "variance": False, "affine": False},
}
every_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
every_more = pytest.mark.parametrize(
    "settings", [*SETTINGS.values(), *MORE.values()], ids=[*SETTINGS, *MORE]
)
X = random_spd(12, 3)


def make(settings, *, random=True, n=3):
    torch.manual_seed(0)
    layer = SPDBatchNorm(n, dtype=torch.float64, **settings)
    for p in layer.parameters() if random else ():
        torch.nn.init.uniform_(p, 0.3, 1.2)
    return layer


def bias_of(layer):
    """Return the SPD matrix that the mean is mapped to."""
    if layer.bias is None:
        return torch.eye(layer.n, dtype=torch.float64)
    if layer.metric.name == "log_cholesky":
        B = log_cholesky.from_coordinates(layer.bias.detach())
        return powm(B, 1 / layer.power)
    return expm(symmetrize(layer.bias.detach()))


def mean_and_dispersion(layer, Y):
    """Compute mean and dispersion in the metric with its power."""
    manifold = {
        "log_euclidean": log_euclidean,
        "log_cholesky": log_cholesky,
        "affine_invariant": affine_invariant,
    }[layer.metric.name]
    P = powm(Y, layer.power)
    M = manifold.mean(P)
    variance = (manifold.distance(M, P) ** 2).mean() / layer.power**2
    return powm(M, 1 / layer.power), variance


@every_setting
def test_training_output_has_mean_bias_and_dispersion_scale(settings):
    layer = make({**settings, "eps": 0.0})
    Y = layer(X).detach()
    assert_spd(Y)
    M, variance = mean_and_dispersion(layer, Y)
    torch.testing.assert_close(M, bias_of(layer), rtol=0, atol=1e-6)
    torch.testing.assert_close(variance, layer.scale.detach() ** 2, rtol=0, atol=1e-6)


@pytest.mark.parametrize("metric", ["log_euclidean", "log_cholesky", "affine_invariant"])
def test_without_variance_only_mean_is_normalized(metric):
    layer = make({"metric": metric, "variance": False})
    assert layer.scale is None
    assert layer.running_var is None
    _, before = mean_and_dispersion(layer, X)
    M, variance = mean_and_dispersion(layer, layer(X).detach())
    torch.testing.assert_close(M, bias_of(layer), rtol=0, atol=1e-6)
    torch.testing.assert_close(variance, before)


def test_brooks_normalization_equals_formula():
    layer = make({})
    L = logm(X)
    M = L.mean(0)
    v = (L - M).square().sum((-2, -1)).mean()
    expected = expm(layer.scale * (L - M) / (v + 1e-5).sqrt() + symmetrize(layer.bias))
    torch.testing.assert_close(layer(X), expected)
    layer = make({"variance": "entrywise"})
    v = (L - M).square().mean(0)
    scaled = symmetrize(layer.scale) * (L - M) / (v + 1e-5).sqrt()
    torch.testing.assert_close(layer(X), expm(scaled + symmetrize(layer.bias)))


def test_roots_differ_by_rotation_without_bias():
    one, other = (
        make({"metric": "affine_invariant", "root": r}, random=False)
        for r in ("symmetric", "cholesky")
    )
    Y, Z = one(X).detach(), other(X).detach()
    M = affine_invariant.mean(X)
    Q = torch.linalg.solve_triangular(cholesky(M), powm(M, 0.5), upper=False)
    torch.testing.assert_close(Z, Q @ Y @ Q.mT)


def test_roots_differ_by_more_than_rotation_with_bias():
    Y, Z = (
        make({"metric": "affine_invariant", "root": r})(X).detach()
        for r in ("symmetric", "cholesky")
    )
    torch.testing.assert_close(affine_invariant.mean(Y), affine_invariant.mean(Z))
    gap = torch.linalg.eigvalsh(Y) - torch.linalg.eigvalsh(Z)
    assert gap.abs().max() > 0.01


@every_more
def test_evaluation_mode_satisfies_layer_properties(settings):
    layer = make(settings)
    for seed in range(3):
        layer(random_spd(7, 3, seed=seed))
    check_layer(layer.eval(), X[:2])


@every_more
def test_evaluation_reproduces_the_running_statistics(settings):
    layer = make({**settings, "momentum": 1.0})
    Y = layer(X)
    torch.testing.assert_close(layer.eval()(X), Y, rtol=1e-9, atol=1e-9)
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    layer(random_spd(5, 3, seed=4))
    assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items())


@every_setting
def test_running_statistics_use_momentum(settings):
    layer = make({**settings, "momentum": 0.25})
    place = layer.running_mean
    layer(X)
    assert layer.running_mean is place  # in place
    assert layer.num_batches_tracked == 1
    once = make({**settings, "momentum": 1.0})
    once(X)
    M, v = once.running_mean, once.running_var
    if layer.metric.name == "affine_invariant":
        eye = torch.eye(3, dtype=torch.float64)
        torch.testing.assert_close(layer.running_mean, affine_invariant.geodesic(eye, M, 0.25))
    else:
        torch.testing.assert_close(layer.running_mean, M / 4)
    torch.testing.assert_close(layer.running_var, 0.75 + v / 4)
    layer.reset_parameters()
    fresh = make(settings, random=False)
    assert all(torch.equal(a, b) for a, b in zip(layer.buffers(), fresh.buffers(), strict=True))


def test_momentum_none_weights_batches_equally():
    layer = make({"momentum": None})
    for part in X.split(4):
        layer(part)
    torch.testing.assert_close(layer.running_mean, logm(X).mean(0))


@every_setting
def test_statistics_include_channels(settings):
    flat, grid = make(settings), make(settings)
    torch.testing.assert_close(grid(X.view(4, 3, 3, 3)), flat(X).view(4, 3, 3, 3))
    torch.testing.assert_close(grid.running_mean, flat.running_mean)


@every_more
def test_gradients_reach_all_parameters_and_the_input(settings):
    layer = make(settings)
    inputs = X.clone().requires_grad_()
    layer(inputs).square().sum().backward()
    for tensor in (inputs, *layer.parameters()):
        assert tensor.grad.isfinite().all()
        assert tensor.grad.abs().max() > 0
    assert bool(list(layer.parameters())) == layer.affine


@pytest.mark.parametrize("metric", ["log_euclidean", "log_cholesky", "affine_invariant"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_zero_dispersion_is_not_divided_by(metric, dtype):
    for batch in (X[:1], X[:1].expand(8, 3, 3)):
        layer = SPDBatchNorm(3, metric, dtype=dtype)
        layer(X.to(dtype))
        before = copy.deepcopy(layer.state_dict())
        inputs = batch.to(dtype, copy=True).requires_grad_()
        Y = layer(inputs)
        assert_spd(Y.detach())
        (G,) = torch.autograd.grad(Y.square().sum(), inputs)
        assert G.abs().max() < 100
        if len(batch) == 1:  # by what is known, and nothing is learned from it
            assert all(torch.equal(v, before[k]) for k, v in layer.state_dict().items())
            torch.testing.assert_close(layer.eval()(batch.to(dtype)), Y)
        else:
            torch.testing.assert_close(layer.running_var, before["running_var"])


@pytest.mark.parametrize("metric", ["log_euclidean", "log_cholesky", "affine_invariant"])
def test_single_matrix_is_not_mapped_to_bias_without_variance(metric):
    layer = SPDBatchNorm(3, metric, variance=False)
    layer(X.float())
    one, other = layer(X[:1].float()), layer(X[1:2].float())
    assert (one - other).abs().max() > 0.1
    torch.testing.assert_close(one, layer.eval()(X[:1].float()))


@pytest.mark.parametrize("metric", ["log_euclidean", "log_cholesky", "affine_invariant"])
@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(metric, half):
    layer = SPDBatchNorm(3, metric)
    few = X.to(half)
    assert layer(few).dtype == torch.float32
    assert layer.eval()(few).dtype == torch.float32


def test_empty_batch_single_matrix_and_extreme_input():
    layer = make({})
    assert layer(X[:0]).shape == (0, 3, 3)
    assert layer.num_batches_tracked == 0
    assert layer(X[0]).isfinite().all()  # one matrix: its own mean
    assert make({"metric": "affine_invariant"})(X[:1].expand(4, 3, 3)).isfinite().all()
    single = SPDBatchNorm(3)
    assert single(X.float()).dtype == torch.float32
    compiled = torch.compile(make({}).eval(), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), make({}).eval()(X))


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"metric": "stein"}, "metric"),
        ({"variance": "all"}, "variance"),
        ({"momentum": 0.0}, "momentum"),
        ({"power": 0.0, "metric": "log_cholesky"}, "power"),
        ({"power": 2.0}, "power"),
        ({"root": "qr"}, "root"),
        ({"eps": -1.0}, "eps"),
        ({"metric": "affine_invariant", "variance": "entrywise"}, "entrywise"),
    ],
)
def test_invalid_settings_raise_message(settings, text):
    with pytest.raises(ValueError, match=text):
        SPDBatchNorm(3, **settings)


@every_more
def test_invalid_input_raises_message(settings):
    layer = make(settings)
    with pytest.raises(ValueError, match="positive"):
        layer(-X)
    with pytest.raises(ValueError, match="symmetric"):
        layer(X + torch.triu(torch.ones(3, 3)).double())
    with pytest.raises(ValueError, match="3"):
        layer(random_symmetric(2, 4))


def _train_part(rank, settings, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    layer = make(settings)
    part = (X[:5], X[5:])[rank]  # not the same number
    torch.save((layer(part).detach(), layer.state_dict()), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["log_euclidean", "log_cholesky", "affine_invariant"])
def test_two_processes_share_statistics(metric):
    settings = {"metric": metric}
    layer = make(settings)
    expected = layer(X).detach()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_train_part, args=(settings, folder), nprocs=2)
        found = [torch.load(f"{folder}/{rank}.pt") for rank in range(2)]
    torch.testing.assert_close(torch.cat([Y for Y, _ in found]), expected)
    for _, state in found:
        torch.testing.assert_close(state, dict(layer.state_dict()))


@pytest.mark.parametrize("root", ["symmetric", "cholesky"])
@pytest.mark.parametrize("variance", [True, False])
def test_steps_in_a_cuda_graph_decompose_single_matrices_together(variance, root, monkeypatch):
    settings = {"metric": "affine_invariant", "karcher_steps": 1}
    layer = make({**settings, "variance": variance, "root": root})
    other, calls = copy.deepcopy(layer), []
    for step in range(3):
        Z = random_spd(12, 3, seed=step)
        expected = layer(Z)
        with monkeypatch.context() as patch:
            patch.setattr(normalization, "is_capturing", lambda X: True)
            patch.setattr(
                spectral, "constant_eigh", lambda X, **k: (calls.append(X.ndim), eigh(X, **k))[1]
            )
            Y = other(Z)
        torch.testing.assert_close(Y, expected, rtol=1e-10, atol=1e-12)
        # the step to the mean and its exponential, bias and statistics together, the power
        assert calls == [3, 2, 3] + [3] * variance
        calls.clear()
    for loss in (expected.square().sum(), Y.square().sum()):
        loss.backward()
    pairs = [*zip(layer.buffers(), other.buffers(), strict=True)]
    pairs += [(p.grad, q.grad) for p, q in zip(layer.parameters(), other.parameters(), strict=True)]
    for found, wanted in pairs:
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


@every_more
def test_logarithm_of_the_result(settings):
    layer = make(settings)
    other = copy.deepcopy(layer)
    torch.testing.assert_close(layer(X, log=True), logm(other(X)))
