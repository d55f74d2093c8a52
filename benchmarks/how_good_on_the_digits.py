"""How good is the default classifier on the embedded digits, beside the log-Euclidean baseline?

    python benchmarks/how_good_on_the_digits.py

Five stratified random halves, each trained on one half and tested on the other.
"""

import time

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from spdnet import SPDNetClassifier
from spdnet.datasets import load_digits_spd
from spdnet.linalg import logm, vech


def main():
    """Print mean and deviation of both."""
    X, y = load_digits_spd()
    logs = vech(logm(torch.from_numpy(X))).numpy()
    scores, seconds = {"SPDNet": [], "log-Euclidean logistic regression": []}, []
    for seed in range(5):
        split = StratifiedShuffleSplit(1, test_size=0.5, random_state=seed)
        train, test = next(split.split(X, y))
        started = time.perf_counter()
        model = SPDNetClassifier(random_state=seed).fit(X[train], y[train])
        seconds.append(time.perf_counter() - started)
        scores["SPDNet"].append(model.score(X[test], y[test]))
        linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=3000))
        linear.fit(logs[train], y[train])
        scores["log-Euclidean logistic regression"].append(linear.score(logs[test], y[test]))
    for name, values in scores.items():
        print(f"{name:36} {100 * np.mean(values):6.2f} ± {100 * np.std(values):4.2f} %")
    print(f"training of SPDNet: {np.mean(seconds):.1f} s a split")


if __name__ == "__main__":
    main()
