import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

from spdnet import SPDNet
from spdnet.manifolds import MetricNames
from spdnet.models import SPDNetBN, SPDNetLieBN, SPDNetMLR
from spdnet.nn import SPDMLR, SPDBatchNorm
from spdnet.optim import RiemannianAdam
from spdnet.testing import assert_on_stiefel, check_layer
from tests.cases import random_spd

X, y = random_spd(9, 6), torch.arange(9) % 3
NORMS = ("brooks", "domain", "log_euclidean", "affine_invariant", "log_cholesky")
SETTINGS = [
    *({"norm": norm} for norm in NORMS),
    *({"head": metric} for metric in MetricNames("logits")),
    {"head": "mlp", "hidden": 8},
    {"norm": "log_cholesky", "head": "log_cholesky", "center": "log_euclidean", "eps": "20%"},
]
every_setting = pytest.mark.parametrize("settings", SETTINGS, ids=str)


def make(settings, dims=(6, 5, 4, 3)):
    torch.manual_seed(0)
    return SPDNet(dims, 3, dtype=torch.float64, **settings)


@every_setting
def test_laws_in_evaluation(settings):
    model = make(settings, dims=(6, 4, 3))
    model(X)
    check_layer(model.eval(), X[:2], spd=False, second=False)


@every_setting
def test_trains(settings):
    model = make(settings)
    optimizer = RiemannianAdam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = cross_entropy(model(X), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    for bimap in model.bimaps:
        assert_on_stiefel(bimap.weight)
    trained = copy.deepcopy(model.state_dict())
    model.reset_parameters()
    for name, value in model.state_dict().items():
        if name.split(".")[-1] in ("running_mean", "num_batches_tracked", "points"):
            assert not torch.equal(value, trained[name])


def test_parts():
    model = make({"norm": "brooks"})
    assert [norm.n for norm in model.norms] == [5, 4, 3]
    assert all(isinstance(norm, SPDBatchNorm) for norm in model.norms)
    assert not make({}).norms
    model = make({"head": "affine_invariant"})
    assert isinstance(model.classifier, SPDMLR)
    assert model.features(X).shape == (9, 3, 3)
    assert "n_classes=3" in repr(model)


def test_normalised_matrices_are_always_looked_at(monkeypatch):
    """A normalisation may bring eigenvalues below the threshold again."""
    from spdnet.linalg import rectify

    seen, real = [], rectify._has_lower
    monkeypatch.setattr(
        rectify, "_has_lower", lambda X, eps: (seen.append(X.shape[-1]), real(X, eps))[1]
    )
    make({"norm": "log_cholesky"})(X)
    assert seen == [5, 4]


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (SPDNetBN, {"norm": "brooks"}),
        (SPDNetLieBN, {"norm": "log_cholesky"}),
        (SPDNetMLR, {"head": "log_cholesky"}),
        (lambda *a, **k: SPDNetLieBN(*a, metric="log_euclidean", **k), {"norm": "log_euclidean"}),
        (lambda *a, **k: SPDNetMLR(*a, metric="stein", **k), None),
    ],
)
def test_under_their_names(model, settings):
    torch.manual_seed(0)
    if settings is None:
        with pytest.raises(ValueError, match="head"):
            model((6, 4), 3)
        return
    named = model((6, 5, 4, 3), 3, dtype=torch.float64)
    torch.testing.assert_close(named(X), make(settings)(X))


def test_singular_matrices_are_refused_where_they_do_not_go():
    singular = X.clone()
    singular[2, 0] = singular[2, :, 0] = 0
    square = (6, 6)
    assert make({}, square)(X).isfinite().all()
    for settings in ({"norm": "log_euclidean"}, {"head": "log_cholesky"}):
        with pytest.raises(ValueError, match=r"X\[2\]"):
            make(settings, square)(singular)
    with pytest.raises(ValueError, match="norm"):
        make({"norm": "batch"})
    with pytest.raises(ValueError, match="head"):
        make({"head": "softmax"})
