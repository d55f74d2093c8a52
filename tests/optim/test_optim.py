import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.optim import swa_utils

from spdnet import SPDNet
from spdnet.manifolds import stiefel
from spdnet.manifolds.stiefel import METRICS, RETRACTIONS, StiefelParameter
from spdnet.nn import BiMap
from spdnet.optim import AveragedModel, RiemannianAdam, RiemannianSGD
from spdnet.testing import assert_on_stiefel, assert_tangent
from tests.cases import every_dtype, random_spd

SGD_SETTINGS = [
    {},
    {"weight_decay": 0.1},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    {"momentum": 0.9, "dampening": 0.5, "maximize": True},
]
ADAM_SETTINGS = [
    {},
    {"weight_decay": 0.1},
    {"amsgrad": True},
    {"betas": (0.5, 0.7), "eps": 1e-3, "maximize": True, "amsgrad": True, "weight_decay": 0.1},
    {"fused": True, "weight_decay": 0.1},
]
OPTIMIZERS = [(RiemannianSGD, torch.optim.SGD, s) for s in SGD_SETTINGS] + [
    (RiemannianAdam, torch.optim.Adam, s) for s in ADAM_SETTINGS
]
every_optimizer = pytest.mark.parametrize(("ours", "torchs", "settings"), OPTIMIZERS)


def model_and_data(dtype=torch.float64, **settings):
    torch.manual_seed(0)
    model = SPDNet((6, 4, 4, 4), 3, bias=True, dtype=dtype, **settings)
    return model, random_spd(8, 6, dtype=dtype), torch.arange(8) % 3


def train(model, optimizer, X, y, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(X), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@every_optimizer
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_plain_parameters_equal_torch(ours, torchs, settings, dtype):
    """Bitwise equal, also if a parameter has no gradient in some steps."""
    a = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).to(dtype)
    b = copy.deepcopy(a)
    optimizers = (
        ours(a.parameters(), lr=0.1, **settings),
        torchs(b.parameters(), lr=0.1, **settings),
    )
    X = torch.randn(10, 5, dtype=dtype)
    for step in range(6):
        for model, optimizer in zip((a, b), optimizers, strict=True):
            optimizer.zero_grad()
            hidden = model[0](X)
            out = hidden.sum() if step % 3 == 1 else model[2](model[1](hidden)).square().sum()
            out.backward()
            optimizer.step()
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            assert torch.equal(p, q)


@every_dtype
@every_optimizer
def test_plain_parameters_equal_torch_beside_stiefel_parameters(ours, torchs, settings, dtype):
    model, X, y = model_and_data(dtype)
    twin = copy.deepcopy(model)
    a = ours(model.parameters(), lr=0.01, **settings)
    b = torchs(twin.classifier.parameters(), lr=0.01, **settings)
    for m in (model, twin):
        nn.functional.cross_entropy(m(X), y).backward()
    a.step()
    b.step()
    for p, q in zip(model.classifier.parameters(), twin.classifier.parameters(), strict=True):
        assert torch.equal(p, q)


def test_fused_has_no_effect_on_complex_parameters():
    updated = []
    for fused in (False, True):
        p = nn.Parameter(torch.tensor([1.0 + 2.0j, 3.0 - 1.0j]))
        optimizer = RiemannianAdam([p], lr=0.1, fused=fused)
        p.abs().sum().backward()
        optimizer.step()
        updated.append(p.detach())
    torch.testing.assert_close(*updated, rtol=0, atol=0)


@every_dtype
@every_optimizer
def test_stiefel_weights_stay_on_manifold(ours, torchs, settings, dtype):
    model, X, y = model_and_data(dtype)
    optimizer = ours(model.parameters(), lr=0.05, **settings)
    before = [b.weight.detach().clone() for b in model.bimaps]
    losses = train(model, optimizer, X, y, 10)
    for bimap, old in zip(model.bimaps, before, strict=True):
        assert_on_stiefel(bimap.weight)
        assert not torch.equal(bimap.weight, old)
    assert (losses[-1] > losses[0]) == settings.get("maximize", False)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("retraction", RETRACTIONS)
@pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam])
def test_weights_stay_on_manifold_for_every_metric_and_retraction(optimizer, metric, retraction):
    model, X, y = model_and_data()
    step = optimizer(model.parameters(), lr=0.02, metric=metric, retraction=retraction)
    losses = train(model, step, X, y, 20)
    assert losses[-1] < losses[0]
    for bimap in model.bimaps:
        assert_on_stiefel(bimap.weight)


@pytest.mark.parametrize(
    ("optimizer", "settings"), [(RiemannianSGD, {"momentum": 0.9}), (RiemannianAdam, {})]
)
def test_complex_weights_without_imaginary_part_are_stepped_as_real_ones(optimizer, settings):
    real, other = (
        BiMap(5, 3, dtype=dtype, check=False) for dtype in (torch.float64, torch.complex128)
    )
    with torch.no_grad():
        other.weight.copy_(real.weight)
    X = random_spd(4, 5)
    optimizers = [optimizer(layer.parameters(), lr=0.1, **settings) for layer in (real, other)]
    for _ in range(3):
        for layer, step in zip((real, other), optimizers, strict=True):
            step.zero_grad()
            layer(X.to(layer.weight.dtype)).real.sin().sum().backward()
            step.step()
    torch.testing.assert_close(other.weight, real.weight.to(torch.complex128))
    if optimizer is RiemannianAdam:
        assert optimizers[1].state[other.weight]["exp_avg_sq"].dtype == torch.float64


def test_sgd_step_equals_formula():
    W = StiefelParameter(stiefel.random_point(5, 3, dtype=torch.float64))
    G = torch.randn(5, 3, dtype=torch.float64)
    for metric in METRICS:
        for retraction in RETRACTIONS:
            p = copy.deepcopy(W)
            p.grad = G.clone()
            RiemannianSGD([p], lr=0.1, metric=metric, retraction=retraction).step()
            R = stiefel.riemannian_gradient(W, G, metric)
            torch.testing.assert_close(p.data, stiefel.retract(W, -0.1 * R, retraction).data)


def test_momentum_is_tangent_and_starts_as_gradient():
    model, X, y = model_and_data()
    optimizer = RiemannianSGD(model.parameters(), lr=0.05, momentum=0.9)
    W = model.bimaps[0].weight
    old = W.detach().clone()
    train(model, optimizer, X, y, 1)
    G = stiefel.riemannian_gradient(old, W.grad)
    expected = stiefel.transport(old, W.detach(), G)
    torch.testing.assert_close(optimizer.state[W]["momentum_buffer"], expected)
    for _ in range(5):
        train(model, optimizer, X, y, 1)
        for bimap in model.bimaps:
            assert_tangent(bimap.weight, optimizer.state[bimap.weight]["momentum_buffer"])


def test_momentum_of_the_grassmann_metric_stays_horizontal():
    model, X, y = model_and_data()
    optimizer = RiemannianSGD(model.parameters(), lr=0.05, momentum=0.9, metric="grassmann")
    train(model, optimizer, X, y, 5)
    for bimap in model.bimaps:
        vertical = bimap.weight.mT @ optimizer.state[bimap.weight]["momentum_buffer"]
        torch.testing.assert_close(vertical, torch.zeros_like(vertical))


def test_adam_has_one_second_moment_per_matrix():
    model, X, y = model_and_data()
    optimizer = RiemannianAdam(model.parameters(), lr=0.05)
    W = model.bimaps[0].weight
    old = W.detach().clone()
    train(model, optimizer, X, y, 1)
    state = optimizer.state[W]
    G = stiefel.riemannian_gradient(old, W.grad)
    torch.testing.assert_close(state["exp_avg_sq"], 0.001 * G.square().sum().view(1, 1))
    # the first step has length lr, whatever the size of the gradient
    torch.testing.assert_close(W.detach(), stiefel.retract(old, -0.05 * G / G.norm()))
    for _ in range(5):
        train(model, optimizer, X, y, 1)
        assert_tangent(W, state["exp_avg"])


