"""Networks, estimators and optimizers of spdnet together with other libraries."""

import copy
import inspect
import io
import pickle
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

from spdnet import SPDNet, SPDNetClassifier, covariance
from spdnet.manifolds import METRICS, MetricNames
from spdnet.manifolds.stiefel import StiefelParameter
from spdnet.models import ConvSPDNet, MultiBranchSPDNet, O2PNet, SignalNet, TSMNet
from spdnet.optim import RiemannianAdam, RiemannianSGD
from spdnet.testing import assert_on_stiefel
from spdnet.training import RECIPES, Samples, Trainer, build
from tests.cases import random_spd

PAGE = Path(__file__).parent.parent / "docs" / "interoperability.md"
OPTIONAL = [
    "braindecode",
    "geoopt",
    "lightning",
    "optuna",
    "pyriemann",
    "safetensors",
    "skorch",
    "tensorboard",
]
both_optimizers = pytest.mark.parametrize("optimizer", [RiemannianSGD, RiemannianAdam])


def recordings(n=60, channels=4, length=50, dtype=np.float64):
    """Return signals of two classes; the second has a larger variance in one channel."""
    X = np.random.default_rng(0).normal(size=(n, channels, length))
    y = np.arange(n) % 2
    X[y == 1, 0] *= 3
    return X.astype(dtype), y


def matrices(n=60, dtype=np.float64):
    X, y = recordings(n)
    return covariance.estimate(X).astype(dtype), y


def quick(**settings):
    return SPDNetClassifier(**{"epochs": 10, "lr": 0.03, "random_state": 0, **settings})


def assert_stiefel_weights(model):
    weights = [p for p in model.parameters() if isinstance(p, StiefelParameter)]
    assert weights
    for weight in weights:
        assert_on_stiefel(weight)


# scikit-learn


def test_sklearn_grid_search_and_clone():
    X, y = matrices()
    grid = {"lr": [1e-5, 0.05], "dims": [None, (3,)], "eps": [1e-4, "10%"]}
    search = GridSearchCV(quick(epochs=3), grid, cv=2).fit(X, y)
    assert search.best_params_["lr"] == 0.05
    assert search.best_score_ > 0.9
    twin = clone(search.best_estimator_)
    assert twin.get_params() == search.best_estimator_.get_params()
    assert not hasattr(twin, "model_")


def test_sklearn_pipeline_with_groups():
    X, y = recordings()
    subjects = np.arange(60) // 10
    front = FunctionTransformer(covariance.estimate, kw_args={"estimator": "oas"})
    pipeline = make_pipeline(front, quick())
    folds = StratifiedGroupKFold(3, shuffle=True, random_state=0)
    assert cross_val_score(pipeline, X, y, groups=subjects, cv=folds).min() > 0.9
    search = GridSearchCV(pipeline, {"functiontransformer__kw_args": [{}, {"reg": 0.1}]}, cv=2)
    assert search.fit(X, y).score(X, y) > 0.9


def test_sklearn_metadata_routing_of_domains():
    X, y = recordings()
    subjects = np.repeat(["a", "b", "c"], 20)
    X = X * np.repeat([1, 10, 100], 20)[:, None, None]
    with config_context(enable_metadata_routing=True):
        classifier = quick(model="tsmnet", dims=(8, 4), epochs=15)
        classifier.set_fit_request(domains=True).set_score_request(domains=True)
        scores = cross_val_score(
            make_pipeline(FunctionTransformer(), classifier),
            *(X, y),
            cv=StratifiedGroupKFold(3),
            params={"domains": subjects, "groups": subjects},
        )
    assert scores.min() > 0.9  # subjects that are not in the training set


# pyRiemann


