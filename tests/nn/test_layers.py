"""Laws over all layers."""

import copy

import pytest
import torch
from torch.func import grad, jacfwd, jacrev, jvp, vmap

from spdnet.manifolds.stiefel import StiefelParameter
from spdnet.nn import BiMap, ExpEig, LogEig, ReEig, SpectralActivation, Vech
from spdnet.testing import assert_on_stiefel, assert_spd, assert_symmetric, check_layer
from tests.cases import SPECTRA, random_spd, random_symmetric, with_spectrum

SPD_LAYERS = {
    "BiMap": lambda n: BiMap(n, max(1, n - 1)),
    "square BiMap": lambda n: BiMap(n, n),
    "ReEig": lambda n: ReEig(eps=0.7),
    "ReEig in percent": lambda n: trained_percentage(n),
    "ExpEig": lambda n: ExpEig(),
    "softplus": lambda n: SpectralActivation("softplus", eps=0.7),
    "sharp softplus": lambda n: SpectralActivation("softplus", eps=0.7, beta=5.0),
    "sigmoid": lambda n: SpectralActivation("sigmoid"),
}
LAYERS = {**SPD_LAYERS, "LogEig": lambda n: LogEig(), "Vech": lambda n: Vech()}
every_layer = pytest.mark.parametrize("name", LAYERS)


def trained_percentage(n):
    layer = ReEig(eps="40%", dtype=torch.float64)
    layer(torch.diag(torch.linspace(0.15, 3.3, 50, dtype=torch.float64)))
    return layer.eval()


def make(name, n):
    torch.manual_seed(0)
    return LAYERS[name](n)


@every_layer
@pytest.mark.parametrize("case", SPECTRA)
def test_laws(name, case):
    X = with_spectrum(SPECTRA[case])
    n = X.shape[-1]
    batch = torch.stack([X, random_spd(n)])
    check_layer(make(name, n), batch, spd=name in SPD_LAYERS)


@every_layer
def test_matrices_out_are_exactly_symmetric(name):
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
def test_autocast_lowers_nothing(name):
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
    (expected,) = torch.autograd.grad(layer(X).sin().sum(), X)
    torch.testing.assert_close(torch.autograd.grad(compiled(X).sin().sum(), X)[0], expected)