def test_channels_are_stepped_as_separate_matrices():
    W = StiefelParameter(stiefel.random_point(2, 3, 5, 2, dtype=torch.float64))
    W.grad = torch.randn_like(W)
    single = StiefelParameter(W[1, 2].detach().clone())
    single.grad = W.grad[1, 2].clone()
    for p in (W, single):
        optimizer = RiemannianAdam([p], lr=0.1)
        optimizer.step()
        optimizer.step()
    torch.testing.assert_close(W[1, 2].data, single.data)


@every_optimizer
def test_equal_shapes_are_batched(ours, torchs, settings, monkeypatch):
    calls = []

    def counted(W, V, method):
        calls.append(tuple(W.shape))
        return stiefel.retract(W, V, method)

    monkeypatch.setattr(f"{ours.__module__}.retract", counted)
    model, X, y = model_and_data()
    together = ours(model.parameters(), lr=0.05, **settings)
    train(model, together, X, y, 1)
    assert sorted(calls) == [(2, 4, 4), (6, 4)]


@every_optimizer
def test_step_is_independent_of_other_parameters(ours, torchs, settings):
    model, X, y = model_and_data()
    twin = copy.deepcopy(model)
    together = ours(model.parameters(), lr=0.05, **settings)
    alone = [ours([p], lr=0.05, **settings) for p in twin.parameters()]
    for _ in range(4):
        for m in (model, twin):
            m.zero_grad()
            nn.functional.cross_entropy(m(X), y).backward()
        together.step()
        for optimizer in alone:
            optimizer.step()
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-12)


@every_optimizer
def test_step_keeps_gradients(ours, torchs, settings):
    model, X, y = model_and_data()
    optimizer = ours(model.parameters(), lr=0.05, **settings)
    nn.functional.cross_entropy(model(X), y).backward()
    before = [p.grad.clone() for p in model.parameters()]
    for _ in range(2):
        optimizer.step()
    for p, g in zip(model.parameters(), before, strict=True):
        assert torch.equal(p.grad, g)


