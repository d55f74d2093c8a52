import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from spdnet.data import load_digits_spd
from spdnet.linalg import logm, vech
from spdnet.testing import assert_spd


def test_shapes_and_labels():
    X, y = load_digits_spd()
    assert X.shape == (1797, 17, 17)
    assert X.dtype == np.float64
    assert_spd(torch.from_numpy(X))
    assert np.bincount(y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    more, _ = load_digits_spd(reg=1e-2, mode="trace")
    assert np.linalg.cond(more).max() < np.linalg.cond(X).max()


def test_a_linear_classifier_of_the_logarithms_reads_them():
    """Far above what the raw entries give: the log-Euclidean baseline of every comparison."""
    X, y = load_digits_spd()
    classifier = make_pipeline(StandardScaler(), SVC(kernel="linear", C=0.1))
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    X = torch.from_numpy(X)
    accuracy = {
        name: cross_val_score(classifier, vech(F).numpy(), y, cv=folds).mean()
        for name, F in (("log", logm(X)), ("raw", X))
    }
    assert accuracy["log"] > 0.99
    assert accuracy["log"] > accuracy["raw"] + 0.005
