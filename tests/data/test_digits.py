import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_score,
    train_test_split,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from spdnet.data import load_dataset, load_digits_spd
from spdnet.linalg import logm, vech
from spdnet.manifolds import log_euclidean
from spdnet.options.run import EMBEDDED
from spdnet.testing import assert_spd


@pytest.mark.parametrize("name", EMBEDDED)
def test_shapes_and_labels(name):
    n = EMBEDDED[name]
    X, y = load_digits_spd(n_features=n)
    assert X.shape == (1797, n, n)
    assert X.dtype == np.float64
    assert_spd(torch.from_numpy(X))
    assert np.bincount(y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    more, _ = load_digits_spd(n_features=n, reg=1e-2, mode="trace")
    assert np.linalg.cond(more).max() < np.linalg.cond(X).max()
    data = load_dataset(name)  # the same values each time
    np.testing.assert_array_equal(data.X, X)
    np.testing.assert_array_equal(data.y, y)


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


def test_a_tuned_linear_classifier_leaves_errors_on_the_small_ones():
    data = load_dataset("digits-small")
    features = log_euclidean.vectors(torch.as_tensor(data.X)).numpy()
    classifier = GridSearchCV(LogisticRegression(max_iter=2000), {"C": [0.1, 1, 10, 100]}, cv=3)
    accuracy = []
    for seed in range(5):
        train, test, y_train, y_test = train_test_split(
            features, data.y, test_size=0.2, stratify=data.y, random_state=seed
        )
        center, scale = train.mean(0), train.std(0).mean()
        classifier.fit((train - center) / scale, y_train)
        accuracy.append(classifier.score((test - center) / scale, y_test))
    assert 0.90 < np.mean(accuracy) < 0.96