def test_pyriemann_and_spdnet_in_pipelines():
    classification = pytest.importorskip("pyriemann.classification")
    estimation = pytest.importorskip("pyriemann.estimation")
    tangent = pytest.importorskip("pyriemann.tangentspace")
    X, y = recordings()
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    for last in (
        [classification.MDM()],
        [tangent.TangentSpace(), LogisticRegression()],
        [quick()],
    ):
        pipeline = make_pipeline(estimation.Covariances("lwf"), *last)
        assert cross_val_score(pipeline, X, y, cv=folds).mean() > 0.9
    search = GridSearchCV(pipeline, {"covariances__estimator": ["scm", "oas"]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.9


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("affine_invariant", "riemann"),
        ("log_euclidean", "logeuclid"),
        ("log_cholesky", "logchol"),
        ("bures_wasserstein", "wasserstein"),
        ("stein", "logdet"),
    ],
)
def test_distances_and_means_equal_pyriemann(ours, theirs):
    distance = pytest.importorskip("pyriemann.geometry.distance")
    mean = pytest.importorskip("pyriemann.geometry.mean")
    metric, X = METRICS[ours], random_spd(7, 5)
    found = metric.distance(X[:, None], X)
    expected = distance.pairwise_distance(X.numpy(), metric=theirs)
    np.testing.assert_allclose(found, expected, atol=1e-8)
    w = torch.arange(1.0, 8.0, dtype=torch.float64)
    for weights in (None, w):
        settings = {"tol": 1e-12, "maxiter": 500} if theirs in ITERATIVE else {}
        expected = mean.gmean(
            X.numpy(),
            sample_weight=None if weights is None else weights.numpy(),
            metric=theirs,
            **settings,
        )
        np.testing.assert_allclose(metric.mean(X, weights), expected, atol=1e-8)


ITERATIVE = ("riemann", "wasserstein", "logdet")


def test_vech_of_logm_equals_pyriemann_tangent_space():
    tangent = pytest.importorskip("pyriemann.tangentspace")
    from spdnet.linalg import logm, vech

    X = random_spd(6, 4)
    expected = tangent.TangentSpace(metric="logeuclid").fit(np.eye(4)[None]).transform(X.numpy())
    np.testing.assert_allclose(vech(logm(X)), expected, atol=1e-10)


# skorch and braindecode


def neural_net(module, **settings):
    skorch = pytest.importorskip("skorch")
    return skorch.NeuralNetClassifier(
        module,
        **{
            "criterion": nn.CrossEntropyLoss,
            "max_epochs": 10,
            "lr": 0.05,
            "batch_size": 20,
            "train_split": None,
            "verbose": 0,
            **settings,
        },
    )


@both_optimizers
def test_skorch_fit_pickle_and_grid_search(optimizer):
    X, y = matrices(dtype=np.float32)
    net = neural_net(
        SPDNet,
        module__dims=(4, 3, 2),
        module__n_classes=2,
        module__bias=True,
        optimizer=optimizer,
        optimizer__weight_decay=0.01,
    )
    net.fit(X, y)
    assert net.score(X, y) > 0.9
    assert_stiefel_weights(net.module_)
    twin = pickle.loads(pickle.dumps(net))
    np.testing.assert_array_equal(twin.predict_proba(X), net.predict_proba(X))
    twin.partial_fit(X, y)
    assert_stiefel_weights(twin.module_)
    grid = {
        "lr": [1e-6, 0.05],
        "module__dims": [(4, 2), (4, 4, 4)],
        "optimizer__retraction": ["polar"],
    }
    search = GridSearchCV(net, grid, cv=2).fit(X, y)
    assert search.best_params_["lr"] == 0.05
    assert_stiefel_weights(search.best_estimator_.module_)


def test_skorch_saves_parameters(tmp_path):
    X, y = matrices(dtype=np.float32)
    settings = {"module__dims": (4, 3), "module__n_classes": 2, "optimizer": RiemannianAdam}
    net = neural_net(SPDNet, **settings).fit(X, y)
    files = {"f_params": tmp_path / "module.pt", "f_optimizer": tmp_path / "optimizer.pt"}
    net.save_params(**files)
    twin = neural_net(SPDNet, **settings).initialize()
    twin.load_params(**files)
    np.testing.assert_array_equal(twin.predict_proba(X), net.predict_proba(X))
    assert type(twin.module_.bimaps[0].weight) is StiefelParameter


def test_skorch_passes_domains_as_dict():
    X, y = recordings(dtype=np.float32)
    domains = np.arange(60) % 3
    net = neural_net(
        TSMNet,
        module__n_channels=4,
        module__n_classes=2,
        module__n_domains=3,
        module__spatial_filters=8,
        module__dim=4,
        optimizer=RiemannianAdam,
    )
    net.fit({"X": X, "domain": domains}, y)
    assert net.score({"X": X, "domain": domains}, y) > 0.9


