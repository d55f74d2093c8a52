"""Which training recipe is the best default?

On each data set, half of the data (stratified) is the training half; the candidates are trained on
two thirds of it and scored on the rest, so that the test half is never looked at. Beside them
stands the log-Euclidean logistic regression on the same folds.

    python benchmarks/which_recipe.py [--motion FOLDER] [--seeds 3] [--sets digits,cmu27,hdm05]

FOLDER holds ``cmu27_joints.npz`` and ``hdm05_11_joints.npz`` with ``frames (sumT, 31, 3)``,
``lengths`` and ``label``; without it only the digits are used.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spdnet import SPDNetClassifier, covariance
from spdnet.datasets import load_digits_spd
from spdnet.linalg import logm, vech

CANDIDATES = {
    "default": {},
    "lr 0.01": {"lr": 0.01},
    "lr 0.1": {"lr": 0.1},
    "30 epochs": {"epochs": 30},
    "affine-invariant centre": {"center": "affine_invariant"},
    "no centre": {"center": "none"},
    "one BiMap": {"dims": 1},
    "shrinking": {"dims": (0.75, 0.5)},
    "eps 10%": {"eps": "10%"},
    "paper, 60 epochs": {"recipe": "paper", "epochs": 60},
}


def motion(path):
    """Joint covariances of clips, relative to the root joint."""
    file = np.load(path)
    ends = np.cumsum(file["lengths"])
    clips = np.split(file["frames"].astype(np.float64), ends[:-1])
    matrices = [covariance.joint_covariance(clip, root=0) for clip in clips]
    return np.stack(matrices), file["label"]


def load(name, folder):
    """Matrices and labels of a data set."""
    if name == "digits":
        return load_digits_spd()
    return motion(folder / {"cmu27": "cmu27_joints.npz", "hdm05": "hdm05_11_joints.npz"}[name])


def classifier(settings, n, seed):
    """A candidate for matrices of size n; dims are a number of BiMaps, or shares of n."""
    settings = dict(settings)
    if "dims" in settings:
        rule = settings["dims"]
        sizes = [min(n, 64)] * rule if isinstance(rule, int) else [round(r * n) for r in rule]
        settings["dims"] = (n, *sizes)
    return SPDNetClassifier(random_state=seed, **settings)


def folds(y, seed):
    """Two thirds and one third of the training half."""
    half, _ = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=seed)
    return train_test_split(half, test_size=1 / 3, stratify=y[half], random_state=seed)


def main():
    """Print one table for each data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--motion", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", default="digits,cmu27,hdm05")
    arguments = parser.parse_args()
    names = [s for s in arguments.sets.split(",") if s == "digits" or arguments.motion]
    for name in names:
        X, y = load(name, arguments.motion)
        counts = np.unique(y, return_counts=True)
        keep = np.isin(y, counts[0][counts[1] >= 6])  # a class needs members in every fold
        X, y = X[keep], y[keep]
        logs = vech(logm(torch.from_numpy(X))).numpy()
        print(f"\n{name}: {len(y)} matrices of {X.shape[-1]}, {len(set(y))} classes", flush=True)
        rows = {"log-Euclidean logistic regression": None, **CANDIDATES}
        for label, settings in rows.items():
            scores, started = [], time.perf_counter()
            for seed in range(arguments.seeds):
                train, val = folds(y, seed)
                if settings is None:
                    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
                    scores.append(model.fit(logs[train], y[train]).score(logs[val], y[val]))
                else:
                    model = classifier(settings, X.shape[-1], seed)
                    scores.append(model.fit(X[train], y[train]).score(X[val], y[val]))
            seconds = (time.perf_counter() - started) / arguments.seeds
            mean, deviation = 100 * np.mean(scores), 100 * np.std(scores)
            print(f"  {label:36} {mean:6.2f} +- {deviation:4.2f} %  {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
