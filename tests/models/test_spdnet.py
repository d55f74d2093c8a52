import copy
import io
import pickle

import pytest
import torch
from torch import nn

from spdnet import SPDNet
from spdnet.linalg import clamp_eig, logm, symmetrize, vech
from spdnet.manifolds.stiefel import StiefelParameter
from spdnet.models import Ensemble
from spdnet.nn import BiMap, LogEig, ReEig, SPDBatchNorm, SpectralActivation
from spdnet.optim import RiemannianSGD
from spdnet.testing import assert_on_stiefel, assert_spd, check_layer
from tests.cases import ILL_CONDITIONED, SPECTRA, random_matrix, random_spd, with_spectrum

SETTINGS = [
    {},
    {"eps": 0.5},
    {"eps": "30%"},
    {"log": False},
    {"bias": True, "vectorize": "vech"},
    {"init": "authors"},
    {"dims": (5,)},
    {"head": "mlp", "hidden": 6},
    {"norm": "log_euclidean", "eps": 0.9},
    {"norm": "log_euclidean", "eps": "30%"},
]
#: compilation takes seconds: of these, only those with other operations in the usual tests
COMPILED = [
    pytest.param(settings, marks=[pytest.mark.slow] * (i not in (0, 2, 7)))
    for i, settings in enumerate(SETTINGS)
]


def make(settings, dims=(5, 4, 3), dtype=torch.float64):
    torch.manual_seed(0)
    settings = {"dims": dims, **settings}
    dims = settings["dims"]
    model = SPDNet(n_classes=3, dtype=dtype, **settings)
    model(random_spd(16, dims[0], seed=5, dtype=dtype))  # what a percentage has to see
    return model.eval()


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_laws(settings):
    check_layer(make(settings), random_spd(2, 5), spd=False, second=False)


@pytest.mark.parametrize("case", [c for c in SPECTRA if c != "one by one"])
def test_second_derivatives_at_ties(case):
    X = with_spectrum(SPECTRA[case])
    check_layer(make({}, dims=(4, 3, 2)), X[None], spd=False)


def test_the_papers_architectures():
    model = SPDNet((400, 200, 100, 50), 7)
    assert [tuple(b.weight.shape) for b in model.bimaps] == [(400, 200), (200, 100), (100, 50)]
    assert len(model.reeigs) == 2
    assert model.classifier.weight.shape == (7, 2500)
    assert model.classifier.bias is None
    for bimap in model.bimaps:
        assert_on_stiefel(bimap.weight)
    one = SPDNet((400, 50), 7)
    assert (len(one.bimaps), len(one.reeigs)) == (1, 0)
    none = SPDNet((20,), 7)
    assert (len(none.bimaps), len(none.reeigs), none.classifier.in_features) == (0, 0, 400)


def test_forward_is_the_composition_of_its_layers():
    model, X = make({"eps": 0.4}, dims=(6, 5, 4, 3)), random_spd(7, 6)
    (b1, b2, b3), (r1, r2) = model.bimaps, model.reeigs
    features = logm(b3(r2(b2(r1(b1(X)))))).flatten(-2)
    torch.testing.assert_close(model.features(X), features)
    torch.testing.assert_close(model(X), features @ model.classifier.weight.mT)
    half = copy.deepcopy(model)
    half.vectorize = torch.nn.Identity()
    vector = make({"eps": 0.4, "vectorize": "vech"}, dims=(6, 5, 4, 3)).features(X)
    torch.testing.assert_close(vector, vech(half.features(X)))
    flat = make({"eps": 0.4, "log": False}, dims=(6, 5, 4, 3)).features(X)
    torch.testing.assert_close(flat, b3(r2(b2(r1(b1(X))))).flatten(-2))


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0,)])
def test_leading_shapes(shape):
    model = make({})
    X = random_spd(*shape, 5)
    assert model(X).shape == (*shape, 3)
    assert model.features(X).shape == (*shape, 9)


def test_initialisation():
    torch.manual_seed(3)
    model = SPDNet((30, 20, 20, 20), 50)
    assert not torch.equal(model.bimaps[1].weight, model.bimaps[2].weight)
    assert model.classifier.weight.std().item() == pytest.approx(0.01, rel=0.05)
    torch.manual_seed(3)
    twin = SPDNet((30, 20, 20, 20), 50)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)
    twin.reset_parameters()
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert not torch.equal(p, q)
    biased = SPDNet((5, 3), 2, bias=True)
    assert biased.classifier.bias.tolist() == [0, 0]


def test_dtype_and_device():
    model = SPDNet((5, 4, 3), 2, eps="10%", dtype=torch.float64, device="cpu")
    assert {t.dtype for t in model.state_dict().values()} == {torch.float64, torch.long}
    meta = SPDNet((5, 3), 2, device="meta")
    assert meta(torch.empty(4, 5, 5, device="meta")).shape == (4, 2)
    assert type(meta.to_empty(device="cpu").bimaps[0].weight) is StiefelParameter


