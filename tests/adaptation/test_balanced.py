"""Recentering of domains, also with other class proportions, and the steps before a network."""

import pickle
import warnings

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch.testing import assert_close

from spdnet.adaptation import (
    BalancedRecenter,
    Completion,
    Conditioner,
    Recenter,
    Rescale,
    Subspace,
)
from spdnet.covariance import ERPCovariances
from spdnet.linalg import congruence, invsqrtm
from spdnet.manifolds import affine_invariant, log_euclidean

N = 4


def domain(seed, proportions, count=60, shift=0.5):
    """Return matrices of two classes in one domain, whose mean is moved by a congruence."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(proportions)), np.round(np.array(proportions) * count).astype(int))
    signals = rng.normal(size=(len(y), N, 80))
    signals[np.arange(len(y)), y] *= 1.6
    S = np.random.default_rng(seed + 100).normal(size=(N, N)) * shift / 2
    mixed = (np.eye(N) + S) @ signals
    return mixed @ mixed.swapaxes(1, 2) / 80, y


def several(n=5, **how):
    """Return training domains with equal class proportions."""
    parts = [domain(seed, (0.5, 0.5), **how) for seed in range(n)]
    X, y = (np.concatenate(values) for values in zip(*parts, strict=True))
    return X, y, np.repeat(np.arange(n), 60)


def nearest_mean(Z, y, new):
    """Return the classes of the nearest log-Euclidean class means."""
    means = torch.stack([log_euclidean.mean(torch.from_numpy(Z[y == c])) for c in np.unique(y)])
    return log_euclidean.pairwise(torch.from_numpy(new), means).argmin(1).numpy()


def quietly(transformer, X, **how):
    with warnings.catch_warnings(action="ignore"):
        return transformer.transform(X, **how)


def test_recentered_domains_have_the_identity_as_their_mean():
    X, _, domains = several(2)
    Z = torch.from_numpy(Recenter().fit_transform(X, domains=domains))
    for d in range(2):
        own = torch.from_numpy(domains == d)
        assert_close(affine_invariant.mean(Z[own]), torch.eye(N).double(), atol=1e-8, rtol=0)
        M = affine_invariant.mean(torch.from_numpy(X)[own])
        assert_close(Z[own], congruence(torch.from_numpy(X)[own], invsqrtm(M)))


def test_recenter_agrees_with_pyriemann():
    transfer = pytest.importorskip("pyriemann.transfer")
    X, y, domains = several(3)
    names = domains.astype(str)
    encoded, labels = transfer.encode_domains(X.copy(), y.astype(str), names)
    theirs = transfer.TLCenter("2").fit_transform(encoded, labels)
    np.testing.assert_allclose(Recenter().fit_transform(X, domains=names), theirs, atol=1e-6)


def test_rescaled_domains_have_equal_dispersion():
    X, _, domains = several(2)
    Z = Recenter().fit_transform(X, domains=domains)
    Z[domains == 1] = torch.matrix_power(torch.from_numpy(Z[domains == 1]), 2).numpy()
    Z = Rescale(dispersion=1.5).fit_transform(Z, domains=domains)
    for d in range(2):
        logs = affine_invariant.squared_distance(
            torch.from_numpy(Z[domains == d]), torch.eye(N).double()
        )
        assert_close(logs.mean().item(), 1.5)


def test_dispersion_of_equal_matrices_is_not_rescaled():
    X, _, domains = several(2)
    X = np.concatenate([X, np.repeat(X[:1], 3, 0)])
    domains = np.r_[domains, 2, 3, 3]  # a single matrix, and two equal ones
    Z = Recenter().fit_transform(X, domains=domains)
    rescale = Rescale(dispersion=2.0).fit(Z, domains=domains)
    np.testing.assert_array_equal(rescale.transform(Z, domains=domains)[-3:], Z[-3:])
    np.testing.assert_array_equal(quietly(rescale, Z[-3:-2], domains=["new"]), Z[-3:-2])


def test_stream_approaches_the_mean():
    X, _, _ = several(1)
    stream = Recenter().partial_fit(X[:1])
    for matrix in X[1:]:
        stream.partial_fit(matrix[None])
    assert stream.counts_.tolist() == [60]
    mean = affine_invariant.mean(torch.from_numpy(X))
    start = affine_invariant.distance(torch.from_numpy(X[0]), mean)
    end = affine_invariant.distance(torch.from_numpy(stream.means_[0]), mean)
    assert end < 0.1 * start
    # of matrices that commute, the streaming mean is exact
    D = np.exp(np.random.default_rng(0).normal(size=(9, 3)))[:, :, None] * np.eye(3)
    exact = np.diag(np.exp(np.log(D[:, range(3), range(3)]).mean(0)))
    one_by_one = Recenter().partial_fit(D[:1]).partial_fit(D[1:])
    np.testing.assert_allclose(one_by_one.means_[0], exact)


def test_a_new_domain_of_a_stream_starts_from_the_known_ones():
    X, _, domains = several(2)
    recenter = Recenter().fit(X, domains=domains)
    start = affine_invariant.mean(torch.from_numpy(recenter.means_))
    recenter.partial_fit(X[:1], domains=[7])
    expected = affine_invariant.geodesic(start, torch.from_numpy(X[0]), 1 / 11)
    assert recenter.domains_.tolist() == [0, 1, 7]
    assert recenter.counts_.tolist() == [60, 60, 11]
    assert_close(torch.from_numpy(recenter.means_[2]), expected)
    with pytest.raises(ValueError, match="only if, fit had domains"):
        recenter.partial_fit(X[:1])


def test_domains_are_compared_as_they_are_given():
    """The number 0, its text and False are different domains; 0 and 0.0 are the same."""
    X, _, domains = several(2)
    recenter = Recenter().fit(X, domains=domains).partial_fit(X[:1], domains=["new"])
    recenter.partial_fit(X[:2], domains=[0, 1]).partial_fit(X[:1], domains=[0.0])
    assert recenter.domains_.tolist() == [0, 1, "new"]
    assert recenter.counts_.tolist() == [62, 61, 11]
    recenter.partial_fit(X[:2], domains=["0", "new"]).partial_fit(X[:1], domains=[False])
    assert recenter.domains_.tolist() == [0, 1, "new", "0", False]
    assert recenter.counts_.tolist() == [62, 61, 12, 11, 11]
    Z = recenter.transform(X[:3], domains=[0, 1, 0])
    again = recenter.transform(X[:3], domains=np.array([0, 1, 0], dtype=object))
    np.testing.assert_array_equal(Z, again)
    with pytest.raises(ValueError, match=r"expected finite numbers .* got domains\[1\] = nan"):
        Recenter().fit(X, domains=np.where(np.arange(len(X)) == 1, np.nan, 0))


def test_equal_proportions_are_recentered_as_usual():
    X, y, domains = several()
    balanced = BalancedRecenter().fit(X, y, domains=domains)
    means = torch.from_numpy(Recenter().fit(X, domains=domains).means_)
    gap = affine_invariant.distance(torch.from_numpy(balanced.centers_), means)
    spread = affine_invariant.distance(means, torch.from_numpy(balanced.center_))
    assert (gap < 0.05 * spread).all()  # drawn slightly toward the common center


@pytest.mark.parametrize("majority", [0, 1])
@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_other_proportions_are_found(majority, shift):
    X, y, domains = several(shift=shift)
    share = (0.85, 0.15) if majority == 0 else (0.15, 0.85)
    new, truth = domain(50, share, shift=shift)
    balanced, plain = BalancedRecenter().fit(X, y, domains=domains), Recenter()
    Z = balanced.transform(X, domains=domains)
    with pytest.warns(RuntimeWarning, match=f"class {majority} has an estimated share of"):
        moved = balanced.transform(new, domains=["new"] * len(new))
    np.testing.assert_allclose(balanced.proportions_["new"], share, atol=0.1)
    right = (nearest_mean(Z, y, moved) == truth).mean()
    usual = nearest_mean(plain.fit_transform(X, domains=domains), y, plain.fit_transform(new))
    assert right > 0.9
    assert right > (usual == truth).mean() + 0.08


def test_training_domains_may_have_other_proportions():
    """The centers are those that domains of equal proportions would have."""
    shares = [(0.9, 0.1), (0.1, 0.9), (0.5, 0.5)]
    parts = [domain(seed, share, count=300) for seed, share in enumerate(shares)]
    whole = [domain(seed, (0.5, 0.5), count=300) for seed in range(3)]
    X, y = (np.concatenate(values) for values in zip(*parts, strict=True))
    domains = np.repeat(np.arange(3), 300)
    found = torch.from_numpy(BalancedRecenter().fit(X, y, domains=domains).centers_)
    plain = torch.from_numpy(Recenter().fit(X, domains=domains).means_)
    true = torch.stack([affine_invariant.mean(torch.from_numpy(A)) for A, _ in whole])
    for d in range(2):
        assert affine_invariant.distance(found[d], true[d]) < 0.6 * affine_invariant.distance(
            plain[d], true[d]
        )


def test_domains_that_do_not_differ_are_not_moved_apart():
    X, y, domains = several(shift=0.0)
    balanced = BalancedRecenter().fit(X, y, domains=domains)
    few, _ = domain(60, (1.0, 0.0), count=5, shift=0.0)
    moved = torch.from_numpy(quietly(balanced, few, domains=["new"] * 5))
    expected = congruence(torch.from_numpy(few), invsqrtm(torch.from_numpy(balanced.center_)))
    near = affine_invariant.distance(moved, expected)
    assert near.max() < 0.3 * affine_invariant.distance(expected, torch.eye(N).double()).max()


@pytest.mark.parametrize("copies", ["all", "class"])
def test_equal_matrices_are_accepted(copies):
    X, y, domains = several(3)
    X = X[np.zeros_like(y) if copies == "all" else 60 * domains + 30 * y]
    balanced = BalancedRecenter().fit(X, y, domains=domains)
    assert (balanced.scores_ is None) == (copies == "all")
    assert np.isfinite(quietly(balanced, X[:9], domains=["new"] * 9)).all()


def test_a_single_matrix_and_a_single_class_are_accepted():
    X, y, domains = several(2)
    balanced = BalancedRecenter().fit(X, y, domains=domains)
    with pytest.warns(RuntimeWarning, match="the new domain new has a single matrix") as caught:
        one = balanced.transform(X[:1], domains=["new"])
    assert caught[0].filename == __file__
    assert np.isfinite(one).all()
    np.testing.assert_array_equal(balanced.proportions_["new"], balanced.prior_)
    # one training domain, and too few matrices for the model of the scores
    few = BalancedRecenter().fit(X[[0, 59]], y[[0, 59]])
    assert few.scores_ is None
    assert np.isfinite(few.transform(X[:3])).all()
    with pytest.raises(ValueError, match="expected the classes y"):
        BalancedRecenter().fit(X)


@pytest.mark.parametrize("make", [Recenter, Rescale, BalancedRecenter])
def test_domains_of_one_matrix_each_are_refused(make):
    X, y, _ = several(2)
    with pytest.raises(ValueError, match="got 120 domains of one each; pass a property"):
        make().fit(X, y, domains=np.arange(120))


def test_classes_that_can_hardly_be_told_apart_do_not_move_domains():
    """The proportions of such a domain are unknown: recentering is as usual."""
    rng = np.random.default_rng(0)
    signals = rng.normal(size=(6, 50, 12, 40))
    y = np.tile(np.arange(50) % 2, 6)
    signals.reshape(300, 12, 40)[y == 1, 0] *= 1.1
    gains = np.exp(0.2 * rng.normal(size=(6, 1, 12, 1)))
    X = (gains * signals).reshape(300, 12, 40)
    X, domains = X @ X.swapaxes(1, 2) / 40, np.repeat(np.arange(6), 50)
    for held in range(6):
        train = domains != held
        balanced = BalancedRecenter().fit(X[train], y[train], domains=domains[train])
        quietly(balanced, X[~train], domains=domains[~train])
        np.testing.assert_allclose(balanced.proportions_[held], (0.5, 0.5), atol=0.1)


def test_transformers_follow_the_conventions():
    X, y, domains = several(3)
    for transformer in (Recenter(), Rescale(), BalancedRecenter()):
        fitted = clone(transformer).fit(X, y, domains=domains)
        again = pickle.loads(pickle.dumps(fitted))
        order = np.random.default_rng(0).permutation(len(X))
        Z = fitted.transform(X, domains=domains)
        np.testing.assert_allclose(
            again.transform(X[order], domains=domains[order]), Z[order], rtol=1e-10
        )
        assert not hasattr(transformer, "n_features_in_")
        with pytest.raises(ValueError, match="domains of the 180 samples"):
            fitted.transform(X, domains=[0])


@pytest.mark.parametrize("adapt", ["none", "recenter", "rescale", "auto"])
def test_conditioner_is_restored_from_its_state(adapt, tmp_path):
    from spdnet.training import checkpoint

    X, y, domains = several(3)
    X, tensor = np.pad(X, ((0, 0), (0, 1), (0, 1))), torch.from_numpy  # a channel without variance
    conditioner = Conditioner(adapt=adapt).fit(tensor(X), y, domains, singular=True)
    checkpoint.save({"conditioner": conditioner.state()}, tmp_path / "a.pt")
    again = Conditioner.from_state(checkpoint.load(tmp_path / "a.pt")["conditioner"])
    assert again.size(N + 1) == N
    assert again.uses_domains == (adapt != "none")
    assert again.notes_ == conditioner.notes_
    for names in (domains, np.full(len(X), 9)):
        with warnings.catch_warnings(action="ignore"):
            assert_close(again.transform(tensor(X), names), conditioner.transform(tensor(X), names))


@pytest.mark.parametrize(
    "transformer",
    [Recenter(), BalancedRecenter(), Rescale(), Completion(), Subspace(rank=3), ERPCovariances()],
    ids=repr,
)
def test_memory_mapped_transformers(transformer, tmp_path):
    X, y, _ = several(2)
    X = X[:, :, :3] if isinstance(transformer, ERPCovariances) else X
    expected = transformer.fit(X, y).transform(X)
    joblib.dump(transformer, tmp_path / "fitted")
    torch.set_warn_always(True)
    try:
        found = joblib.load(tmp_path / "fitted", mmap_mode="r").transform(X)
    finally:
        torch.set_warn_always(False)
    np.testing.assert_array_equal(found, expected)


def test_conditioner_rejects_invalid_settings():
    for settings in ({"adapt": "always"}, {"rank": "half"}, {"shrinkage": 1.5}):
        with pytest.raises(ValueError, match=next(iter(settings))):
            Conditioner(**settings)


def test_conditioner_completes_missing_channels():
    X, y, _ = several(2)
    conditioner = Conditioner().fit(torch.from_numpy(X), y)
    assert conditioner.transform(torch.from_numpy(X)) is not None
    assert_close(conditioner.transform(torch.from_numpy(X)).numpy(), X, rtol=0, atol=0)
    partial = X.copy()
    partial[:9, 2] = partial[:9, :, 2] = np.nan
    filled = conditioner.transform(torch.from_numpy(partial))
    assert (torch.linalg.eigvalsh(filled) > 0).all()
    assert_close(filled[9:].numpy(), X[9:], rtol=0, atol=0)
    fitted = Conditioner().fit(torch.from_numpy(partial), y)
    assert fitted.notes_ == []
    assert fitted.completes


def test_complex_matrices_of_real_numbers_are_treated_alike():
    X, y, domains = several(3)
    for transformer in (Recenter(), BalancedRecenter()):
        real = clone(transformer).fit(X, y, domains=domains)
        complex_ = clone(transformer).fit(X + 0j, y, domains=domains)
        np.testing.assert_allclose(
            complex_.transform(X + 0j, domains=domains),
            real.transform(X, domains=domains),
            atol=1e-9,
        )
    with pytest.raises(TypeError, match="expected real matrices for rank"):
        Conditioner(rank=2).fit(torch.from_numpy(X + 0j), y)