@pytest.mark.parametrize("settings", [{"dims": (8, 4)}, {"model": "spdnet"}], ids=str)
def test_signal_net_accepts_braindecode_parameter_names(settings):
    """EEGClassifier of braindecode sets these parameters if the signature has them."""
    X, y = recordings(dtype=np.float32)
    inferred = {"n_chans": X.shape[1], "n_times": X.shape[2], "n_outputs": len(np.unique(y))}
    assert set(inferred) <= set(inspect.signature(SignalNet.__init__).parameters)
    net = neural_net(
        SignalNet,
        optimizer=RiemannianAdam,
        **{f"module__{name}": value for name, value in {**inferred, **settings}.items()},
    )
    assert cross_val_score(net, X, y, cv=2).min() > 0.9
    net.fit(X, y)
    assert net.module_(torch.from_numpy(X)).shape == (60, 2)
    assert_stiefel_weights(net.module_)


@pytest.mark.parametrize("model", ["tsmnet", "spdnet"])
def test_signal_net_gain_scales_input(model):
    X = torch.from_numpy(recordings(10)[0])
    net = SignalNet(4, 2, model=model, gain=1e6, dtype=torch.float64).eval()
    plain = SignalNet(4, 2, model=model, dtype=torch.float64).eval()
    plain.load_state_dict(net.state_dict())
    torch.testing.assert_close(net(1e-6 * X), plain(X))
    assert net(X[:, :, :30]).shape == (10, 2)  # any length
    before = [p.clone() for p in net.parameters()]
    net.reset_parameters()
    assert not all(torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))


def test_signal_net_dims():
    assert SignalNet(5, 2, model="spdnet").network.dims == (5, 5, 5)
    assert SignalNet(70, 2, model="spdnet").network.dims == (70, 64, 64)
    assert SignalNet(5, 2, model="spdnet", dims=(3,)).network.dims == (5, 3)
    assert SignalNet(5, 2, model="spdnet", dims=(5, 3)).network.dims == (5, 3)
    assert SignalNet(5, 2, dims=(6, 3)).network.dims == (6, 3)
    assert SignalNet(5, 2, n_domains=3).network.norm.n_domains == 3


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: SignalNet(0, 2), ValueError, "n_chans >= 1"),
        (lambda: SignalNet(4, 2.5), TypeError, "n_outputs to be an integer"),
        (lambda: SignalNet(4, 2, "50"), TypeError, "n_times to be an integer"),
        (lambda: SignalNet(4, 2, model="eegnet"), ValueError, "'tsmnet', 'spdnet', got 'eegnet'"),
        (lambda: SignalNet(4, 2, dims=(4, 3, 2)), ValueError, "two dims .* got \\(4, 3, 2\\)"),
        (lambda: SignalNet(4, 2, gain=0), ValueError, "gain > 0"),
        (lambda: SignalNet(4, 2)(torch.ones(3, 5, 9)), ValueError, r"\(B, 4, n_times\), got"),
        (lambda: SignalNet(4, 2, 8)(torch.ones(3, 4, 9)), ValueError, r"\(B, 4, 8\), got \(3, 4"),
        (lambda: SignalNet(4, 2)(np.ones((3, 4, 9))), ValueError, "got ndarray"),
        (
            lambda: SignalNet(4, 2, model="spdnet")(torch.randn(3, 4, 9), torch.zeros(3)),
            ValueError,
            "SPDNet: expected no domain",
        ),
    ],
)
def test_signal_net_invalid_input_raises_message(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


# Lightning


# Lightning uses a deprecated name of torch
@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")
@both_optimizers
def test_lightning_fit_and_restore(optimizer, tmp_path):
    lightning = pytest.importorskip("lightning")

    class Lit(lightning.LightningModule):
        def __init__(self, dims, lr):
            super().__init__()
            self.save_hyperparameters()
            self.net = SPDNet(dims, 2, bias=True, dtype=torch.float64)

        def training_step(self, batch, index):
            return nn.functional.cross_entropy(self.net(batch[0], check=False), batch[1])

        def configure_optimizers(self):
            steps = optimizer(self.net.parameters(), lr=self.hparams.lr)
            return [steps], [torch.optim.lr_scheduler.CosineAnnealingLR(steps, 10)]

    X, y = map(torch.from_numpy, matrices())
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=20)
    settings = {
        "accelerator": "cpu",
        "default_root_dir": tmp_path,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "gradient_clip_val": 1.0,
    }
    lit = Lit((4, 3, 2), 0.05)
    trainer = lightning.Trainer(max_epochs=10, **settings)
    trainer.fit(lit, loader)
    assert_stiefel_weights(lit)
    assert (lit.net(X).argmax(-1) == y).double().mean() > 0.9
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    twin = Lit.load_from_checkpoint(tmp_path / "last.ckpt")
    assert torch.equal(twin.net(X), lit.net(X))
    assert_stiefel_weights(twin)
    resumed = lightning.Trainer(max_epochs=12, **settings)
    resumed.fit(twin, loader, ckpt_path=tmp_path / "last.ckpt")
    assert resumed.current_epoch == 12
    assert_stiefel_weights(twin)


