"""Batch normalization by domain in networks, and adaptation to new domains."""

import copy
import pickle

import pytest
import torch
from torch.nn.functional import cross_entropy

from spdnet import SPDNet
from spdnet.linalg import logm
from spdnet.manifolds import affine_invariant
from spdnet.models import ConvSPDNet, Ensemble, MultiBranchSPDNet, SignalNet
from spdnet.nn import SPDDomainBatchNorm
from spdnet.optim import RiemannianAdam
from spdnet.training import RECIPES, make_network
from tests.cases import random_spd
from tests.models.test_tsmnet import N, signals

DIMS = (5, 4, 3)


def problem(*domains):
    """Covariances of two classes; their mean differs between domains more than the classes."""
    parts = [signals(d, seed=d) for d in domains]
    X = torch.cat([S @ S.mT / S.shape[-1] for S, _ in parts])
    return X, torch.cat([y for _, y in parts]), torch.arange(len(domains)).repeat_interleave(N)


def make(norm="domain", dims=DIMS, **settings):
    torch.manual_seed(0)
    return SPDNet(dims, 2, norm=norm, **{"dtype": torch.float64, **settings})


@pytest.fixture(scope="module")
def trained():
    model, (X, y, domain) = make(n_domains=2), problem(0, 1)
    optimizer = RiemannianAdam(model.parameters(), lr=0.02)
    for epoch in range(15):
        model.begin_epoch(epoch + 1, 15)
        order = torch.randperm(len(X), generator=torch.Generator().manual_seed(epoch))
        for part in order.split(20):
            optimizer.zero_grad()
            cross_entropy(model(X[part], domain[part]), y[part]).backward()
            optimizer.step()
    return model.eval()


def power(X, exponent):
    s, U = torch.linalg.eigh(X)
    return (U * s[..., None, :] ** exponent) @ U.mT


def test_by_its_formula():
    X = random_spd(12, 6)
    model = make(dims=(6, 5, 4, 3)).eval().refit(X, 0)
    Y = X
    for i, (bimap, norm) in enumerate(zip(model.bimaps, model.norms, strict=True)):
        if i > 0:
            s, U = torch.linalg.eigh(Y)
            Y = (U * s.clamp(min=1e-4)[..., None, :]) @ U.mT
        Y = bimap.weight.mT @ Y @ bimap.weight
        M = affine_invariant.mean(Y)
        v = affine_invariant.squared_distance(Y, M).mean()
        root = power(M, -0.5)
        Y = power(root @ Y @ root, norm.scale / (v + 1e-5).sqrt())
    torch.testing.assert_close(model(X), model.classifier(logm(Y).flatten(1)))


def test_without_domains_there_is_one():
    model, X = make(), random_spd(12, 5)
    twin, zeros = copy.deepcopy(model), torch.zeros(12, dtype=torch.long)
    for _ in range(3):
        torch.testing.assert_close(model(X), twin(X, zeros), rtol=0, atol=0)
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(model.eval()(X), twin.eval()(X, zeros), rtol=0, atol=0)
    torch.testing.assert_close(model.features(X), twin.features(X, zeros), rtol=0, atol=0)


def test_a_new_domain_is_adapted_to_without_labels(trained):
    X, y, domain = problem(3)
    lost = (trained(X, domain).argmax(-1) == y).double().mean()
    before = copy.deepcopy(trained.state_dict())
    adapted = trained.adapt(X, domain + 2)
    assert (adapted(X, domain + 2).argmax(-1) == y).double().mean() > 0.85 > lost
    torch.testing.assert_close(trained.state_dict(), before, rtol=0, atol=0)
    assert [norm.n_domains for norm in adapted.norms] == [3, 3]
    assert [norm.n_domains for norm in trained.norms] == [2, 2]
    assert trained.adapt(X, domain) is trained  # a known domain
    again = copy.deepcopy(trained).refit(X, 2)
    torch.testing.assert_close(again.state_dict(), adapted.state_dict())
    assert trained.train().adapt(X, domain + 2).training
    trained.eval()


def test_layers_keep_their_mode(trained):
    model = copy.deepcopy(trained).train()
    model.norms[0].eval()
    model.refit(problem(2)[0], 2)
    assert model.training
    assert [norm.training for norm in model.norms] == [False, True]


def test_domains_do_not_depend_on_each_other(trained):
    X, _, domain = problem(0, 1, 3, 4)
    together = trained.adapt(X, domain)(X, domain)
    for d in range(4):
        part, index = X[domain == d], domain[domain == d]
        torch.testing.assert_close(trained.adapt(part, index)(part, index), together[domain == d])
    order = torch.randperm(len(X), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        trained.adapt(X[order], domain[order])(X[order], domain[order]), together[order]
    )


