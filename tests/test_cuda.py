"""Tests on a CUDA device; skipped if there is none."""

import copy
import math

import pytest
import torch
from sklearn.base import clone
from torch.nn.functional import cross_entropy

from spdnet import SPDNet
from spdnet.baselines import RSR, SPDML, NearestNeighbor, SteinSVC
from spdnet.linalg import logm, spectral_map
from spdnet.manifolds import METRICS, MetricNames, affine_invariant, log_euclidean, stiefel
from spdnet.models import MEMBERS
from spdnet.nn import (
    SPDMLR,
    BiMap,
    MatrixSqrt,
    ReEig,
    SPDBatchNorm,
    SPDDomainBatchNorm,
    SPDPool,
    SPDResidual,
)
from spdnet.optim import RiemannianAdam, RiemannianSGD
from spdnet.testing import assert_on_stiefel
from tests.cases import SPECTRA, random_spd, random_symmetric, with_spectrum
from tests.linalg.test_spectral import FUNCTIONS, on_symmetric_part, output_and_gradient

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DTYPES = [torch.float32, torch.float64]


@pytest.mark.parametrize("f", FUNCTIONS, ids=str)
@pytest.mark.parametrize("n", [4, 17, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_spectral_functions_equal_cpu(f, n, dtype):
    X, G = random_spd(5, n, dtype=dtype), random_symmetric(n).to(dtype)
    expected = output_and_gradient(f, X.double(), G.double())
    got = output_and_gradient(f, X.cuda(), G.cuda()).cpu().double()
    tolerance = 1e-4 if dtype == torch.float32 else 1e-11
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("f", FUNCTIONS, ids=str)
@pytest.mark.parametrize("case", ["exact ties", "identity", "low rank + c I"])
def test_spectral_derivatives_at_ties(f, case):
    X = with_spectrum(SPECTRA[case]).cuda().requires_grad_()
    assert torch.autograd.gradcheck(on_symmetric_part(f), X, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(on_symmetric_part(f), X, fast_mode=True)


@pytest.mark.parametrize("f", FUNCTIONS, ids=str)
@pytest.mark.parametrize("n", [8, 50])
def test_result_is_independent_of_other_matrices_in_batch(f, n):
    X, mates = random_spd(6, n).cuda(), random_spd(6, n, seed=1).cuda() * 1e4
    G = random_symmetric(n).cuda()
    mates[2] = X[2]
    assert torch.equal(output_and_gradient(f, X, G)[:, 2], output_and_gradient(f, mates, G)[:, 2])


def test_float32_log_with_half_the_eigenvalues_tied():
    X = with_spectrum([1e-3] * 20 + torch.linspace(2e-3, 10.0, 20).tolist()).float()
    G = random_symmetric(40).float()
    grads = []
    for x in (X.cuda(), X.double()):
        x.requires_grad_()
        grads.append(torch.autograd.grad(logm(x), x, G.to(x))[0].double().cpu())
    assert (grads[0] - grads[1]).norm() / grads[1].norm() < 2e-6


@pytest.mark.parametrize("manifold", [log_euclidean, affine_invariant])
def test_manifolds_equal_cpu(manifold):
    X, Y, V = random_spd(3, 5), random_spd(3, 5, seed=1), random_symmetric(3, 5)
    for name, arguments in {
        "distance": (X, Y),
        "exp": (X, 0.1 * V),
        "log": (X, Y),
        "transport": (X, Y, V),
        "mean": (X,),
    }.items():
        f = getattr(manifold, name)
        torch.testing.assert_close(f(*(a.cuda() for a in arguments)).cpu(), f(*arguments))


@pytest.mark.parametrize("method", stiefel.RETRACTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_retractions(method, dtype):
    W = stiefel.random_point(3, 40, 20, device="cuda", dtype=dtype)
    V = stiefel.project_tangent(W, torch.randn_like(W))
    assert_on_stiefel(stiefel.retract(W, V, method))


@pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam])
@pytest.mark.parametrize("compiled", [False, True])
def test_training_equals_cpu(optimizer, compiled):
    torch.compiler.reset()
    X, y = random_spd(12, 8), torch.arange(12) % 3
    model = SPDNet((8, 6, 4), 3, eps=0.1, dtype=torch.float64)
    curves = []
    for device in ("cpu", "cuda"):
        twin = copy.deepcopy(model).to(device)
        run = torch.compile(twin, fullgraph=True) if compiled and device == "cuda" else twin
        step = optimizer(run.parameters(), lr=0.02)
        losses = []
        for _ in range(10):
            step.zero_grad()
            loss = cross_entropy(run(X.to(device), check=False), y.to(device))
            loss.backward()
            step.step()
            losses.append(loss.item())
        curves.append(losses)
        for bimap in twin.bimaps:
            assert_on_stiefel(bimap.weight)
    assert curves[0] == pytest.approx(curves[1], rel=1e-8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_and_half_precision(dtype):
    model = SPDNet((8, 6, 4), 3, eps=0.1).cuda()
    X = random_spd(5, 8, dtype=torch.float32).cuda()
    with torch.autocast("cuda", dtype=dtype):
        features = model.features(X)
        assert model(X).dtype == dtype
    assert torch.equal(features, model.features(X))
    for f in FUNCTIONS:
        assert spectral_map(X.to(dtype), f).dtype == dtype


def test_errors_name_the_invalid_matrix():
    X = torch.eye(3, device="cuda").repeat(4, 1, 1)
    X[2, 0, 0] = -1
    with pytest.raises(ValueError, match=r"X\[2\] is not positive definite"):
        logm(X)
    X[3, 1, 1] = float("nan")
    with pytest.raises(ValueError, match=r"X\[3\] contains NaN"):
        SPDNet((3, 2), 2).cuda()(X)


@pytest.mark.parametrize("n", [1, 2, 31, 33, 70])
@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex64, torch.complex128])
def test_batched_solver(n, dtype):
    from spdnet.linalg import cusolver, eigh

    if not cusolver.is_available():
        pytest.skip("no batched solver in this CUDA")
    X = random_spd(7, n, dtype=dtype).cuda()
    s, U = eigh(X)
    unit = torch.finfo(dtype).eps
    eye = torch.eye(n, dtype=dtype, device="cuda")
    torch.testing.assert_close((U * s[:, None]) @ U.mH, X, rtol=0, atol=100 * unit)
    torch.testing.assert_close(U.mH @ U, eye.expand(7, n, n), rtol=0, atol=50 * unit)
    torch.testing.assert_close(s.cpu(), torch.linalg.eigvalsh(X.cpu()), rtol=0, atol=100 * unit)
    assert eigh(X[:0])[0].shape == (0, n)
    assert eigh(X.reshape(7, 1, n, n))[1].shape == (7, 1, n, n)
    ties = eigh(eye.expand(3, n, n))[0]
    torch.testing.assert_close(ties, torch.ones_like(ties))


def test_batched_solver_returns_nan_for_nan_input():
    from spdnet.linalg import eigh

    X = random_spd(4, 40).cuda()
    X[1, 2, 3] = float("nan")
    s, _ = eigh(X, check=False)
    assert s.isnan().all(-1).tolist() == [False, True, False, False]


def test_cuda_streams_and_graphs():
    from spdnet.linalg import clamp_eig, eigh

    X = random_spd(5, 40).cuda()
    expected = clamp_eig(X, 0.3)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        s, U = eigh(X, check=False)
        again = clamp_eig(X, 0.3, check=False)
    torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close((U * s[:, None]) @ U.mT, X)
    torch.testing.assert_close(again, expected)
    static = X.clone()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = clamp_eig(static, 0.3, check=False)
    static.copy_(2 * X)
    graph.replay()
    torch.testing.assert_close(result, clamp_eig(2 * X, 0.3))


def test_large_batch_is_decomposed_in_chunks():
    from spdnet.linalg import eigh

    X = random_spd(3001, 12).cuda()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    s, U = eigh(X, check=False)
    assert torch.cuda.max_memory_allocated() - before < 256 * 2**20
    torch.testing.assert_close((U * s[:, None]) @ U.mT, X)


@pytest.mark.parametrize("dims", [(20, 15), (20, 15, 10), (20, 15, 10, 6)])
@pytest.mark.parametrize("kind", ["full", "clipped", "again"])
@pytest.mark.parametrize("make", [RiemannianSGD, RiemannianAdam])
def test_graphed_steps_equal_ordinary_steps(kind, make, dims):
    from spdnet.training.graphs import GraphedStep

    X = random_spd(12, 20).cuda()
    if kind != "full":
        X[3:5, 0] = X[3:5, :, 0] = 0
        X[3:5, 0, 0] = 1e-7
    y = (torch.arange(12) % 3).cuda()
    more = {"capturable": True} if make is RiemannianAdam else {"momentum": 0.9}
    losses = []
    for graphed in (False, True):
        torch.manual_seed(0)
        model = SPDNet(dims, 3, dtype=torch.float64, device="cuda")
        if kind == "again" and len(dims) > 3:  # clipped by the second ReEig, too
            model.reeigs[1].eps = 0.5
        optimizer = make(model.parameters(), lr=0.05, **more)
        step = GraphedStep(model, optimizer)
        found = []
        for i in range(30):
            for group in optimizer.param_groups:
                group["lr"] = 0.05 / (1 + i)
            order = torch.randperm(12, generator=torch.Generator().manual_seed(i)).cuda()
            if graphed:
                found.append(step(X[order], y[order])[0])
            else:
                optimizer.zero_grad()
                loss = cross_entropy(model(X[order]), y[order])
                loss.backward()
                optimizer.step()
                found.append(loss.item())
        losses.append(found)
        for bimap in model.bimaps:
            assert_on_stiefel(bimap.weight)
    assert losses[1] == pytest.approx(losses[0], rel=1e-9)


NETWORKS = [
    {},
    {"recipe": "paper"},
    *({"norm": norm} for norm in ("brooks", "log_euclidean", "affine_invariant", "log_cholesky")),
    *({"head": metric} for metric in MetricNames("logits")),
    {"head": "mlp", "dropout": 0.0},
    {"model": "multibranch"},
    {"model": "tsmnet"},
]


@pytest.mark.parametrize("settings", NETWORKS, ids=str)
def test_trainer_equals_cpu(settings):
    from spdnet.training import RECIPES, Samples, Trainer, build, make_fabric

    recipe = RECIPES[settings.get("recipe", "fast")]
    settings = {k: v for k, v in settings.items() if k != "recipe"}
    settings = recipe.changed(epochs=4, batch_size=8, **settings)  # the last batch is smaller
    X, y = random_spd(50, 10), torch.arange(50) % 3
    X[y == 1, :3] *= 2
    X[y == 1, :, :3] *= 2
    dims = (10, 6) if settings.takes_signals else (10, 8, 6)
    data = Samples(X, y, domain=y % 2 if settings.takes_signals else None)
    curves = []
    for device in ("cpu", "cuda"):
        model = build(settings, dims, 3, data).to(device)
        fabric = make_fabric(device)
        progress = Trainer(model, data, settings, val=data, fabric=fabric).run()
        curves.append(
            [row[k] for row in progress.history for k in ("loss", "val_loss", "accuracy")]
        )
    assert curves[1] == pytest.approx(curves[0], rel=1e-6)


GRAPHED = [
    {},
    {"eps": "10%"},
    {"eps": 0.5},  # the ReEigs clip
    *({"norm": norm} for norm in ("brooks", "log_euclidean", "affine_invariant", "log_cholesky")),
    {"norm": "log_euclidean", "eps": 0.5, "head": "mlp"},  # a batch is repeated
    {"norm": "affine_invariant", "eps": "20%", "head": "log_cholesky"},
    {"head": "mlp"},
    {"ensemble": 3, "head": "mlp"},
    {"ensemble": 3, "eps": 0.5},
    {"model": "portfolio", "members": tuple(MEMBERS), "label_smoothing": 0.1},
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("settings", GRAPHED, ids=str)
def test_graphed_training_equals_ordinary_training(settings, weighted):
    from spdnet.training import RECIPES, Samples, Trainer, build, make_fabric

    recipe = RECIPES["fast"].changed(epochs=4, batch_size=8, **settings)
    X, y = random_spd(50, 10), torch.arange(50) % 3
    X[y == 1, :3] *= 2
    X[y == 1, :, :3] *= 2
    data = Samples(X, y, weight=torch.linspace(0.5, 2, 50).double() if weighted else None)
    dims = () if "model" in settings else (10, 8, 6)
    curves = []
    for graphed in (False, True):
        model = build(recipe, dims, 3, data).to("cuda")
        trainer = Trainer(model, data, recipe, val=data, fabric=make_fabric("cuda"))
        assert trainer._graphed is not None
        trainer._graphed.failed = not graphed
        history = trainer.run().history
        assert trainer._graphed.failed is not graphed
        curves.append([row[k] for row in history for k in ("loss", "val_loss", "accuracy")])
    assert curves[1] == pytest.approx(curves[0], rel=1e-6)


def test_steps_that_cannot_be_captured_are_ordinary(caplog):
    from spdnet.training.graphs import GraphedStep

    class Reads(torch.nn.Linear):
        def forward(self, X):
            return super().forward(X) * (1.0 if X.sum().item() > 0 else 2.0)

    model = Reads(3, 2, device="cuda")
    step = GraphedStep(model, RiemannianSGD(model.parameters(), lr=0.1))
    X, y = torch.ones(4, 3, device="cuda"), torch.zeros(4, device="cuda").long()
    losses = [step(X, y)[0] for _ in range(3)]
    assert step.failed
    assert losses[2] < losses[1] < losses[0]
    assert "cannot be captured" in caplog.text


LAYERS = {
    "channels": (lambda w: BiMap(6, 4, in_channels=3, out_channels=2, **w), (4, 3)),
    "pool": (lambda w: SPDPool("channels", "weighted", n_items=3, **w), (4, 3)),
    "pool, maximum": (lambda w: SPDPool("channels", "max", **w), (4, 3)),
    "pool, frechet": (lambda w: SPDPool("channels", "frechet", **w), (4, 3)),
    "pool, blocks": (lambda w: SPDPool("blocks", **w), (4,)),
    **{
        f"norm {metric}": (lambda w, m=metric: SPDBatchNorm(6, m, **w), (8,))
        for metric in ("log_euclidean", "affine_invariant", "log_cholesky")
    },
    "norm, one step": (
        lambda w: SPDBatchNorm(6, "affine_invariant", karcher_steps=1, root="cholesky", **w),
        (8,),
    ),
    "norm of domains": (lambda w: SPDDomainBatchNorm(6, 1, bias=True, **w), (8,)),
    **{
        f"MLR {metric}": (lambda w, m=metric: SPDMLR(6, 3, m, **w), (8,))
        for metric in MetricNames("logits")
    },
    "residual": (lambda w: SPDResidual(ReEig(0.5, **w)), (8,)),
    "root": (lambda w: MatrixSqrt(), (8,)),
    "root, Newton-Schulz": (lambda w: MatrixSqrt("newton_schulz"), (8,)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_cpu(name):
    make, batch = LAYERS[name]
    found = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        layer = make({"dtype": torch.float64}).to(device)
        X = random_spd(math.prod(batch), 6).reshape(*batch, 6, 6).to(device).requires_grad_()
        for _ in range(2):  # training mode, then evaluation mode
            Y = layer(X)
            grads = torch.autograd.grad(Y.square().sum(), [X, *layer.parameters()])
            found += [[t.detach().cpu() for t in (Y, *grads, *layer.buffers())]]
            layer.eval()
    torch.testing.assert_close(found[2:], found[:2], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        NearestNeighbor("stein", k=3),
        NearestNeighbor("affine_invariant"),
        NearestNeighbor("log_euclidean", max_train=20),
        SPDML("stein", 3, tol=0.1),
        SPDML("affine_invariant", 3, tol=0.1, init="lda"),
        RSR(),
        SteinSVC(),
    ],
    ids=str,
)
def test_baselines_equal_cpu(model):
    X, y = random_spd(40, 6).numpy(), torch.arange(40).numpy() % 2
    X[y == 1, 0] *= 3
    X[y == 1, :, 0] *= 3
    found = [
        clone(model).set_params(device=device).fit(X[:30], y[:30]) for device in ("cpu", "cuda")
    ]
    assert (found[0].predict(X[30:]) == found[1].predict(X[30:])).all()
    if isinstance(model, SPDML):
        assert found[1].costs_ == pytest.approx(found[0].costs_, rel=1e-6)
        ours, theirs = (torch.linalg.eigvalsh(torch.from_numpy(m.transform(X))) for m in found)
        torch.testing.assert_close(ours, theirs)  # the sign of eigenvectors is arbitrary


@pytest.mark.parametrize("metric", METRICS)
def test_pairwise_distances_equal_cpu(metric):
    X = random_spd(9, 40)
    expected = METRICS[metric].pairwise(X)
    got = METRICS[metric].pairwise(X.cuda()).cpu()
    torch.testing.assert_close(got, expected, rtol=1e-8, atol=1e-9)


def test_off_manifold_weight_warns_without_synchronizing():
    layer = BiMap(6, 4, device="cuda")
    X = torch.eye(6, device="cuda")

    def call_and_wait(times):
        for _ in range(times):
            layer(X)
            torch.cuda.synchronize()

    call_and_wait(2)  # the second call reads the result of the first check
    with torch.no_grad():
        layer.weight.mul_(2)
    with pytest.warns(RuntimeWarning, match="use spdnet.optim.RiemannianSGD"):
        call_and_wait(10)
    copy.deepcopy(layer)
    started = BiMap(6, 4, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        started(X)  # leaves a pending result
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        started(X, check=False)
    graph.replay()
    copy.deepcopy(started)(X)
