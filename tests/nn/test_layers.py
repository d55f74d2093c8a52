"""Properties of all layers."""

import copy

import pytest
import torch
from torch.func import grad, jacfwd, jacrev, jvp, vmap

from spdnet import manifolds
from spdnet.linalg import expm, logm, symmetrize
from spdnet.manifolds.stiefel import StiefelParameter, random_point
from spdnet.nn import (
    SPDMLR,
    BiMap,
    Center,
    ExpEig,
    LogEig,
    MatrixSqrt,
    MinimumDistance,
    ReEig,
    SPDBatchNorm,
    SPDDomainBatchNorm,
    SPDPool,
    SPDResidual,
    SpectralActivation,
    SpectralFeatures,
    Vech,
)
from spdnet.nn.eig import Entries
from spdnet.nn.layer import SPDLayer
from spdnet.testing import assert_on_stiefel, assert_spd, assert_symmetric, check_layer
from tests.cases import SPECTRA, random_spd, random_symmetric, with_spectrum

SPD_LAYERS = {
    "BiMap": lambda n: BiMap(n, max(1, n - 1)),
    "square BiMap": lambda n: BiMap(n, n),
    "Center": lambda n: Center(n, dtype=torch.float64).fit(random_spd(5, n, seed=3)),
    "ReEig": lambda n: ReEig(eps=0.7),
    "ReEig in percent": lambda n: trained_percentage(n),
    "ExpEig": lambda n: ExpEig(),
    "softplus": lambda n: SpectralActivation("softplus", eps=0.7),
    "sharp softplus": lambda n: SpectralActivation("softplus", eps=0.7, beta=5.0),
    "sigmoid": lambda n: SpectralActivation("sigmoid"),
}
LAYERS = {**SPD_LAYERS, "LogEig": lambda n: LogEig(), "Vech": lambda n: Vech()}
every_layer = pytest.mark.parametrize("name", LAYERS)


def trained_percentage(n, dtype=torch.float64):
    layer = ReEig(eps="40%", dtype=dtype)
    layer(torch.diag(torch.linspace(0.15, 3.3, 50, dtype=dtype)))
    return layer.eval()


def make(name, n):
    torch.manual_seed(0)
    return LAYERS[name](n)


COMPLEX = {"dtype": torch.complex128}
COMPLEX_LAYERS = {
    "BiMap": lambda n: BiMap(n, max(1, n - 1), **COMPLEX),
    "BiMap of the authors": lambda n: BiMap(n, n, init="authors", **COMPLEX),
    "Center": lambda n: Center(n, **COMPLEX).fit(random_spd(5, n, seed=3, **COMPLEX)),
    "ReEig in percent": lambda n: trained_percentage(n, **COMPLEX),
    **{name: LAYERS[name] for name in ("ReEig", "LogEig", "ExpEig", "softplus", "sigmoid", "Vech")},
    "Entries": lambda n: Entries(),
    "SPDBatchNorm": lambda n: SPDBatchNorm(n, **COMPLEX).eval(),
    "entrywise SPDBatchNorm": lambda n: SPDBatchNorm(
        n, "log_cholesky", variance="entrywise", **COMPLEX
    ).eval(),
    "affine SPDBatchNorm": lambda n: SPDBatchNorm(n, "affine_invariant", **COMPLEX).eval(),
    "SPDMLR": lambda n: SPDMLR(n, 3, **COMPLEX),
    "Bures-Wasserstein SPDMLR": lambda n: SPDMLR(n, 3, "bures_wasserstein", **COMPLEX),
    "MinimumDistance": lambda n: MinimumDistance(n, 3, **COMPLEX),
    "SpectralFeatures": lambda n: SpectralFeatures(n, **COMPLEX),
    "SPDResidual": lambda n: SPDResidual(BiMap(n, n, **COMPLEX), "geodesic", **COMPLEX),
    "MatrixSqrt": lambda n: MatrixSqrt("newton_schulz"),
}


@pytest.mark.parametrize("name", COMPLEX_LAYERS)
@pytest.mark.parametrize("case", ["generic", "exact ties", "low rank + c I", "one by one"])
def test_complex_layers_satisfy_layer_properties(name, case):
    torch.manual_seed(0)
    X = with_spectrum(SPECTRA[case], **COMPLEX)
    n = X.shape[-1]
    layer, batch = COMPLEX_LAYERS[name](n), torch.stack([X, random_spd(n, **COMPLEX)])
    Y = layer(batch)
    check_layer(layer, batch, spd=Y.is_complex() and name != "LogEig", second=case == "generic")
    if name in ("Vech", "Entries", "SPDMLR", "MinimumDistance", "SpectralFeatures"):
        assert Y.dtype == torch.float64