@pytest.mark.parametrize("settings", COMPILED, ids=str)
def test_compiles_in_one_graph(settings):
    torch.compiler.reset()
    model, X = make(settings), random_spd(4, 5)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), model(X))
    with torch.no_grad():
        torch.testing.assert_close(compiled(X), model(X))
    grads = [torch.autograd.grad(m(X).sin().sum(), list(m.parameters())) for m in (compiled, model)]
    torch.testing.assert_close(*grads)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"eps": "30%"}], ids=str)
def test_compiles_with_inductor_and_trains_as_eager_does(settings):
    torch.compiler.reset()
    X, y = random_spd(6, 5), torch.arange(6) % 3
    curves = []
    for wrap in (lambda m: m, lambda m: torch.compile(m, fullgraph=True)):
        model = make(settings).train()
        function = wrap(model)
        optimizer = RiemannianSGD(function.parameters(), lr=0.05, momentum=0.9)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(function(X), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        with torch.no_grad():
            losses.append(nn.functional.cross_entropy(function(X), y).item())
        curves.append(losses)
        for bimap in model.bimaps:
            assert_on_stiefel(bimap.weight)
    assert curves[0] == pytest.approx(curves[1], rel=1e-9)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("strict", [False, True])
def test_exports(settings, strict):
    model, X = make(settings), random_spd(4, 5)
    shapes = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(model, (X,), dynamic_shapes=shapes, strict=strict)
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for batch in (X, X[:2]):
        torch.testing.assert_close(loaded(batch), model(batch))


def test_autocast_lowers_the_classifier_only():
    model, X = make({}, dtype=torch.float32), random_spd(4, 5, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features, logits = model.features(X), model(X)
    assert torch.equal(features, model.features(X))
    assert logits.dtype == torch.bfloat16


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_whole_after_saving(settings):
    model, X = make(settings), random_spd(4, 5)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    loaded = SPDNet(n_classes=3, dtype=torch.float64, **{"dims": (5, 4, 3), **settings}).eval()
    loaded.load_state_dict(torch.load(file, weights_only=True))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    whole = torch.load(file, weights_only=False)
    file = io.BytesIO()
    torch.save(model.state_dict(keep_vars=True), file)
    file.seek(0)
    kept = torch.load(file, weights_only=True)
    assert all(type(kept[n]) is type(p) for n, p in model.named_parameters())
    for twin in (loaded, whole, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(X), model(X))
        for bimap in twin.bimaps:
            assert type(bimap.weight) is StiefelParameter
            assert_on_stiefel(bimap.weight)


def test_state_dict_holds_weights_and_nothing_else():
    assert list(SPDNet((5, 4, 3), 2).state_dict()) == [
        "bimaps.0.weight",
        "bimaps.1.weight",
        "classifier.weight",
    ]


def test_layers_compose_in_a_sequential():
    model = nn.Sequential(BiMap(5, 3), ReEig(), LogEig(), nn.Flatten(), nn.Linear(9, 2))
    optimizer = RiemannianSGD(model.parameters(), lr=0.1)
    model(random_spd(4, 5, dtype=torch.float32)).sum().backward()
    optimizer.step()
    assert_on_stiefel(model[0].weight)


def test_half_precision_input_is_lifted_to_the_weights():
    for dims in ((5,), (5, 3)):
        model = SPDNet(dims, 2)
        X = random_spd(4, 5, dtype=torch.float16)
        torch.testing.assert_close(model(X), model(X.float()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_low_rank_covariances_train_without_nan(dtype):
    """Rank 3 + c I, as real covariances are: ties before and after every layer."""
    A = torch.randn(20, 12, 3, dtype=dtype)
    X = A @ A.mT / 3 + 1e-3 * torch.eye(12, dtype=dtype)
    y = torch.arange(20) % 4
    for eps in (1e-4, 1e-2, "40%"):
        model = SPDNet((12, 9, 7, 5), 4, eps=eps, dtype=dtype)
        optimizer = RiemannianSGD(model.parameters(), lr=0.05, momentum=0.9)
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(X), y)
            loss.backward()
            assert all(p.grad.isfinite().all() for p in model.parameters())
            optimizer.step()
        assert loss.isfinite()


@pytest.mark.parametrize(
    ("change", "tests"),
    [
        (lambda model: None, 1),  # after one ReEig, orthonormal BiMaps need no other
        (lambda model: model.bimaps[1].weight.mul_(0.9), 2),
        (lambda model: setattr(model.reeigs[1], "eps", 0.5), 2),
        (lambda model: setattr(model.reeigs[1], "eps", 1e-6), 1),
    ],
)
def test_only_the_first_reeig_has_to_look(change, tests, monkeypatch):
    from spdnet.linalg import rectify

    torch.manual_seed(0)
    model = SPDNet((12, 9, 6, 3), 2, dtype=torch.float64).eval()  # training warns
    with torch.no_grad():
        change(model)
    X = random_spd(5, 12)
    X[1:3, 0] = X[1:3, :, 0] = 0  # clipped
    real, seen = rectify._has_lower, []
    monkeypatch.setattr(
        rectify, "_has_lower", lambda X, eps: (seen.append(X.shape[-1]), real(X, eps))[1]
    )
    logits = model(X)
    assert seen == [9, 6][:tests]
    Y = X
    for i, bimap in enumerate(model.bimaps):
        Y = clamp_eig(Y, float(model.reeigs[i - 1].eps)) if i else Y
        Y = bimap.weight.mT @ Y @ bimap.weight
    torch.testing.assert_close(logits, model.classifier(logm(Y).flatten(1)))


def test_an_activation_of_ones_own_in_place_of_a_reeig():
    model = SPDNet((8, 6, 4, 2), 2, dtype=torch.float64)
    model.reeigs[1] = SpectralActivation("softplus")
    assert model(random_spd(3, 8)).shape == (3, 2)


def test_matrices_of_too_small_a_unit_are_told_of():
    volts = 1e-12 * random_spd(6, 5)
    with pytest.warns(RuntimeWarning, match="all eigenvalues of all 6 matrices are below eps"):
        outputs = make({})(volts)
    assert outputs.std(0).max() < 1e-12  # nothing is left of them
    for settings in ({"center": "log_euclidean"}, {"eps": "30%"}, {"eps": 1e-15}, {"dims": (5, 3)}):
        model = make(settings).train()
        model.reset_parameters()
        if model.center is not None:
            model.center.fit(volts)
        assert model(volts).std(0).max() > 1e-4
    make({})(torch.cat([volts, random_spd(1, 5)]))  # it is not all of them


def test_matrices_of_too_small_a_unit_under_vmap():
    model = make({})
    assert torch.vmap(model)(1e-12 * random_spd(6, 5)).shape == (6, 3)


def test_which_steps_can_be_captured_in_a_cuda_graph():
    for settings in ({}, {"norm": "brooks"}, {"eps": "10%"}, {"head": "mlp"}):
        assert SPDNet((6, 5, 4), 3, **settings).can_capture()
    model = SPDNet((6, 5, 4), 3, norm="affine_invariant")
    model.norms[1] = SPDBatchNorm(4, "affine_invariant")  # iterates until it has converged
    assert not model.can_capture()
    model = SPDNet((6, 5, 4), 3)
    model.reeigs[0] = torch.nn.Identity()  # not known to be captured
    assert not model.can_capture()
    assert Ensemble([SPDNet((6, 5), 3)]).can_capture()
    assert not Ensemble([model]).can_capture()


def apply_separately(model, X):
    """Apply the layers one after the other, each to matrices."""
    for i, (bimap, norm) in enumerate(zip(model.bimaps, model.norms, strict=True)):
        X = norm(bimap(model.reeigs[i - 1](X) if i else X))
    return model.classifier(model.vectorize(model.logeig(X)))


MATRICES = {
    **{c: with_spectrum(SPECTRA[c]) for c in SPECTRA if c != "one by one"},
    "condition 1e8": with_spectrum(ILL_CONDITIONED),
}


@pytest.mark.parametrize("case", MATRICES)
@pytest.mark.parametrize("eps", [1e-4, 0.9, "30%"])
@pytest.mark.parametrize("norm", ["log_euclidean", "log_cholesky", "affine_invariant", "brooks"])
def test_norms_that_pass_logarithms_equal_separate_layers(norm, eps, case):
    """Compare logits, gradients and running statistics in training and evaluation."""
    torch.manual_seed(0)
    model = SPDNet((4, 4, 3, 2), 3, norm=norm, eps=eps, dtype=torch.float64)
    for layer in model.norms:
        torch.nn.init.uniform_(layer.bias, -0.5, 0.5)
    other = copy.deepcopy(model)
    Q = torch.linalg.qr(random_matrix(12, 4, 4))[0]
    X = symmetrize(Q @ MATRICES[case] @ Q.mT) * torch.linspace(1, 2, 12)[:, None, None]
    for _ in range(3):
        assert_equal_steps(model, other, X)
    assert_equal_steps(model.eval(), other.eval(), X)


def assert_equal_steps(model, other, X):
    # the gradient of a BiMap through the logarithm multiplies rounding errors by the condition
    s = torch.linalg.eigvalsh(X)
    condition = (s[:, -1] / s[:, 0]).max().item()
    model.zero_grad()
    other.zero_grad()
    results = []
    for network, Y in ((model, model(X)), (other, apply_separately(other, X))):
        Y.square().sum().backward()
        gradients = {name: p.grad for name, p in network.named_parameters()}
        results.append({"Y": Y, **gradients, **dict(network.named_buffers())})
    for name, expected in results[1].items():
        bound = max(1e-10, 1e-15 * condition * ("bimaps" in name)) * expected.abs().max().item()
        torch.testing.assert_close(results[0][name], expected, rtol=0, atol=bound, msg=name)


def test_hooks_see_matrices_between_norm_and_reeig():
    model, X, seen = SPDNet((6, 5, 4), 3, norm="log_euclidean"), random_spd(8, 6).float(), []
    expected = model.eval()(X)
    for layer in (*model.norms, model.logeig):
        layer.register_forward_hook(lambda layer, given, made: seen.append(made))
    torch.testing.assert_close(model(X), expected)
    assert_spd(seen[0])
    torch.testing.assert_close(seen[2], logm(seen[1]))
