"""Measure the accuracy when channels are missing, with several ways to handle them.

    python benchmarks/do_missing_channels_matter.py FOLDER [--seeds 3] [--sets a09,ssvep]
                                        [--parts each,same,train] [--missing 0,1,2,4,8,12]

FOLDER contains ``motor_imagery_a09.npz`` and ``ssvep_exo.npz``. Channels are missing in test
matrices (``each``: other random channels in each of them; ``same``: the same random channels in
all) or in half of the training matrices (``train``). The classifier is logistic regression on
logarithms. The methods:

completion   conditional expectation under the mean of the training set, ``Completion``
pyriemann    the same under the mean of pyRiemann, nan if it diverges (only ``train``)
regression   regression on the observed channels, without the residual, plus 1e-3 of the variance
mean         variances and covariances of the mean among missing channels, none with the others
common       train and test on the channels that are never missing (only ``same``)
drop         do not train on matrices with missing channels; the most frequent class in the test
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from how_good_is_the_default import SETS

from spdnet import metrics
from spdnet.adaptation import Completion, observed_channels
from spdnet.baselines import LogEuclideanClassifier


def hide(X, missing, rng, part):
    """Return a copy in which channels are missing."""
    n = X.shape[-1]
    X, one = X.copy(), rng.choice(n, missing, replace=False)
    for i in range(len(X)):
        if part != "train" or i % 2:
            gone = one if part == "same" else rng.choice(n, missing, replace=False)
            X[i, gone] = np.nan
            X[i, :, gone] = np.nan
    return X


def fill(X, M, how):
    """Fill in missing channels from the mean without the conditional variance."""
    X = X.copy()
    for x, o in zip(X, observed_channels(X), strict=True):
        h = ~o
        if how == "mean":
            x[np.ix_(h, h)], x[np.ix_(h, o)], x[np.ix_(o, h)] = M[np.ix_(h, h)], 0, 0
        else:
            B = np.linalg.solve(M[np.ix_(o, o)], M[np.ix_(o, h)]).T
            C = x[np.ix_(o, o)]
            x[np.ix_(h, o)], x[np.ix_(o, h)] = B @ C, (B @ C).T
            own = B @ C @ B.T
            x[np.ix_(h, h)] = (own + own.T) / 2 + 1e-3 * np.diag(M.diagonal()[h])
    return X


def pyriemann_mean(X):
    """Return a fitted transformer with the mean of pyRiemann."""
    from pyriemann.geometry.mean import nanmean_riemann

    # its own start, the mean of the known entries, need not be positive definite
    variances = np.diag(np.nanmean(X.diagonal(axis1=1, axis2=2), 0))
    model = Completion()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no convergence
        model.mean_ = nanmean_riemann(X, init=fill(X, variances, "mean").mean(0))
    model.n_features_in_ = X.shape[-1]
    return model


def accuracy(method, X, y, T, t, reuse):
    """Return the accuracy on test matrices ``T`` after training on ``X``."""
    if method == "common":
        keep = observed_channels(T).all(0)
        X, T = X[:, keep][:, :, keep], T[:, keep][:, :, keep]
        return LogEuclideanClassifier().fit(X, y).score(T, t)
    whole, present = observed_channels(X).all(1), observed_channels(T).all(1)
    if method == "drop":
        model = LogEuclideanClassifier().fit(X[whole], y[whole])
        found = np.full(len(t), np.bincount(y).argmax())
        if present.any():
            found[present] = model.predict(T[present])
        return (found == t).mean()
    try:
        completion = pyriemann_mean(X) if method == "pyriemann" else Completion().fit(X)
    except ValueError:  # its iteration left the positive definite matrices
        return np.nan
    if method in ("regression", "mean"):
        X, T = (fill(Z, completion.mean_, method) for Z in (X, T))
    else:
        X, T = completion.transform(X), completion.transform(T)
    if not whole.all() or "model" not in reuse:
        reuse["model"] = LogEuclideanClassifier().fit(X, y)
    return reuse["model"].score(T, t)


PARTS = {
    "each": ("completion", "regression", "mean", "drop"),
    "same": ("completion", "regression", "mean", "common", "drop"),
    "train": ("completion", "pyriemann", "regression", "mean", "drop"),
}


def main():
    """Print a line for each data set, part and method."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", default="a09,ssvep")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--missing", default="0,1,2,4,8,12")
    arguments = parser.parse_args()
    counts = [int(k) for k in arguments.missing.split(",")]
    for name in arguments.sets.split(","):
        X, y, _, train = SETS[name](arguments.folder)
        y = np.unique(y, return_inverse=True)[1]
        for part in arguments.parts.split(","):
            for method in PARTS[part]:
                reuse, cells = {}, []
                for k in counts:
                    found = []
                    for seed in range(arguments.seeds if k else 1):
                        rng, Z = np.random.default_rng(seed), X.copy()
                        own = train if part == "train" else ~train
                        Z[own] = hide(X[own], k, rng, part)
                        parts = (Z[train], y[train], Z[~train], y[~train])
                        found.append(100 * accuracy(method, *parts, reuse))
                    mean, deviation = metrics.spread(found)
                    cells.append(f"{mean:5.1f}" + (f" ± {deviation:3.1f}" if k else ""))
                print(f"{name:6} {part:6} {method:11}", " | ".join(cells), flush=True)


if __name__ == "__main__":
    main()