def test_complex_layers_on_real_matrices_equal_real_layers():
    X, y = random_spd(6, 4), torch.arange(6) % 2
    Z = X.to(torch.complex128)
    for real, other in (
        (SPDBatchNorm(4, dtype=torch.float64), SPDBatchNorm(4, **COMPLEX)),
        (
            SPDDomainBatchNorm(4, 1, dtype=torch.float64),
            SPDDomainBatchNorm(4, 1, **COMPLEX),
        ),
        (Center(4, dtype=torch.float64).fit(X), Center(4, **COMPLEX).fit(Z)),
        (
            MinimumDistance(4, 2, dtype=torch.float64).fit(X, y),
            MinimumDistance(4, 2, **COMPLEX).fit(Z, y),
        ),
        (SPDPool(), SPDPool()),
        (SPDPool("blocks"), SPDPool("blocks")),
    ):
        torch.testing.assert_close(other(Z), real(X).to(other(Z).dtype))


def test_batch_normalization_of_complex_matrices():
    """The output has the mean and the variance of the bias and the scale."""
    X = random_spd(20, 4, **COMPLEX)
    for metric in (manifolds.log_euclidean, manifolds.affine_invariant, manifolds.log_cholesky):
        Y = SPDBatchNorm(4, metric, eps=0.0, **COMPLEX)(X).detach()
        eye = torch.eye(4, **COMPLEX)
        torch.testing.assert_close(metric.mean(Y), eye)
        spread = metric.squared_distance(Y, eye).mean()
        torch.testing.assert_close(spread, torch.ones_like(spread))


def test_real_layers_refuse_complex_matrices():
    X = random_spd(3, 4, **COMPLEX)
    calls = {
        "BiMap": lambda: BiMap(4, 3)(X),
        "SPDBatchNorm": lambda: SPDBatchNorm(4)(X),
        "SPDMLR": lambda: SPDMLR(4, 2)(X),
        "Center.fit": lambda: Center(4).fit(X),
        "MinimumDistance.fit": lambda: MinimumDistance(4, 3).fit(X, torch.arange(3)),
        "SpectralFeatures.fit": lambda: SpectralFeatures(4).fit(X),
        "SPDPool": lambda: SPDPool(kind="max")(X),
    }
    for who, call in calls.items():
        with pytest.raises(TypeError, match=f"{who}: expected .*complex128"):
            call()


@every_layer
@pytest.mark.parametrize("case", SPECTRA)
def test_satisfies_layer_properties(name, case):
    X = with_spectrum(SPECTRA[case])
    n = X.shape[-1]
    batch = torch.stack([X, random_spd(n)])
    check_layer(make(name, n), batch, spd=name in SPD_LAYERS)


@every_layer
def test_output_matrices_are_exactly_symmetric(name):
    Y = make(name, 9).float()(random_spd(2, 3, 9, dtype=torch.float32))
    if name != "Vech":
        assert Y.shape[:2] == (2, 3)
        assert_symmetric(Y)


@every_layer
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype(name, dtype):
    layer = make(name, 4).to(dtype)
    assert layer(random_spd(2, 4, dtype=dtype)).dtype == dtype


@every_layer
def test_autocast_keeps_precision(name):
    layer, X = make(name, 4).float(), random_spd(2, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        lowered = layer(X)
    assert torch.equal(lowered, layer(X))


@every_layer
def test_torch_func(name):
    layer, X = make(name, 4).double(), random_spd(3, 4)
    E = random_symmetric(3, 4)
    J = vmap(jacrev(layer))(X)
    _, D = jvp(layer, (X,), (E,))
    torch.testing.assert_close(torch.einsum("b...kl,bkl->b...", J, E), D)
    torch.testing.assert_close(vmap(jacfwd(layer))(X), J)
    per_sample = vmap(grad(lambda X: layer(X).sin().sum()))(X)
    X.requires_grad_()
    (together,) = torch.autograd.grad(layer(X).sin().sum(), X)
    torch.testing.assert_close(per_sample, together)


@every_layer
def test_compiles_in_one_graph(name):
    torch.compiler.reset()
    layer = make(name, 4).double()
    X = random_spd(3, 4).requires_grad_()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), layer(X))
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), layer(X))
    torch.testing.assert_close(compiled(X.detach()), layer(X.detach()))
    (expected,) = torch.autograd.grad(layer(X).sin().sum(), X)
    torch.testing.assert_close(torch.autograd.grad(compiled(X).sin().sum(), X)[0], expected)