@every_optimizer
def test_state_dict_round_trip(ours, torchs, settings):
    model, X, y = model_and_data()
    optimizer = ours(model.parameters(), lr=0.05, **settings)
    train(model, optimizer, X, y, 3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    twin, _, _ = model_and_data()
    other = ours(twin.parameters(), lr=1.0)
    twin.load_state_dict(saved["model"])
    other.load_state_dict(saved["optimizer"])
    assert train(model, optimizer, X, y, 3) == train(twin, other, X, y, 3)
    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(p, q)
        assert type(p) is type(q)


@every_optimizer
def test_deepcopy_and_pickle(ours, torchs, settings):
    model, X, y = model_and_data()
    optimizer = ours(model.parameters(), lr=0.05, **settings)
    train(model, optimizer, X, y, 2)
    pairs = [copy.deepcopy((model, optimizer)), pickle.loads(pickle.dumps((model, optimizer)))]
    expected = train(model, optimizer, X, y, 2)
    for twin, other in pairs:
        assert train(twin, other, X, y, 2) == expected
        for bimap in twin.bimaps:
            assert_on_stiefel(bimap.weight)


def test_weight_decay_skips_stiefel_weights():
    for optimizer in (RiemannianSGD, RiemannianAdam):
        runs = []
        for decay in (0.0, 0.5):
            layer = BiMap(5, 3, dtype=torch.float64)
            with torch.no_grad():
                layer.weight.copy_(torch.eye(5, 3))
            step = optimizer(layer.parameters(), lr=0.1, weight_decay=decay)
            layer(random_spd(2, 5)).sin().sum().backward()
            step.step()
            runs.append(layer.weight.detach())
        assert torch.equal(*runs)


def test_closure_and_parameters_without_gradient():
    model, X, y = model_and_data()
    frozen = model.bimaps[0].weight.requires_grad_(False)
    before = frozen.clone()
    for optimizer in (RiemannianSGD, RiemannianAdam):
        step = optimizer(model.parameters(), lr=0.1)

        def closure(step=step):
            step.zero_grad()
            loss = nn.functional.cross_entropy(model(X), y)
            loss.backward()
            return loss

        assert step.step(closure).item() > 0
    assert torch.equal(frozen, before)


def test_parameter_groups_and_schedulers():
    model, X, y = model_and_data()
    optimizer = RiemannianSGD(
        [
            {"params": model.bimaps.parameters(), "lr": 0.5, "retraction": "polar"},
            {"params": model.classifier.parameters()},
        ],
        lr=0.1,
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=2)
    W, old = model.bimaps[0].weight, model.bimaps[0].weight.detach().clone()
    train(model, optimizer, X, y, 1)
    G = stiefel.riemannian_gradient(old, W.grad)
    torch.testing.assert_close(W.data, stiefel.retract(old, -0.5 * G, "polar"))
    scheduler.step()
    assert [g["lr"] for g in optimizer.param_groups] == pytest.approx([0.25, 0.05])
    assert [g["retraction"] for g in optimizer.param_groups] == ["polar", "qr"]


def test_step_inside_autocast_keeps_precision():
    model, X, y = model_and_data(torch.float32)
    twin = copy.deepcopy(model)
    for m, enabled in ((model, False), (twin, True)):
        optimizer = RiemannianSGD(m.parameters(), lr=0.1, momentum=0.9)
        nn.functional.cross_entropy(m(X), y).backward()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            optimizer.step()
            optimizer.step()
    assert torch.equal(model.bimaps[0].weight, twin.bimaps[0].weight)


def test_stiefel_weights_are_recognized_under_ddp(tmp_path):
    distributed = torch.distributed
    store = f"file://{tmp_path}/store"
    distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        model, X, y = model_and_data()
        wrapped = nn.parallel.DistributedDataParallel(model)
        twin, _, _ = model_and_data()
        runs = [
            train(m, RiemannianSGD(m.parameters(), lr=0.1, momentum=0.9), X, y, 4)
            for m in (wrapped, twin)
        ]
        assert runs[0] == runs[1]
        for bimap in model.bimaps:
            assert_on_stiefel(bimap.weight)
    finally:
        distributed.destroy_process_group()


@pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_compiled_step_stays_on_manifold(optimizer, backend):
    torch.compiler.reset()
    models = []
    for compiled in (False, True):
        model, X, y = model_and_data()
        step = optimizer(model.parameters(), lr=0.1)
        run = torch.compile(step.step, backend=backend) if compiled else step.step
        for _ in range(3):
            step.zero_grad()
            nn.functional.cross_entropy(model(X), y).backward()
            run()
        for bimap in model.bimaps:
            assert_on_stiefel(bimap.weight)
        models.append(model)
    for p, q in zip(*(m.parameters() for m in models), strict=True):
        torch.testing.assert_close(p, q)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam])
def test_half_precision_weights_move(optimizer, dtype):
    W = stiefel.random_point(20, 8)
    p = StiefelParameter(W.to(dtype))
    q = StiefelParameter(W.to(dtype).float())
    steps = [optimizer([x], lr=0.1) for x in (p, q)]
    for G in torch.randn(3, 20, 8):
        for x, step in zip((p, q), steps, strict=True):
            x.grad = G.to(x.dtype)
            step.step()
    torch.testing.assert_close(p.float(), q.data, rtol=0, atol=0.05)


def test_adam_float16_error_suggests_eps():
    """An eps of 1e-8 is zero in float16, and the code of torch divides by it."""
    model, X, y = model_and_data(torch.float32)
    message = "eps >= 6.1e-05 for parameters in torch.float16, got 1e-08.*torch.autocast"
    early = RiemannianAdam(model.parameters(), lr=0.01)
    model.half()
    with pytest.raises(ValueError, match=message):
        RiemannianAdam(model.parameters(), lr=0.01)
    nn.functional.cross_entropy(model(X.half()).float(), y).backward()
    with pytest.raises(ValueError, match=message):
        early.step()


