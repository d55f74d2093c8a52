"""Compare candidates for the default training recipe.

The candidates are evaluated by three-fold cross-validation on a stratified half of each data set,
and compared with log-Euclidean logistic regression on the same folds. The other half, the test
half, is not used.

    python benchmarks/which_recipe.py [--motion FOLDER] [--halves 5] [--jobs 2]
                                      [--sets digits,cmu27,hdm05] [--only NAME,NAME]

FOLDER contains ``cmu27_joints.npz`` and ``hdm05_11_joints.npz`` with ``frames (sumT, 31, 3)``,
``lengths`` and ``label``. Without FOLDER, only the digits are used. The standard deviation is taken
over the halves.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, delayed
from sklearn.model_selection import StratifiedKFold, train_test_split

from spdnet import SPDNetClassifier, covariance, metrics
from spdnet.baselines import LogEuclideanClassifier
from spdnet.data import load_digits_spd

BASELINE = "log-Euclidean logistic regression"
CANDIDATES = {  # each differs from the default in one respect
    BASELINE: None,
    "default": {},
    "lr 0.003": {"lr": 0.003},
    "lr 0.03": {"lr": 0.03},
    "no label smoothing": {"label_smoothing": 0.0},
    "label smoothing 0.2": {"label_smoothing": 0.2},
    "30 epochs": {"epochs": 30},
    "120 epochs": {"epochs": 120},
    "affine-invariant center": {"center": "affine_invariant"},
    "no center": {"center": "none"},
    "no BiMap": {"dims": 0},
    "one BiMap": {"dims": 1},
    "shrinking": {"dims": (0.75, 0.5)},
    "eps 10%": {"eps": "10%"},
    "paper 60 epochs": {"recipe": "paper", "epochs": 60},
}


def motion(path, root=0):
    """Compute covariances of joint positions, absolute or relative to a root joint."""
    file = np.load(path)
    ends = np.cumsum(file["lengths"])
    clips = np.split(file["frames"].astype(np.float64), ends[:-1])
    matrices = [covariance.joint_covariance(clip, root=root) for clip in clips]
    return np.stack(matrices), file["label"]


def load(name, folder):
    """Load the matrices and labels of a data set."""
    if name == "digits":
        return load_digits_spd()
    return motion(folder / {"cmu27": "cmu27_joints.npz", "hdm05": "hdm05_11_joints.npz"}[name])


def classifier(settings, n, seed):
    """Build a candidate; dims is the number of BiMaps, or their sizes as fractions of n."""
    settings = dict(settings)
    if "dims" in settings:
        rule = settings["dims"]
        sizes = [min(n, 64)] * rule if isinstance(rule, int) else [round(r * n) for r in rule]
        settings["dims"] = (n, *sizes)
    return SPDNetClassifier(random_state=seed, device="cpu", **settings)


def score(settings, X, y, train, val, seed):
    """Return the validation accuracy of a candidate on one fold, and the time in seconds."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    if settings is None:
        model = LogEuclideanClassifier()
    else:
        model = classifier(settings, X.shape[-1], seed)
    accuracy = model.fit(X[train], y[train]).score(X[val], y[val])
    return accuracy, time.perf_counter() - started


def folds(y, halves):
    """Yield the seed, training indices and validation indices of three folds of each half."""
    for seed in range(halves):
        half, _ = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=seed)
        three = StratifiedKFold(3, shuffle=True, random_state=seed)
        for train, val in three.split(half, y[half]):
            yield seed, half[train], half[val]


def main():
    """Print one table per data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--motion", type=Path)
    parser.add_argument("--halves", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--sets", default="digits,cmu27,hdm05")
    parser.add_argument("--only", default=",".join(CANDIDATES))
    arguments = parser.parse_args()
    names = [s for s in arguments.sets.split(",") if s == "digits" or arguments.motion]
    chosen = {name: CANDIDATES[name] for name in arguments.only.split(",")}
    for name in names:
        X, y = load(name, arguments.motion)
        counts = np.unique(y, return_counts=True)
        keep = np.isin(y, counts[0][counts[1] >= 6])  # a class needs members in every fold
        X, y = X[keep], y[keep]
        n = X.shape[-1]
        print(f"\n{name}: {len(y)} matrices of size {n} x {n}, {len(set(y))} classes", flush=True)
        parts = list(folds(y, arguments.halves))
        pool = Parallel(n_jobs=arguments.jobs, return_as="generator")
        results = pool(
            delayed(score)(settings, X, y, train, val, seed)
            for settings in chosen.values()
            for seed, train, val in parts
        )
        for label in chosen:
            accuracy, seconds = np.array([next(results) for _ in parts]).T
            mean, deviation = metrics.spread(100 * accuracy.reshape(arguments.halves, 3).mean(1))
            line = f"{mean:6.2f} ± {deviation:4.2f} %  {seconds.mean():6.1f} s"
            print(f"  {label:36} {line}", flush=True)


if __name__ == "__main__":
    main()