@every_layer
@pytest.mark.parametrize("strict", [False, True])
def test_exports(name, strict):
    layer, X = make(name, 4).double(), random_spd(3, 4)
    shapes = ({0: torch.export.Dim.AUTO},)
    program = torch.export.export(layer, (X,), dynamic_shapes=shapes, strict=strict)
    torch.testing.assert_close(program.module()(X[:2]), layer(X[:2]))


def test_bimap_formula_and_interlacing():
    layer, X = BiMap(6, 3, dtype=torch.float64), random_spd(4, 6)
    Y = layer(X)
    torch.testing.assert_close(Y, layer.weight.mT @ X @ layer.weight)
    assert torch.linalg.eigvalsh(Y).min() >= torch.linalg.eigvalsh(X).min()
    assert_on_stiefel(layer.weight)


def test_bimap_initialization_is_random_and_reproducible():
    torch.manual_seed(1)
    a, b = BiMap(5, 3), BiMap(5, 3)
    assert not torch.equal(a.weight, b.weight)
    torch.manual_seed(1)
    assert torch.equal(BiMap(5, 3).weight, a.weight)
    before = a.weight.clone()
    a.reset_parameters()
    assert not torch.equal(a.weight, before)


def test_bimap_init_authors_equals_released_code():
    torch.manual_seed(0)
    layer = BiMap(6, 3, init="authors", dtype=torch.float64)
    torch.manual_seed(0)
    A = torch.rand(6, 6, dtype=torch.float64)
    leading = torch.linalg.eigh(A @ A.mT)[1].flip(-1)[:, :3]
    torch.testing.assert_close((layer.weight * leading).sum(0).abs(), torch.ones(3).double())
    assert_on_stiefel(layer.weight)


def test_bimap_weight_type_survives_conversions():
    layer = BiMap(5, 3)
    copies = [
        copy.deepcopy(layer).to(torch.float64),
        copy.deepcopy(layer).to("meta"),
        copy.deepcopy(layer).to("meta").to_empty(device="cpu"),
        copy.deepcopy(layer).requires_grad_(False),
    ]
    copies[1].load_state_dict(layer.state_dict(), assign=True)
    for moved in copies:
        assert type(moved.weight) is StiefelParameter
        assert [p is moved.weight for p in moved.parameters()] == [True]
    assert not copies[-1].weight.requires_grad


def test_bimap_weight_object_is_kept_for_the_optimizer():
    layer = BiMap(5, 3)
    weight = layer.weight
    try:
        torch.__future__.set_swap_module_params_on_conversion(True)
        layer.to(torch.float64)
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    assert layer.weight is weight
    assert type(weight) is StiefelParameter
    assert weight.dtype == torch.float64


def test_custom_layer_keeps_stiefel_parameter():
    class Rotation(SPDLayer):
        def __init__(self):
            super().__init__()
            self.turn = StiefelParameter(random_point(3, 3))
            self.scale = torch.nn.Parameter(torch.ones(()))

    layer = Rotation()
    state = layer.state_dict()
    for moved in (
        copy.deepcopy(layer).to("meta").to_empty(device="cpu"),
        copy.deepcopy(layer).double(),
    ):
        moved.load_state_dict(state, assign=True)
        assert type(moved.turn) is StiefelParameter
        assert type(moved.scale) is torch.nn.Parameter