@pytest.mark.parametrize(
    ("optimizer", "dtype", "settings"),
    [
        (RiemannianAdam, torch.float16, {"eps": 1e-4}),
        (RiemannianAdam, torch.bfloat16, {}),
        (RiemannianSGD, torch.float16, {"momentum": 0.9}),
        (RiemannianSGD, torch.bfloat16, {"momentum": 0.9}),
    ],
)
def test_models_in_half_precision_train(optimizer, dtype, settings):
    model, X, y = model_and_data(torch.float32)
    model, X = model.to(dtype), X.to(dtype)
    steps = optimizer(model.parameters(), lr=0.02, **settings)
    losses = []
    for _ in range(20):
        steps.zero_grad()
        loss = nn.functional.cross_entropy(model(X).float(), y)
        loss.backward()
        steps.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    for bimap in model.bimaps:
        assert_on_stiefel(bimap.weight.float(), tol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(
    "settings",
    [{}, {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.5)}],
    ids=["mean", "exponential"],
)
def test_averaged_weights_stay_on_manifold(settings):
    model, X, y = model_and_data()
    optimizer = RiemannianSGD(model.parameters(), lr=0.5)
    ours, theirs = AveragedModel(model, **settings), swa_utils.AveragedModel(model, **settings)
    for _ in range(4):
        train(model, optimizer, X, y, 1)
        ours.update_parameters(model)
        theirs.update_parameters(model)
    for bimap, plain in zip(ours.module.bimaps, theirs.module.bimaps, strict=True):
        assert_on_stiefel(bimap.weight)
        with pytest.raises(AssertionError):
            assert_on_stiefel(plain.weight)
        assert (bimap.weight - plain.weight).norm() < 0.5
    torch.testing.assert_close(
        ours.module.classifier.weight, theirs.module.classifier.weight, rtol=0, atol=0
    )


@every_optimizer
def test_model_dtype_may_change_between_steps(ours, torchs, settings):
    model, X, y = model_and_data(torch.float32)
    optimizer = ours(model.bimaps.parameters(), lr=0.05, **settings)
    train(model, optimizer, X, y, 2)
    model.double()
    train(model, optimizer, X.double(), y, 2)
    for bimap in model.bimaps:
        assert_on_stiefel(bimap.weight)


def test_load_state_of_torch_optimizers():
    model, X, y = model_and_data()
    theirs = torch.optim.SGD(model.parameters(), lr=0.3)
    ours = RiemannianSGD(model.parameters(), lr=0.1, metric="canonical")
    ours.load_state_dict(theirs.state_dict())
    assert ours.param_groups[0]["lr"] == 0.3
    assert ours.param_groups[0]["metric"] == "canonical"
    train(model, ours, X, y, 1)
    theirs = torch.optim.Adam(model.parameters())
    train(model, theirs, X, y, 1)
    ours = RiemannianAdam(model.parameters())
    ours.load_state_dict(theirs.state_dict())
    with pytest.raises(ValueError, match="one second moment for each Stiefel matrix"):
        train(model, ours, X, y, 1)


def drift(optimizer, shape, steps, **settings):
    W = StiefelParameter(stiefel.random_point(*shape))
    step = optimizer([W], lr=0.1, **settings)
    directions = torch.randn(16, *shape)
    worst = 0.0
    for i in range(steps):
        W.grad = directions[i % 16]
        step.step()
        if i % 500 == 0 or i == steps - 1:
            A = W.detach().double()
            eye = torch.eye(shape[-1], dtype=torch.float64)
            worst = max(worst, (A.mT @ A - eye).norm().item())
    return worst


@pytest.mark.parametrize("retraction", RETRACTIONS)
def test_orthonormality_does_not_drift_in_float32(retraction):
    for optimizer in (RiemannianSGD, RiemannianAdam):
        assert drift(optimizer, (30, 12), 500, retraction=retraction) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("retraction", RETRACTIONS)
@pytest.mark.parametrize("settings", [{}, {"momentum": 0.9}])
def test_ten_thousand_steps_in_float32(retraction, settings):
    assert drift(RiemannianSGD, (100, 50), 10_000, retraction=retraction, **settings) < 1e-5


@pytest.mark.slow
def test_ten_thousand_steps_of_adam_in_float32():
    assert drift(RiemannianAdam, (100, 50), 10_000) < 1e-5