def test_domains_belong_to_the_norm():
    X, domain = random_spd(6, 5), torch.arange(6) % 2
    assert not SPDNet.uses_domains
    for norm in (None, "brooks", "affine_invariant"):
        plain = make(norm)
        assert not plain.uses_domains
        assert plain.adapt(X, domain) is plain
        for function in (plain, plain.features):
            with pytest.raises(ValueError, match="SPDNet: expected no domain"):
                function(X, domain)
        with pytest.raises(ValueError, match="expected n_domains=1"):
            make(norm, n_domains=2)
        with pytest.raises(ValueError, match="norm='domain'"):
            plain.refit(X, 0)
    model = make(n_domains=2)
    assert model.uses_domains
    assert not model.can_capture()
    assert all(isinstance(norm, SPDDomainBatchNorm) for norm in model.norms)
    assert model(X, domain).shape == (6, 2)


def test_wrong_domains_are_refused():
    X, domain = random_spd(6, 5), torch.arange(6) % 2
    model = make(n_domains=3)
    with pytest.raises(ValueError, match="expected the domains"):
        model(X)
    model(X, domain)
    for wrong, text in (
        (domain + 2, "expected domains from 0 to 2"),
        (domain.tolist(), "a tensor of integers"),
        (domain.double(), "a tensor of integers"),
        (domain[:4], "a tensor of integers"),
    ):
        for check in (None, True):
            with pytest.raises(ValueError, match=text):
                model(X, wrong, check=check)
    with pytest.raises(ValueError, match="trained or refitted, got 2"):
        model.eval()(X, torch.full((6,), 2))
    for wrong, kind in ((7, ValueError), (-1, ValueError), ("a", TypeError), (True, TypeError)):
        with pytest.raises(kind, match="domain"):
            model.refit(X, wrong)
    with pytest.raises(ValueError, match="n_domains"):
        make(n_domains=0)
    with pytest.raises(ValueError, match="BiMap"):
        make(dims=(5,))
    with pytest.raises(ValueError, match=r"SPDNet.*X\[2\].*positive"):
        model.refit(torch.cat([X[:2], -X[2:]]), 0)


def test_copies(trained):
    X, _, domain = problem(0, 1)
    expected = trained(X, domain)
    other = make(n_domains=2).eval()
    other.load_state_dict(trained.state_dict())
    compiled = torch.compile(trained, fullgraph=True, backend="aot_eager")
    for twin in (other, copy.deepcopy(trained), pickle.loads(pickle.dumps(trained)), compiled):
        torch.testing.assert_close(twin(X, domain), expected)
    other.reset_parameters()
    assert all(norm.num_batches_tracked.sum() == 0 for norm in other.norms)


def test_complex_matrices():
    X = random_spd(8, 5).to(torch.complex128)
    X = X + 0.1j * torch.triu(torch.ones(5, 5), 1) - 0.1j * torch.tril(torch.ones(5, 5), -1)
    domain = torch.arange(8) % 2
    model = make(n_domains=2, dtype=torch.complex128)
    assert model(X, domain).dtype == torch.float64
    model.adapt(X, domain + 2).eval()(X, domain + 2).sum().backward()
    assert all(p.grad is None for p in model.parameters())  # of the copy


@pytest.mark.parametrize("norm", ["domain", "none"])
def test_recipes(norm):
    recipe = RECIPES["fast"].changed(norm=norm, ensemble=2)
    assert recipe.uses_domains == (norm == "domain")
    model = make_network(recipe, 5, 2, n_domains=3)
    assert isinstance(model, Ensemble)
    assert model.uses_domains == (norm == "domain")
    if norm == "domain":
        assert [layer.n_domains for layer in model.networks[1].norms] == [3, 3]
        X, domain = random_spd(6, 5).float(), torch.arange(6) % 3
        assert model(X, domain).shape == (6, 2, 2)
        assert model.eval().adapt(X, domain + 3)(X, domain + 3).shape == (6, 2)


def test_other_networks():
    with pytest.raises(ValueError, match=r"MultiBranchSPDNet: expected norm .* got 'domain'"):
        MultiBranchSPDNet((5, 4), 2, norm="domain")
    with pytest.raises(ValueError, match="MultiBranchSPDNet: expected norm"):
        make_network(RECIPES["fast"].changed(model="multibranch", norm="domain"), 5, 2)
    domain = torch.arange(6) % 2
    settings = {"norm": "domain", "n_domains": 2}
    images = ConvSPDNet(2, dims=(4,), **settings)
    assert images(torch.randn(6, 1, 8, 8), domain).shape == (6, 2)
    net = SignalNet(5, 2, model="spdnet", **settings)
    assert net(torch.randn(6, 5, 40), domain).shape == (6, 2)
