"""Layers, estimators, file readers and ``spdnet train`` accept and refuse the same matrices."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from spdnet import SPDNet, SPDNetClassifier
from spdnet.cli import app
from spdnet.covariance import regularize
from spdnet.data import Preprocessing, clean, examine, load_dataset, prepare
from spdnet.linalg import logm
from spdnet.linalg.validate import FAULTS, find_faults
from spdnet.runs import Settings
from tests.cases import ILL_CONDITIONED, SPECTRA, random_spd, with_spectrum


def spectrum(*values):
    return with_spectrum(list(values)).numpy()


def product(channels, samples, dtype=np.float32):
    """Return a float64 product whose triangles differ by rounding errors."""
    A = np.random.default_rng(0).normal(size=(channels, samples)).astype(dtype)
    X = (A @ A.T) / dtype(samples)
    X = X * (1 + np.finfo(dtype).eps * np.random.default_rng(1).integers(-2, 3, X.shape))
    assert not np.array_equal(X, X.T)
    return X.astype(np.float64)


def changed(X, entry, by):
    X = X.copy()
    X[entry] += by
    return X


GOOD = random_spd(4).numpy()
BESIDE_A_LARGE_CHANNEL = np.diag([1e6, 1.0, 1.0, 1.0])
ACCEPTED = {name: spectrum(*values) for name, values in SPECTRA.items()} | {
    "condition 1e8": spectrum(*ILL_CONDITIONED),
    "condition 1e12": spectrum(1e-12, 0.1, 0.5, 1.0),
    "product in float32": product(6, 40),
    "product in float64": product(6, 40, np.float64),
    "asymmetric by 2.8e-7": changed(GOOD, (0, 1), 2.8e-7 * GOOD.max()),
    "units of 1e-12": 1e-12 * GOOD,
    "units of 1e12": 1e12 * GOOD,
    "units of 1e-12 after float32": 1e-12 * product(6, 40),
    "low rank + 1e-3 I": product(6, 3) + 1e-3 * np.eye(6),
    "float32": GOOD.astype(np.float32),
    "float32, units of 1e-35": (1e-35 * GOOD).astype(np.float32),
    "float32, condition 1e4": spectrum(1e-4, 0.1, 0.5, 1.0).astype(np.float32),
}
#: accepted by the layers, which only need positive semi-definite matrices
SEMIDEFINITE = {
    "rank 3 of 6": product(6, 3, np.float64),
    "zero eigenvalue": spectrum(0.0, 0.3, 0.8, 4.0),
    "zero": np.zeros((4, 4)),
    "too small": 1e-300 * GOOD,
    "negative by rounding": spectrum(-1e-12, 0.3, 0.8, 4.0),
    "negative by rounding to float32": spectrum(-1e-7, 0.3, 0.8, 4.0)
    .astype(np.float32)
    .astype(float),
    "negative by rounding to six digits": np.array([[1.0, 0.333333], [0.333333, 0.111110]]),
    "float32, condition 1e8": spectrum(1e-8, 0.1, 0.5, 1.0).astype(np.float32),
    "float32, rank 3 of 6": product(6, 3).astype(np.float32),
}
REFUSED = {
    "NaN": changed(GOOD, (1, 1), np.nan),
    "infinity": changed(GOOD, (0, 1), np.inf),
    "asymmetric by 1e-3": changed(GOOD, (0, 1), 1e-3 * GOOD.max()),
    "float32, asymmetric by 1e-3": changed(GOOD, (0, 1), 1e-3 * GOOD.max()).astype(np.float32),
    "triangle": np.triu(GOOD),
    "skew beside a large channel": BESIDE_A_LARGE_CHANNEL
    + 0.9 * (np.eye(4)[[2]].T * np.eye(4)[3] - np.eye(4)[[3]].T * np.eye(4)[2]),
    "triangle beside a large channel": changed(BESIDE_A_LARGE_CHANNEL, (2, 3), 0.9),
    "asymmetric small channels": changed(np.diag([1.0, 1.0, 1e-3, 1e-3]), (2, 3), 3e-4),
    "indefinite": spectrum(-1.0, 1.0, 2.0, 3.0),
    "indefinite by 1e-6": spectrum(-1e-6, 1.0, 2.0, 3.0),
    "indefinite, few digits": np.array([[1.0, 1.0001], [1.0001, 1.0]]),
    "negative definite": -GOOD,
}
CASES = {
    **{name: (X, True, True) for name, X in ACCEPTED.items()},
    **{name: (X, True, False) for name, X in SEMIDEFINITE.items()},
    **{name: (X, False, False) for name, X in REFUSED.items()},
}


def refusal(call):
    """Return the error message, or an empty string if the call succeeds."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def among_others(matrix):
    """Return twelve matrices with this one as ``X[5]``, and labels of two classes."""
    X = np.stack([np.eye(len(matrix), dtype=matrix.dtype)] * 12)
    X[5] = matrix
    return X, np.arange(12) % 2


