import copy

import pytest
import torch
from torch.nn.functional import cross_entropy

from spdnet.linalg import logm, vech
from spdnet.manifolds import affine_invariant
from spdnet.models import TSMNet
from spdnet.optim import RiemannianAdam
from spdnet.testing import assert_on_stiefel

N, CHANNELS, TIME = 40, 5, 60


def signals(domain, seed):
    """Two classes that differ in the power of one source, seen through the domain's own sensors."""
    g = torch.Generator().manual_seed(seed)
    y = torch.arange(N) % 2
    sources = torch.randn(N, CHANNELS, TIME, generator=g, dtype=torch.float64)
    sources[:, 0] *= torch.where(y == 1, 3.0, 1.0)[:, None]
    sensors = torch.eye(CHANNELS, dtype=torch.float64)
    sensors += 0.2 * torch.randn(
        CHANNELS, CHANNELS, generator=torch.Generator().manual_seed(domain), dtype=torch.float64
    )
    return (5.0**domain) * sensors @ sources, y


def make(**settings):
    torch.manual_seed(0)
    small = {"temporal_filters": 2, "kernel": 5, "spatial_filters": 6, "dim": 4}
    return TSMNet(CHANNELS, 2, dtype=torch.float64, **{**small, **settings})


def test_by_its_formula():
    model = make().eval()
    X, _ = signals(0, 0)
    maps = model.spatial(model.temporal(X[:, None]))[:, :, 0]
    maps = maps - maps.mean(-1, keepdim=True)
    C = maps @ maps.mT / TIME
    C = C + 1e-3 * C.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * torch.eye(6).double()
    Y = model.bimap.weight.mT @ C @ model.bimap.weight
    s, U = torch.linalg.eigh(Y)
    Y = (U * s.clamp(min=1e-4)[:, None]) @ U.mT
    expected = model.classifier(vech((1 + 1e-5) ** -0.5 * logm(Y)))
    torch.testing.assert_close(model(X), expected)


def train(model, domains):
    optimizer = RiemannianAdam(model.parameters(), lr=0.02)
    X = torch.cat([signals(d, seed=d)[0] for d in domains])
    y = torch.cat([signals(d, seed=d)[1] for d in domains])
    domain = torch.repeat_interleave(torch.arange(len(domains)), N)
    for epoch in range(15):
        model.norm.anneal(epoch + 1, 15)
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(epoch))
        for part in order.split(20):
            optimizer.zero_grad()
            loss = cross_entropy(model(X[part], domain[part]), y[part])
            loss.backward()
            optimizer.step()
    return loss.item()


def test_an_unseen_domain_needs_its_statistics_and_no_labels():
    model = make(n_domains=2)
    assert train(model, (0, 1)) < 0.4
    assert_on_stiefel(model.bimap.weight)
    model.eval()
    X, y = signals(3, seed=7)  # two orders of magnitude away
    lost = (model(X, torch.ones(N, dtype=torch.long)).argmax(-1) == y).double().mean()
    weights = copy.deepcopy(dict(model.named_parameters()))
    assert model.refit(X, 2) is model
    found = (model(X, torch.full((N,), 2)).argmax(-1) == y).double().mean()
    assert found > 0.85 > lost
    for name, value in model.named_parameters():
        assert torch.equal(value, weights[name])
    assert not model.training
    M = affine_invariant.mean(model._matrices(X))
    torch.testing.assert_close(model.norm.eval_mean[2], M.detach())


def test_calibration_takes_the_unit_away():
    X, _ = signals(0, 0)
    volts = make().calibrate(1e-6 * X).eval()
    torch.testing.assert_close(volts(1e-6 * X), make().calibrate(X).eval()(X))
    with pytest.raises(ValueError, match="constant"):
        make().calibrate(0 * X)
    torch.testing.assert_close(make().calibrate(X + 1e3).gain, make().calibrate(X).gain)


def test_a_refit_that_is_refused_changes_nothing():
    model = make()
    X, _ = signals(0, 0)
    for domain, kind in ((7, ValueError), (-1, ValueError), ("a", TypeError), (1.0, TypeError)):
        with pytest.raises(kind, match="domain"):
            model.refit(X, domain)
    with pytest.raises(ValueError, match="got 0 and 1"):
        model.refit(X[:0], 1)
    assert model.training
    assert model.norm.n_domains == 1


def test_state_and_copies():
    model = make(n_domains=2)
    X, _ = signals(0, 0)
    domain = torch.arange(N) % 2
    model(X, domain)
    other = make(n_domains=2)
    other.load_state_dict(model.state_dict())
    expected = model.eval()(X, domain)
    torch.testing.assert_close(other.eval()(X, domain), expected)
    torch.testing.assert_close(copy.deepcopy(model)(X, domain), expected)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X, domain), expected)
    model.reset_parameters()
    assert model.norm.num_batches_tracked.sum() == 0
    assert not torch.equal(model.bimap.weight, other.bimap.weight)
    single = TSMNet(CHANNELS, 2, spatial_filters=6, dim=4)
    assert single(X.float()).dtype == torch.float32


def test_bad_input():
    model = make(n_domains=2)
    X, _ = signals(0, 0)
    with pytest.raises(ValueError, match=r"B, 5, T"):
        model(X[:, :4], torch.zeros(N).long())
    with pytest.raises(ValueError, match="domains"):
        model(X)
    X[3, 2, 1] = torch.nan
    with pytest.raises(ValueError, match=r"X\[3, 2, 1\]"):
        model(X, torch.zeros(N).long())
    with pytest.raises(ValueError, match="kernel"):
        make(kernel=0)
