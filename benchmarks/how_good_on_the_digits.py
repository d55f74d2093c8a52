"""Compare the default classifier with the log-Euclidean baseline on the digits.

    python benchmarks/how_good_on_the_digits.py

Both are trained on one half and tested on the other half of five stratified random splits.
"""

import time

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from spdnet import SPDNetClassifier, metrics
from spdnet.baselines import LogEuclideanClassifier
from spdnet.data import load_digits_spd


def main():
    """Print the mean and standard deviation of both accuracies."""
    X, y = load_digits_spd()
    scores, seconds = {"SPDNet": [], "log-Euclidean logistic regression": []}, []
    for seed in range(5):
        split = StratifiedShuffleSplit(1, test_size=0.5, random_state=seed)
        train, test = next(split.split(X, y))
        started = time.perf_counter()
        model = SPDNetClassifier(random_state=seed).fit(X[train], y[train])
        seconds.append(time.perf_counter() - started)
        scores["SPDNet"].append(model.score(X[test], y[test]))
        linear = LogEuclideanClassifier().fit(X[train], y[train])
        scores["log-Euclidean logistic regression"].append(linear.score(X[test], y[test]))
    for name, values in scores.items():
        mean, deviation = metrics.spread(values)
        print(f"{name:36} {100 * mean:6.2f} ± {100 * deviation:4.2f} %")
    print(f"SPDNet: {np.mean(seconds):.1f} s per training run")


if __name__ == "__main__":
    main()