@pytest.mark.parametrize("case", CASES)
def test_all_entry_points_agree(case, tmp_path):
    matrix, semidefinite, definite = CASES[case]
    X, y = among_others(matrix)
    n = len(matrix)
    np.savez(tmp_path / "a.npz", X=X, y=y)
    settings = Settings(data=str(tmp_path / "a.npz"))
    T = torch.from_numpy(X)
    layers = refusal(lambda: SPDNet((n, n, n), 2, dtype=T.dtype)(T))
    assert (layers == "") == semidefinite, layers
    settings_of = {"epochs": 1, "random_state": 0, "device": "cpu"}
    classifier = SPDNetClassifier(rank="full", shrinkage="none", **settings_of)
    estimator = refusal(lambda: classifier.fit(X, y))
    assert (estimator == "") == definite, estimator
    if not semidefinite:  # same message except for the requirement
        same = layers.replace("SPDNet", "SPDNetClassifier").replace("semi-definite", "definite")
        assert same == estimator
    elif len(examine(X).faults["singular"]):  # singular matrices are made definite by default
        assert np.isfinite(SPDNetClassifier(**settings_of).fit(X, y).predict_proba(X)).all()
    found = examine(X)
    assert found.bad.tolist() == ([] if definite else [5])
    listed = refusal(lambda: clean(X))
    assert (listed == "") == definite
    assert str(found) in listed or definite
    data = load_dataset(settings.data)  # like "spdnet train"
    preprocessing = Preprocessing.of(data, estimator=settings.estimator, reg=settings.reg)
    assert refusal(lambda: prepare(data, preprocessing, settings.bad, settings.dtype)) == listed


def test_train_command_agrees(tmp_path):
    for name, code in (("asymmetric by 2.8e-7", 0), ("asymmetric by 1e-3", 2)):
        X, y = among_others(CASES[name][0])
        np.savez(tmp_path / "a.npz", X=X, y=y)
        command = ["train", str(tmp_path / "a.npz"), "--out", str(tmp_path / str(code))]
        run = CliRunner().invoke(app, [*command, "--epochs", "1", "--no-baseline"])
        assert (run.exit_code, "1 asymmetric: 5" in run.output) == (code, code != 0), run.output


def test_float32_data_use_float32_tolerance_in_float64():
    X, _ = among_others(CASES["float32, condition 1e8"][0])
    for dtype in (None, "float64", "float32"):
        assert "1 singular: 5" in refusal(lambda dtype=dtype: clean(X, dtype=dtype))
        mended, _, _ = clean(X, "repair", dtype=dtype)
        assert mended.dtype == np.dtype(dtype or X.dtype)
    tiny = (1e-35 * X[:5]).astype(np.float32)
    assert clean(tiny, dtype="float64")[0].dtype == np.float64
    assert "5 too small" in refusal(lambda: clean(tiny, dtype="float32"))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_uses_its_own_tolerance(dtype):
    A = torch.randn(20, 8, 4, dtype=torch.float64)
    X = (A @ A.mT).to(dtype)  # rank 4 up to rounding of the entries
    assert (torch.linalg.eigvalsh(X.double())[:, 0] < 0).any()
    assert SPDNet((8, 8, 8), 2, eps=0.1)(X).isfinite().all()
    X[3] -= X[3].diagonal().max() * torch.eye(8, dtype=dtype)
    with pytest.raises(ValueError, match=r"X\[3\] is not positive semi-definite"):
        SPDNet((8, 8, 8), 2, eps=0.1)(X)


def test_float32_products_can_be_regularized_and_mapped():
    X = ACCEPTED["product in float32"]
    assert logm(torch.from_numpy(X)).isfinite().all()
    assert np.isfinite(regularize(X)).all()


def test_result_is_independent_of_batch_splits():
    X = np.stack([CASES[name][0] for name in CASES if CASES[name][0].shape == (4, 4)])
    T = torch.from_numpy(X.astype(np.float64))
    faults = {
        "symmetric": {"not finite", "asymmetric"},
        "positive semi-definite": {"not finite", "asymmetric", "indefinite"},
        "positive definite": set(FAULTS) - {"not Hermitian"},
    }
    for wanted, expected in faults.items():
        together, *alone = (
            find_faults(pieces, len(T), wanted, unit=2.0**-52, dtype=torch.float64).code.tolist()
            for pieces in ([T], T.split(1), T.split(7))
        )
        assert alone == [together] * 2
        assert {FAULTS[i] for i in together if i >= 0} == expected


def test_values_near_the_float64_maximum_do_not_overflow():
    X = 1.5e308 * np.eye(3)[None]
    assert len(examine(X).bad) == 0
    assert str(examine(-X)) == "1 indefinite: 0"
