"""Unusual arrays given to estimators and functions: masked arrays and four dimensions."""

import numpy as np
import pytest
from scipy.linalg import block_diag

from spdnet import SPDNetClassifier
from spdnet.baselines import MeanFeatureVerifier, MinimumDistanceToMean
from spdnet.baselines.deep_o2p import DeepO2PClassifier
from spdnet.covariance import estimate
from spdnet.data import DataError, Dataset, clean, examine, hold_out, read
from spdnet.runs import RunFolder, Settings, TrainedModel, train
from tests.cases import random_spd

X = random_spd(8, 3).numpy()
Y = np.resize([0, 1], 8)
SIGNALS = np.random.default_rng(0).normal(size=(8, 3, 40))


def classifier():
    return SPDNetClassifier(epochs=1, random_state=0, device="cpu")


def masked(values, mask=True):
    """Return a masked array with one masked entry, or none."""
    found = np.ma.MaskedArray(values, np.zeros(np.shape(values), bool))
    if mask:
        found[(1,) * found.ndim] = np.ma.masked
    return found


tsmnet = {"model": "tsmnet", "dims": (3, 2), "epochs": 1, "device": "cpu"}
USES = {
    "matrices": (lambda mask: classifier().fit(masked(X, mask), Y), "X"),
    "a list": (lambda mask: classifier().fit([masked(x, mask) for x in X], Y), "X"),
    "labels": (lambda mask: classifier().fit(X, masked(Y, mask)), "y"),
    "weights": (lambda mask: classifier().fit(X, Y, masked(np.ones(8), mask)), "sample_weight"),
    "signals": (lambda mask: SPDNetClassifier(**tsmnet).fit(masked(SIGNALS, mask), Y), "X"),
    "domains": (
        lambda mask: SPDNetClassifier(**tsmnet).fit(SIGNALS, Y, domains=masked(Y, mask)),
        "domains",
    ),
    "prediction": (lambda mask: classifier().fit(X, Y).predict(masked(X, mask)), "X"),
    "baseline": (lambda mask: MinimumDistanceToMean().fit(masked(X, mask), Y), "X"),
    "labels of a baseline": (lambda mask: MinimumDistanceToMean().fit(X, masked(Y, mask)), "y"),
    "sets": (lambda mask: MeanFeatureVerifier().fit([masked(x, mask) for x in X]), "X"),
    "images": (
        lambda mask: DeepO2PClassifier(epochs=1).fit(masked(np.ones((8, 8, 8)), mask), Y),
        "X",
    ),
    "covariance": (lambda mask: estimate(masked(SIGNALS, mask)), "X"),
    "examine": (lambda mask: examine(masked(X, mask)), "X"),
    "clean": (lambda mask: clean(masked(X, mask)), "X"),
    "hold_out": (lambda mask: hold_out(masked(Y, mask), 0.5), "y"),
    "groups": (lambda mask: hold_out(Y, 0.5, groups=masked(np.arange(8) // 2, mask)), "groups"),
}


@pytest.mark.parametrize("use", USES)
def test_masked_entries_are_refused(use):
    call, name = USES[use]
    with pytest.raises(ValueError, match=rf"expected {name}\S* without masked entries, got \d+"):
        call(True)
    call(False)  # a mask without masked entries is accepted


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    np.savez(folder / "a.npz", X=np.concatenate([X, X]), y=np.resize(Y, 16))
    settings = Settings(data=str(folder / "a.npz"), epochs=1, device="cpu")
    train(settings, RunFolder(folder / "run"))
    return TrainedModel.load(folder / "run")


def test_trained_model_refuses_masked_entries(trained):
    with pytest.raises(ValueError, match="predict: expected X without masked entries, got 1"):
        trained.predict(masked(X))
    assert trained.predict(masked(X, False)).shape == (8,)


BANDS = np.stack([X, 2 * X], axis=1)


def test_several_matrices_per_sample_are_refused_with_a_hint(tmp_path, trained):
    np.savez(tmp_path / "a.npz", X=BANDS, y=Y)
    hint = r"2 symmetric matrices for each sample.*X\[:, b\].*block_diag\(\*x\) for x in X"
    with pytest.raises(ValueError, match=hint) as refused:
        classifier().fit(BANDS, Y)
    assert "covariance.estimate" not in str(refused.value)
    with pytest.raises(DataError, match=hint):
        read(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=hint):
        trained.predict(BANDS)
    classifier().fit(BANDS[:, 1], Y)
    joined = np.stack([block_diag(*x) for x in BANDS])
    classifier().fit(joined, Y)
    assert Dataset(joined).is_matrices


def test_four_dimensional_signals_are_refused_with_a_hint():
    for values in (SIGNALS[:, None], np.arange(72.0).reshape(2, 4, 3, 3)):
        with pytest.raises(ValueError, match=r"spdnet\.covariance\.estimate"):
            classifier().fit(values, Y)
