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


def power_of(A, p):
    s, U = torch.linalg.eigh(A)
    return (U * s.pow(p)[..., None, :]) @ U.mT


def log_of(A):
    s, U = torch.linalg.eigh(A)
    return (U * s.log()[..., None, :]) @ U.mT


def geodesic(A, B, t):
    root, inverse = power_of(A, 0.5), power_of(A, -0.5)
    return root @ power_of(inverse @ B @ inverse, t) @ root


class Original:
    """The network by the published formulas, with the weights of a TSMNet."""

    def __init__(self, model, n_domains, eta, eta_test):
        self.model, self.eta, self.eta_test = model, eta, eta_test
        eye = torch.eye(4, dtype=torch.float64)
        self.mean, self.mean_test = ([eye] * n_domains for _ in range(2))
        self.var, self.var_test = ([torch.tensor(1.0).double()] * n_domains for _ in range(2))

    def matrices(self, X):
        temporal, spatial = self.model.temporal, self.model.spatial
        half = temporal.kernel_size[1] // 2
        X = torch.cat([X[..., 1 : half + 1].flip(-1), X, X[..., -half - 1 : -1].flip(-1)], -1)
        windows = X.unfold(-1, 2 * half + 1, 1)  # (B, channels, T, kernel)
        maps = torch.einsum("bctk,fk->bfct", windows, temporal.weight[:, 0, 0])
        maps = maps + temporal.bias[:, None, None]
        maps = torch.einsum("bfct,sfc->bst", maps, spatial.weight[..., 0]) + spatial.bias[:, None]
        maps = maps - maps.mean(-1, keepdim=True)
        Y = self.model.bimap.weight.mT @ (maps @ maps.mT / TIME) @ self.model.bimap.weight
        s, U = torch.linalg.eigh(Y)
        return (U * s.clamp(min=1e-4)[:, None]) @ U.mT

    def logits(self, X, domain, training):
        Y = self.matrices(X)
        T = torch.empty_like(Y)
        for d in domain.unique().tolist():
            part = Y[domain == d]
            M, v = self.update(part, d) if training else (self.mean_test[d], self.var_test[d])
            W = power_of(M, -0.5)
            T[domain == d] = self.model.norm.scale / (v + 1e-5).sqrt() * log_of(W @ part @ W)
        return self.model.classifier(vech(T))

    def update(self, Y, d):
        m = Y.mean(0).detach()
        W = power_of(m, -0.5)
        logs = log_of(W @ Y @ W)
        root = power_of(m, 0.5)
        b = root @ torch.linalg.matrix_exp(logs.mean(0)) @ root
        M = geodesic(self.mean[d], b, self.eta)
        gaps = logs - log_of(W @ M @ W)
        v = (1 - self.eta) * self.var[d] + self.eta * gaps.square().sum((-2, -1)).mean()
        self.mean[d], self.var[d] = M.detach(), v.detach()
        test = geodesic(self.mean_test[d], b, self.eta_test).detach()
        gaps = (logs - log_of(W @ test @ W)).detach()
        spread = gaps.square().sum((-2, -1)).mean()
        self.mean_test[d] = test
        self.var_test[d] = (1 - self.eta_test) * self.var_test[d] + self.eta_test * spread
        return M, v


@pytest.mark.parametrize("momentum", [None, 0.3])
def test_the_authors_variant_by_its_formulas(momentum):
    """Two training steps and an evaluation, with the gradients."""
    model = make(n_domains=2, variant="authors", momentum=momentum)
    slow = Original(model, 2, 1.0 if momentum is None else momentum, 0.1)
    with torch.no_grad():
        model.norm.scale.fill_(1.3)
    domain = torch.arange(N) % 2
    for seed in range(2):
        X, y = signals(0, seed)
        gradients = []
        for logits in (model(X, domain), slow.logits(X, domain, training=True)):
            loss = cross_entropy(logits, y)
            gradients.append((logits, *torch.autograd.grad(loss, list(model.parameters()))))
        for got, expected in zip(*gradients, strict=True):
            torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-9)
    X, _ = signals(1, 5)
    expected = slow.logits(X, domain, training=False)
    torch.testing.assert_close(model.eval()(X, domain), expected)


def test_the_authors_variant_differs_from_the_default():
    X, _ = signals(0, 0)
    default, original = make(), make(variant="authors")
    original.load_state_dict(default.state_dict())
    assert (default(X) - original(X)).abs().max() > 1e-3
    W = original.bimap.weight
    original.reset_parameters()
    assert_on_stiefel(W)
    mean = torch.full((6,), 6**-0.5, dtype=torch.float64)
    assert (mean @ W).norm() > 0.9  # entries between 0 and 1 have a common direction
    with pytest.raises(ValueError, match="variant"):
        make(variant="paper")
    with pytest.raises(ValueError, match="karcher_steps"):
        make(variant="authors", karcher_steps=None)


def test_the_authors_variant_refits_both_statistics():
    model = make(n_domains=2, variant="authors")
    X, _ = signals(0, 0)
    model(X, torch.arange(N) % 2)
    model.refit(X, 0)
    torch.testing.assert_close(model.norm.running_mean[0], model.norm.eval_mean[0])
    torch.testing.assert_close(model.norm.running_var[0], model.norm.eval_var[0])