@every_layer
def test_exports(name):
    layer, X = make(name, 4).double(), random_spd(3, 4)
    program = torch.export.export(layer, (X,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    torch.testing.assert_close(program.module()(X[:2]), layer(X[:2]))


def test_bimap_formula_and_interlacing():
    layer, X = BiMap(6, 3, dtype=torch.float64), random_spd(4, 6)
    Y = layer(X)
    torch.testing.assert_close(Y, layer.weight.mT @ X @ layer.weight)
    assert torch.linalg.eigvalsh(Y).min() >= torch.linalg.eigvalsh(X).min()
    assert_on_stiefel(layer.weight)


def test_bimaps_of_one_shape_differ_and_follow_the_seed():
    torch.manual_seed(1)
    a, b = BiMap(5, 3), BiMap(5, 3)
    assert not torch.equal(a.weight, b.weight)
    torch.manual_seed(1)
    assert torch.equal(BiMap(5, 3).weight, a.weight)
    before = a.weight.clone()
    a.reset_parameters()
    assert not torch.equal(a.weight, before)


def test_bimap_initialised_as_the_authors_do():
    torch.manual_seed(0)
    layer = BiMap(6, 3, init="authors", dtype=torch.float64)
    torch.manual_seed(0)
    A = torch.rand(6, 6, dtype=torch.float64)
    leading = torch.linalg.eigh(A @ A.mT)[1].flip(-1)[:, :3]
    torch.testing.assert_close((layer.weight * leading).sum(0).abs(), torch.ones(3).double())
    assert_on_stiefel(layer.weight)


def test_bimap_weight_is_known_after_every_move():
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


def test_bimap_weight_stays_the_object_that_the_optimiser_holds():
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


def test_half_precision_input_is_lifted_to_the_weights():
    layer = BiMap(4, 2)
    Y = layer(random_spd(2, 4, dtype=torch.bfloat16))
    assert Y.dtype == torch.float32
    layer = BiMap(4, 2, dtype=torch.bfloat16)
    assert layer(random_spd(2, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize("layer", [ReEig(), SpectralActivation(), SpectralActivation("sigmoid")])
def test_indefinite_matrices_become_spd(layer):
    X = with_spectrum([-1.0, 0.0, 1e-9, 3.0])
    assert_spd(layer(X))


def test_softplus_becomes_reeig_as_it_sharpens():
    X = random_spd(5, 4)
    expected = ReEig(eps=0.5)(X)
    sharp = SpectralActivation("softplus", eps=0.5, beta=1e9)(X)
    torch.testing.assert_close(sharp, expected, atol=1e-8, rtol=0)


def test_eigenvalues_far_from_the_bend_stay_finite():
    X = with_spectrum([1e-9, 1.0, 1e3, 1e7]).requires_grad_()
    for layer in (SpectralActivation(), SpectralActivation("sigmoid")):
        Y = layer(X)
        assert Y.isfinite().all()
        (gradient,) = torch.autograd.grad(Y.sum(), X, create_graph=True)
        (second,) = torch.autograd.grad(gradient.sum(), X)
        assert gradient.isfinite().all()
        assert second.isfinite().all()


class TestReEigInPercent:
    def test_clips_that_share_of_the_eigenvalues(self):
        layer = ReEig("25%", dtype=torch.float64)
        Y = layer(random_spd(40, 8))
        s = torch.linalg.eigvalsh(Y)
        share = (s < layer.threshold + 1e-12).double().mean()
        assert share == pytest.approx(0.25, abs=0.005)

    def test_follows_the_batches_after_using_what_came_before(self):
        layer = ReEig("50%", momentum=0.1, dtype=torch.float64)
        eye = torch.eye(2, dtype=torch.float64)
        layer(eye)
        assert layer.threshold == 1
        Y = layer(3 * eye)  # rectified at 1: nothing to do
        torch.testing.assert_close(Y, 3 * eye)
        torch.testing.assert_close(layer.threshold, torch.tensor(1.2).double())
        assert layer.num_batches_tracked == 2

    def test_stays_in_evaluation(self):
        layer = ReEig("50%", dtype=torch.float64).eval()
        X = random_spd(3, 4)
        torch.testing.assert_close(layer(X), X)  # has seen nothing: clips nothing
        layer.train()(X)
        before = layer.threshold.clone()
        layer.eval()(100 * X)
        assert torch.equal(layer.threshold, before)

    def test_batch_mates_do_not_matter_after_the_first_batch(self):
        X = random_spd(4, 3)
        layer = ReEig("30%", dtype=torch.float64)
        layer(X)
        twin = copy.deepcopy(layer)
        mates = X.clone()
        mates[1:] *= 100
        assert torch.equal(layer(X)[0], twin(mates)[0])

    def test_travels_in_the_state_dict_and_is_forgotten_on_reset(self):
        layer = ReEig("30%")
        layer(random_spd(4, 3, dtype=torch.float32))
        twin = ReEig("30%")
        twin.load_state_dict(layer.state_dict())
        assert twin.threshold == layer.threshold > 0
        layer.reset_parameters()
        assert layer.threshold == layer.num_batches_tracked == 0

    def test_empty_batch_leaves_the_threshold(self):
        layer = ReEig("30%")
        layer(torch.empty(0, 3, 3))
        assert layer.num_batches_tracked == 0

    def test_a_number_has_no_state(self):
        layer = ReEig(0.1)
        layer.reset_parameters()
        assert layer.state_dict() == {}


def test_repr_shows_the_settings():
    assert repr(BiMap(5, 3)) == "BiMap(in_features=5, out_features=3)"
    assert repr(ReEig("10%")) == "ReEig(eps='10%')"
    assert repr(SpectralActivation()) == "SpectralActivation('softplus', eps=0.0001, beta=10000.0)"
    assert repr(SpectralActivation("sigmoid")) == "SpectralActivation('sigmoid', beta=1.0)"