# geoopt


def points(geoopt):
    """Return a float64 parameter on each of several manifolds."""
    manifolds = [
        geoopt.Sphere(),
        geoopt.CanonicalStiefel(),
        geoopt.EuclideanStiefel(),
        geoopt.PoincareBall().double(),
        geoopt.SymmetricPositiveDefinite(),
        geoopt.ProductManifold((geoopt.Sphere(), 3), (geoopt.Euclidean(), 2)),
        geoopt.Euclidean(),
    ]
    shapes = [(6, 4), (6, 3), (6, 3), (6, 2), (3, 3), (2, 5), (4,)]
    return [
        geoopt.ManifoldParameter(m.random(*shape, dtype=torch.float64), manifold=m)
        for m, shape in zip(manifolds, shapes, strict=True)
    ]


def descend(optimizer, params, targets, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = sum((p - t).square().sum() for p, t in zip(params, targets, strict=True))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize(
    ("ours", "settings"),
    [
        (RiemannianSGD, {}),
        (RiemannianSGD, {"momentum": 0.9}),
        (RiemannianSGD, {"momentum": 0.5, "nesterov": True, "weight_decay": 0.1}),
        (RiemannianAdam, {}),
        (RiemannianAdam, {"amsgrad": True, "weight_decay": 0.1}),
    ],
)
def test_optimizer_with_geoopt_and_spdnet_parameters(ours, settings):
    geoopt = pytest.importorskip("geoopt")
    params = points(geoopt)
    targets = [p.detach().clone() for p in points(geoopt)]
    model = SPDNet((4, 3), 2, dtype=torch.float64)
    X, y = map(torch.from_numpy, matrices(20))
    optimizer = ours([*params, *model.parameters()], lr=0.01, **settings)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = sum((p - t).square().sum() for p, t in zip(params, targets, strict=True))
        loss = loss + nn.functional.cross_entropy(model(X), y)
        loss.backward()
        grads = [p.grad.clone() for p in params]
        optimizer.step()
        assert all(torch.equal(p.grad, g) for p, g in zip(params, grads, strict=True))
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    for p in params:
        assert p.manifold.check_point_on_manifold(p.detach(), atol=1e-9), p.manifold
        assert p.isfinite().all()
        for name in ("momentum_buffer", "exp_avg"):
            carried = optimizer.state[p].get(name, torch.zeros_like(p))
            assert p.manifold.check_vector_on_tangent(p.detach(), carried, atol=1e-9), p.manifold
    assert_stiefel_weights(model)


@pytest.mark.parametrize("name", ["RiemannianSGD", "RiemannianAdam"])
def test_optimizer_steps_equal_geoopt(name):
    geoopt = pytest.importorskip("geoopt")
    ours = {"RiemannianSGD": RiemannianSGD, "RiemannianAdam": RiemannianAdam}[name]
    a = points(geoopt)
    b, targets = copy.deepcopy(a), [p.detach().clone() for p in points(geoopt)]
    descend(ours(a, lr=0.01), a, targets, 5)
    descend(getattr(geoopt.optim, name)(b, lr=0.01), b, targets, 5)
    for p, q in zip(a, b, strict=True):
        torch.testing.assert_close(p.data, q.data, atol=1e-12, rtol=0)


def test_capturable_steps_equal_ordinary_steps_on_geoopt_parameters():
    geoopt = pytest.importorskip("geoopt")
    a = points(geoopt)
    b, targets = copy.deepcopy(a), [p.detach().clone() for p in points(geoopt)]
    descend(RiemannianAdam(a, maximize=True), a, targets, 5)
    descend(RiemannianAdam(b, maximize=True, capturable=True), b, targets, 5)
    for p, q in zip(a, b, strict=True):
        torch.testing.assert_close(p.data, q.data)


@both_optimizers
def test_optimizer_state_dict_with_geoopt_parameters(optimizer):
    geoopt = pytest.importorskip("geoopt")
    a = points(geoopt)
    targets = [p.detach().clone() for p in points(geoopt)]
    settings = {"lr": 0.01, **({"momentum": 0.9} if optimizer is RiemannianSGD else {})}
    first = optimizer(a, **settings)
    descend(first, a, targets, 3)
    b = copy.deepcopy(a)
    second = optimizer(b, **settings)
    second.load_state_dict(pickle.loads(pickle.dumps(first.state_dict())))
    descend(first, a, targets, 3)
    descend(second, b, targets, 3)
    for p, q in zip(a, b, strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("name", ["RiemannianSGD", "RiemannianAdam"])
def test_network_with_geoopt_weights(name):
    geoopt = pytest.importorskip("geoopt")
    model = SPDNet((4, 3), 2, dtype=torch.float64)
    X, y = map(torch.from_numpy, matrices(20))
    for layer in model.bimaps:
        layer.weight = geoopt.ManifoldParameter(layer.weight.data, geoopt.EuclideanStiefel())
    for kind in (getattr(geoopt.optim, name), RiemannianSGD):
        optimizer = kind(model.parameters(), lr=0.1)
        nn.functional.cross_entropy(model(X), y).backward()
        optimizer.step()
        assert_on_stiefel(model.bimaps[0].weight)


def test_optimizer_refuses_manifold_without_required_methods():
    p = nn.Parameter(torch.ones(3))
    p.manifold = "a sphere"
    for optimizer in (RiemannianSGD, RiemannianAdam):
        with pytest.raises(TypeError, match="'a sphere', which lacks component_inner, egrad2rgrad"):
            optimizer([p], lr=0.1)


# Optuna, TensorBoard, safetensors


def parts():
    X, y = map(torch.from_numpy, matrices(80))
    return Samples(X[:60], y[:60]), Samples(X[60:], y[60:])


def test_optuna_search_with_pruning():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    train, val = parts()

    def objective(trial):
        recipe = RECIPES["fast"].changed(
            lr=trial.suggest_float("lr", 1e-6, 0.1, log=True),
            eps=trial.suggest_categorical("eps", [1e-4, "10%"]),
            epochs=8,
        )
        dims = (4, trial.suggest_int("dim", 2, 4))

        def report(trainer):
            trial.report(trainer.progress.history[-1]["val_loss"], trainer.progress.epoch)
            if trial.should_prune():
                raise optuna.TrialPruned

        trainer = Trainer(build(recipe, dims, 2, train), train, recipe, val=val)
        return min(row["val_loss"] for row in trainer.run(report).history)

    study = optuna.create_study(
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=2),
    )
    study.optimize(objective, n_trials=8)
    states = [trial.state for trial in study.trials]
    assert set(states) == {optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED}
    assert study.best_value < study.trials[0].intermediate_values[1]


def test_optuna_search_over_classifier():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    X, y = matrices()

    def objective(trial):
        classifier = quick(
            dims=(trial.suggest_int("dim", 2, 4),),
            lr=trial.suggest_float("lr", 1e-6, 0.1, log=True),
            eps=trial.suggest_float("eps", 1e-6, 1e-2, log=True),
            epochs=3,
        )
        return cross_val_score(classifier, X, y, cv=2).mean()

    sampler = optuna.samplers.RandomSampler(seed=0)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.optimize(objective, n_trials=5)
    assert study.best_value > 0.9


def test_tensorboard_round_trip(tmp_path):
    tensorboard = pytest.importorskip("torch.utils.tensorboard")
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    train, val = parts()
    recipe = RECIPES["fast"].changed(epochs=3)
    with tensorboard.SummaryWriter(tmp_path) as writer:

        def log(trainer):
            row = trainer.progress.history[-1]
            for name, value in row.items():
                if name != "epoch":
                    writer.add_scalar(name, value, row["epoch"])

        progress = Trainer(build(recipe, (4, 3), 2, train), train, recipe, val=val).run(log)
    read = events.EventAccumulator(str(tmp_path))
    read.Reload()
    assert {"loss", "accuracy", "val_loss", "val_accuracy", "lr"} <= set(read.Tags()["scalars"])
    for name in ("loss", "val_loss"):
        found = [(event.step, event.value) for event in read.Scalars(name)]
        expected = [(row["epoch"], row[name]) for row in progress.history]
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SPDNet((4, 3, 2), 2, center="log_euclidean", norm="brooks"),
        lambda: SPDNet((4, 3), 2, eps="10%", head="log_cholesky"),
        lambda: SPDNet((4, 3), 2, head="mlp", hidden=5),
        lambda: MultiBranchSPDNet((4, 3, 2), 2),
        lambda: SignalNet(4, 2, n_domains=2),
    ],
)
def test_safetensors_round_trip(make, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    model = make()
    X = torch.randn(10, 4, 50)
    X = X if isinstance(model, SignalNet) else covariance.estimate(X)
    inputs = (X, torch.arange(10) % 2) if isinstance(model, SignalNet) else (X,)
    model(*inputs)  # update the running statistics
    safetensors.save_model(model.eval(), tmp_path / "model.safetensors")
    twin = make().eval()
    missing, unexpected = safetensors.load_model(twin, tmp_path / "model.safetensors")
    assert not missing
    assert not unexpected
    assert torch.equal(twin(*inputs), model(*inputs))
    assert_stiefel_weights(twin)


# torch.export


def exported(make):
    """Return a network in evaluation mode, its program for any batch size, and input."""
    model = make(dtype=torch.float64)
    X = torch.from_numpy(recordings(6)[0])
    if isinstance(model, (ConvSPDNet, O2PNet)):
        X = X[:, None]  # an image
    elif not isinstance(model, (SignalNet, TSMNet)):
        X = covariance.estimate(X)
    model(X)  # update the running statistics
    shapes = ({0: torch.export.Dim("batch")},)
    return model.eval(), torch.export.export(model, (X,), dynamic_shapes=shapes), X


EXPORTED = {
    "default": partial(SPDNet, (4, 3, 3), 2),
    "center": partial(SPDNet, (4, 3, 3), 2, center="log_euclidean"),
    "eigenvalues": partial(SPDNet, (4, 3, 3), 2, log=False, eps=0.5),
    "percent": partial(SPDNet, (4, 3, 3), 2, eps="10%"),
    "branches": partial(MultiBranchSPDNet, (4, 3, 3), 2),
    "tsmnet": partial(TSMNet, 4, 2),
    "signals": partial(SignalNet, 4, 2),
    "images": lambda dtype: ConvSPDNet(2).to(dtype),
    "second order": lambda dtype: O2PNet(2).to(dtype),
    "covariances": partial(SignalNet, 4, 2, model="spdnet"),
    **{
        f"norm {name}": partial(SPDNet, (4, 3, 3), 2, norm=name)
        for name in ("brooks", "domain", *MetricNames("normalization"))
    },
    **{
        f"head {name}": partial(SPDNet, (4, 3, 3), 2, head=name)
        for name in ("mlp", *MetricNames("logits"))
    },
}
FEW = {"center", "percent", "tsmnet", "head affine_invariant", "head mlp"}
#: script that cannot import spdnet and saves the results of the programs in a folder
RUN_PROGRAMS = """
import sys
from pathlib import Path
sys.modules["spdnet"] = None  # an import raises ImportError
import torch
for file in sorted(Path(sys.argv[1]).glob("*.pt2")):
    X = torch.load(file.with_suffix(".input"))
    program = torch.export.load(file).module()
    torch.save([program(X), program(X[:1]), program(X[:5])], file.with_suffix(".output"))
"""


def run_without_spdnet(code, *args):
    found = subprocess.run(
        [sys.executable, "-I", "-c", code, *map(str, args)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr


@pytest.mark.slow
@pytest.mark.parametrize("names", [FEW, EXPORTED.keys() - FEW], ids=["few", "rest"])
def test_exported_program_runs_without_spdnet(names, tmp_path):
    expected = {}
    for name in names:
        model, program, X = exported(EXPORTED[name])
        torch.export.save(program, tmp_path / f"{name}.pt2")
        torch.save(X, tmp_path / f"{name}.input")
        with torch.no_grad():
            expected[name] = [model(X), model(X[:1]), model(X[:5])]
    run_without_spdnet(RUN_PROGRAMS, tmp_path)
    for name, logits in expected.items():
        found = torch.load(tmp_path / f"{name}.output")
        torch.testing.assert_close(found, logits, atol=1e-12, rtol=0, msg=name)


def test_strict_export_has_no_spdnet_nodes():
    model = SPDNet((4, 3, 3), 2, dtype=torch.float64).eval()
    program = torch.export.export(model, (torch.from_numpy(matrices(6)[0]),), strict=True)
    assert not any("spdnet" in str(node.target) for node in program.graph.nodes)


def test_exported_program_gradients_are_nan():
    """NaN prevents training with gradients that would be wrong or incomplete."""
    _, program, X = exported(EXPORTED["default"])
    module = program.module()
    X.requires_grad_()
    module(X).sum().backward()
    assert X.grad.isnan().all()
    grads = {name: p.grad for name, p in module.named_parameters()}
    assert grads["bimaps.0.weight"].isnan().all()
    assert grads["bimaps.1.weight"].isnan().all()
    assert grads["classifier.weight"].isfinite().all()


@pytest.mark.parametrize("metric", ["affine_invariant", "stein", "bures_wasserstein"])
def test_exported_distance_gradients_are_nan(metric):
    class Distance(nn.Module):
        def forward(self, X, Y):
            return METRICS[metric].squared_distance(X, Y, check=False)

    X, Y = random_spd(2, 3)
    program = torch.export.export(Distance(), (X, Y)).module()
    torch.testing.assert_close(program(X, Y), Distance()(X, Y))
    program(X.requires_grad_(), Y).backward()
    assert X.grad.isnan().any()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")  # raised by torch
def test_aotinductor_package_runs_without_spdnet(tmp_path):
    model, program, X = exported(EXPORTED["default"])
    package = tmp_path / "spdnet.pt2"
    torch._inductor.aoti_compile_and_package(program, package_path=str(package))
    torch.save(X, tmp_path / "input")
    code = """
import sys
sys.modules["spdnet"] = None
import torch
folder = sys.argv[1]
run = torch._inductor.aoti_load_package(folder + "/spdnet.pt2")
torch.save(run(torch.load(folder + "/input")), folder + "/output")
"""
    run_without_spdnet(code, tmp_path)
    found = torch.load(tmp_path / "output")
    torch.testing.assert_close(found, model(X).detach(), atol=1e-12, rtol=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by the old exporters of torch
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")  # shapes become constants
@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("who", "convert"),
    [
        ("torch.jit.trace", lambda model, X: torch.jit.trace(model, (X,))),
        ("torch.jit.script", lambda model, X: torch.jit.script(model)),
        (
            "torch.onnx.export",
            lambda model, X: torch.onnx.export(model, (X,), io.BytesIO(), dynamo=False),
        ),
    ],
)
def test_unsupported_export_formats_are_refused(who, convert, check):
    X = torch.from_numpy(matrices(6)[0])
    for settings in ({}, {"log": False}):  # without LogEig, no eigendecomposition is needed
        model = SPDNet((4, 3, 3), 2, check=check, dtype=torch.float64, **settings).eval()
        with pytest.raises(NotImplementedError, match=f"{who}.*use torch.export.export"):
            convert(model, X)


@pytest.mark.parametrize("strict", [False, True])
def test_onnx_is_refused_during_export(monkeypatch, strict):
    X = torch.from_numpy(matrices(6)[0])
    model = SPDNet((4, 3, 3), 2, dtype=torch.float64).eval()
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)
    with pytest.raises(Exception, match=r"torch.onnx.export: .*use torch.export.export"):
        torch.export.export(model, (X,), strict=strict)


# docs/interoperability.md


def blocks():
    """Return the code blocks of the page in order, each with the heading above it."""
    found, heading = [], ""
    pattern = r"^## ([^\n]*)$|^```python\n(.*?)^```$"
    for match in re.finditer(pattern, PAGE.read_text(), re.MULTILINE | re.DOTALL):
        heading = match[1] or heading
        if match[2]:
            found.append((heading, match[2]))
    return found


@pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning")  # raised by Lightning
@pytest.mark.filterwarnings("ignore:The inplace keyword")  # raised when braindecode is imported
@pytest.mark.parametrize("heading", dict(blocks()))
def test_documentation_blocks_run(heading, tmp_path, monkeypatch):
    """Run each section separately, after the first section, which creates the data."""
    monkeypatch.chdir(tmp_path)
    first = blocks()[0][0]
    names = {"__name__": "__main__"}
    for part, block in blocks():
        if part not in (first, heading):
            continue
        try:
            exec(compile(block, f"{PAGE}: {part}", "exec"), names)
        except ModuleNotFoundError as error:
            if str(error.name).split(".")[0] not in OPTIONAL:
                raise
            pytest.skip(str(error))
