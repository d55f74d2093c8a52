"""Networks examine the first batch, and later ones only if something is wrong."""

import copy
import pickle

import pytest
import torch

from spdnet import SPDNet
from spdnet.linalg import validate
from spdnet.models import MultiBranchSPDNet, PortfolioNet
from tests.cases import random_spd

NETWORKS = {
    "spdnet": lambda: SPDNet((6, 5, 4), 3, dtype=torch.float64),
    "no ReEig": lambda: SPDNet((6, 5), 3, dtype=torch.float64),
    "percent": lambda: SPDNet((6, 5, 4), 3, eps="10%", dtype=torch.float64),
    "norm": lambda: SPDNet((6, 5, 4), 3, norm="log_euclidean", dtype=torch.float64),
    "norm, percent": lambda: SPDNet(
        (6, 5, 4), 3, norm="affine_invariant", eps="10%", dtype=torch.float64
    ),
    "norm of domains": lambda: SPDNet((6, 5, 4), 3, norm="domain", dtype=torch.float64),
    "head": lambda: SPDNet((6, 5, 4), 3, head="log_euclidean", dtype=torch.float64),
    "branches": lambda: MultiBranchSPDNet((6, 5, 4), 3, dtype=torch.float64),
    "portfolio": lambda: PortfolioNet(6, 3, members=("log", "sqrt-kernel"), dtype=torch.float64),
}


def spoiled(kind):
    X = random_spd(5, 6)
    if kind == "nan":
        X[3, 1, 2] = X[3, 2, 1] = torch.nan
    else:
        X[3] -= 2 * torch.linalg.eigvalsh(X[3])[-1] * torch.eye(6)  # negative definite
    return X


@pytest.fixture
def count(monkeypatch):
    """Count the examinations that cost a pass over the data."""
    calls = []
    examine = validate._examine
    monkeypatch.setattr(validate, "_examine", lambda *args: calls.append(1) or examine(*args))
    return calls


@pytest.mark.parametrize("name", NETWORKS)
def test_later_batches_cost_nothing(name, count):
    model = NETWORKS[name]()
    model(random_spd(5, 6))
    assert count
    torch.manual_seed(0)
    with torch.no_grad():
        expected = copy.deepcopy(model)(random_spd(5, 6, seed=1), check=False)
    count.clear()
    torch.manual_seed(0)
    torch.testing.assert_close(model(random_spd(5, 6, seed=1)), expected, rtol=0, atol=0)
    assert not count
    model(random_spd(5, 6, seed=1), check=True)
    assert count


@pytest.mark.parametrize("kind", ["nan", "indefinite"])
@pytest.mark.parametrize("name", NETWORKS)
def test_invalid_matrices_in_later_batches_are_named(name, kind):
    model = NETWORKS[name]()
    model(random_spd(5, 6))
    before = {k: v.clone() for k, v in model.named_buffers()}
    with pytest.raises(ValueError, match=r"X\[3\]") as later:
        model(spoiled(kind))
    with pytest.raises(ValueError, match=r"X\[3\]") as checked:
        model(spoiled(kind), check=True)
    assert str(later.value) == str(checked.value)
    for k, v in model.named_buffers():  # nothing is lost
        assert v.isfinite().all(), k
        if k.endswith("running_mean"):
            torch.testing.assert_close(v, before[k])
    assert model(random_spd(5, 6)).isfinite().all()


@pytest.mark.parametrize("kind", ["nan", "indefinite"])
def test_an_invalid_first_batch_is_named_each_time(kind):
    model = NETWORKS["spdnet"]()
    for _ in range(2):
        with pytest.raises(ValueError, match=r"X\[3\]"):
            model(spoiled(kind))


def test_asymmetric_matrices_are_found_in_the_first_batch_and_on_request():
    X = random_spd(5, 6)
    X[2, 0, 1] += 1
    model = NETWORKS["spdnet"]()
    with pytest.raises(ValueError, match=r"X\[2\] is not symmetric"):
        model(X)
    model(random_spd(5, 6))
    with pytest.raises(ValueError, match=r"X\[2\] is not symmetric"):
        model(X, check=True)
    with pytest.raises(ValueError, match=r"X\[2\] is not symmetric"):
        SPDNet((6, 5), 3, check=True, dtype=torch.float64)(X)


def test_singular_matrices_are_examined_and_accepted():
    """A matrix whose negative eigenvalue is rounding is no error, though it is looked at again."""
    A = torch.randn(5, 6, 3, dtype=torch.float64)
    model = NETWORKS["spdnet"]()
    for _ in range(2):
        assert model(A @ A.mT).isfinite().all()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_examines_its_first_batch(copied):
    model = NETWORKS["spdnet"]()
    model(random_spd(5, 6))
    X = random_spd(5, 6)
    X[2, 0, 1] += 1
    with pytest.raises(ValueError, match="not symmetric"):
        copied(model)(X)


def test_arrays_are_refused():
    with pytest.raises(TypeError, match=r"got numpy.ndarray; use torch.as_tensor\(X\)"):
        SPDNet((4, 3), 2)(torch.eye(4).numpy())