def test_half_precision_input_is_cast_to_weight_dtype():
    layer = BiMap(4, 2)
    Y = layer(random_spd(2, 4, dtype=torch.bfloat16))
    assert Y.dtype == torch.float32
    for init in ("uniform", "authors"):
        layer = BiMap(4, 2, init=init, dtype=torch.bfloat16)
        assert layer(random_spd(2, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("layer", [ReEig(), SpectralActivation(), SpectralActivation("sigmoid")])
def test_indefinite_matrices_become_spd(layer):
    X = with_spectrum([-1.0, 0.0, 1e-9, 3.0])
    assert_spd(layer(X))


def test_softplus_converges_to_reeig():
    X = random_spd(5, 4)
    expected = ReEig(eps=0.5)(X)
    sharp = SpectralActivation("softplus", eps=0.5, beta=1e9)(X)
    torch.testing.assert_close(sharp, expected, atol=1e-8, rtol=0)


def test_activation_of_extreme_eigenvalues_is_finite():
    X = with_spectrum([1e-9, 1.0, 1e3, 1e7]).requires_grad_()
    for layer in (SpectralActivation(), SpectralActivation("sigmoid")):
        Y = layer(X)
        assert Y.isfinite().all()
        (gradient,) = torch.autograd.grad(Y.sum(), X, create_graph=True)
        (second,) = torch.autograd.grad(gradient.sum(), X)
        assert gradient.isfinite().all()
        assert second.isfinite().all()


class TestReEigInPercent:
    def test_clips_given_percentage_of_eigenvalues(self):
        layer = ReEig("25%", dtype=torch.float64)
        Y = layer(random_spd(40, 8))
        s = torch.linalg.eigvalsh(Y)
        share = (s < layer.threshold + 1e-12).double().mean()
        assert share == pytest.approx(0.25, abs=0.005)

    def test_threshold_is_updated_after_use(self):
        layer = ReEig("50%", momentum=0.1, dtype=torch.float64)
        eye = torch.eye(2, dtype=torch.float64)
        layer(eye)
        assert layer.threshold == 1
        Y = layer(3 * eye)  # rectified at 1: nothing to do
        torch.testing.assert_close(Y, 3 * eye)
        torch.testing.assert_close(layer.threshold, torch.tensor(1.2).double())
        assert layer.num_batches_tracked == 2

    def test_threshold_is_constant_in_evaluation(self):
        layer = ReEig("50%", dtype=torch.float64)
        X = random_spd(3, 4)
        layer(X)
        before = layer.threshold.clone()
        layer.eval()(100 * X)
        assert torch.equal(layer.threshold, before)

    def test_refuses_evaluation_before_training(self):
        layer = ReEig("50%").eval()
        with pytest.raises(
            RuntimeError, match=r"expected a training batch before evaluation.*'50%'"
        ):
            layer(torch.eye(3))
        assert torch.equal(layer(torch.eye(3), check=False), torch.eye(3))

    def test_singular_and_indefinite_input_becomes_spd(self):
        A = random_spd(6, 5)[:, :, :2]
        for X in (symmetrize(A @ A.mT), with_spectrum([-1.0, -0.5, -0.1, 2.0])):
            assert_spd(ReEig("40%", dtype=torch.float64)(X))

    @pytest.mark.parametrize("momentum", [0.1, 0.5, 1.0])
    def test_momentum(self, momentum):
        layer = ReEig("50%", momentum=momentum)
        layer(torch.eye(2))
        layer(3 * torch.eye(2))
        torch.testing.assert_close(layer.threshold, torch.tensor(1 + 2 * momentum))

    def test_result_is_independent_of_batch_after_first(self):
        X = random_spd(4, 3)
        layer = ReEig("30%", dtype=torch.float64)
        layer(X)
        twin = copy.deepcopy(layer)
        mates = X.clone()
        mates[1:] *= 100
        assert torch.equal(layer(X)[0], twin(mates)[0])

    def test_state_dict_and_reset(self):
        layer = ReEig("30%")
        layer(random_spd(4, 3, dtype=torch.float32))
        twin = ReEig("30%")
        twin.load_state_dict(layer.state_dict())
        assert twin.threshold == layer.threshold > 0
        layer.reset_parameters()
        assert layer.threshold == layer.num_batches_tracked == 0

    def test_backward_uses_threshold_of_forward(self):
        layer = ReEig("50%", dtype=torch.float64)
        X = random_spd(4, 3).requires_grad_()
        layer(X.detach())
        for module in (layer.train(), layer.eval()):
            loss = module(X).square().sum()
            (before,) = torch.autograd.grad(loss, X, retain_graph=True)
            layer.train()(100 * X.detach())
            assert torch.equal(torch.autograd.grad(loss, X)[0], before)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_compiled_training_updates_threshold(self, dtype):
        torch.compiler.reset()
        layers = [ReEig("50%", dtype=dtype) for _ in range(2)]
        compiled = torch.compile(layers[1], fullgraph=True, backend="aot_eager")
        for seed in range(3):
            X = random_spd(4, 3, seed=seed, dtype=dtype).requires_grad_()
            torch.testing.assert_close(compiled(X), layers[0](X))
        torch.testing.assert_close(layers[1].threshold, layers[0].threshold)
        assert layers[1].num_batches_tracked == 3

    def test_ensembles(self):
        layers = [ReEig(f"{share}%", dtype=torch.float64) for share in (20, 60)]
        X = random_spd(5, 4)
        expected = []
        for layer in layers:
            layer(X)
            expected.append(layer.eval()(X))
        _, buffers = torch.func.stack_module_state(layers)

        def run(buffers):
            return torch.func.functional_call(layers[0], buffers, (X,), {"check": False})

        torch.testing.assert_close(vmap(run)(buffers), torch.stack(expected))

    def test_empty_batch_keeps_threshold(self):
        layer = ReEig("30%")
        layer(torch.empty(0, 3, 3))
        assert layer.num_batches_tracked == 0

    def test_constant_threshold_has_no_state(self):
        layer = ReEig(0.1)
        layer.reset_parameters()
        assert layer.state_dict() == {}


class TestCenter:
    @pytest.mark.parametrize("metric", ["log_euclidean", "affine_invariant"])
    def test_mean_is_mapped_to_identity(self, metric):
        X = random_spd(6, 4)
        layer = Center(4, metric, dtype=torch.float64).fit(X)
        mean = getattr(manifolds, metric).mean
        torch.testing.assert_close(layer.mean, mean(X))
        torch.testing.assert_close(layer(layer.mean), torch.eye(4).double())
        if metric == "affine_invariant":  # which does not change under congruence
            torch.testing.assert_close(mean(layer(X)), torch.eye(4).double())

    def test_weights_and_lower_precision(self):
        X = random_spd(3, 4, dtype=torch.float32)
        w = torch.tensor([1.0, 0.0, 0.0])
        layer = Center(4).fit(X, w)
        torch.testing.assert_close(layer(X[0]), torch.eye(4), rtol=0, atol=1e-5)

    def test_is_identity_before_fit_and_after_reset(self):
        X = random_spd(3, 4)
        layer = Center(4, dtype=torch.float64)
        torch.testing.assert_close(layer(X), X)
        layer.fit(X).reset_parameters()
        torch.testing.assert_close(layer(X), X)

    def test_state_dict_without_parameters(self):
        X = random_spd(3, 4)
        layer, twin = (Center(4, dtype=torch.float64) for _ in range(2))
        twin.load_state_dict(layer.fit(X).state_dict())
        assert torch.equal(twin(X), layer(X))
        assert list(layer.parameters()) == []


def test_repr_shows_the_settings():
    assert repr(BiMap(5, 3)) == "BiMap(in_features=5, out_features=3)"
    assert repr(Center(4)) == "Center(4, metric='log_euclidean')"
    assert repr(ReEig(0.1)) == "ReEig(eps=0.1)"
    assert repr(ReEig("10%")) == "ReEig(eps='10%', momentum=0.1)"
    assert repr(SpectralActivation()) == "SpectralActivation('softplus', eps=0.0001, beta=10000.0)"
    assert repr(SpectralActivation("sigmoid")) == "SpectralActivation('sigmoid', beta=1.0)"


def test_zero_threshold_keeps_spd_matrices():
    X = random_spd(5, 4)
    torch.testing.assert_close(ReEig(0.0)(X), X, rtol=0, atol=0)
    half = torch.diag(torch.tensor([2.0, -1.0], dtype=torch.float64))
    torch.testing.assert_close(ReEig(0.0)(half), half.clamp(min=0))


@pytest.mark.parametrize("eps", [0.7, 1.0, "40%"])
@pytest.mark.parametrize("case", SPECTRA)
def test_layers_take_logarithms(case, eps):
    L = symmetrize(with_spectrum(SPECTRA[case]) - 0.5)
    L.requires_grad_()
    layer, other = ReEig(eps, dtype=torch.float64), ReEig(eps, dtype=torch.float64)
    for training in (True, False):
        layer.train(training)
        other.train(training)
        Y, expected = layer(L, log=True), other(expm(L))
        torch.testing.assert_close(Y, expected)
        G = random_symmetric(L.shape[-1], seed=2)
        results = [torch.autograd.grad(Z, L, G)[0] for Z in (Y, expected)]
        torch.testing.assert_close(*results)
    for buffer, wanted in zip(layer.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(buffer, wanted)
    assert LogEig()(L, log=True) is L


def test_rectified_exponential_clips_nothing_within_rounding():
    """A tie at the threshold that rounding breaks keeps the derivative of the eigenvalues above."""
    X = with_spectrum([0.3, 0.3, 0.3, 2.0])
    L = logm(X).requires_grad_()
    (G,) = torch.autograd.grad(ReEig(0.3)(L, log=True).diagonal().sum(), L)
    torch.testing.assert_close(G, X)
