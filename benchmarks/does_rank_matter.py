"""Measure how matrices of deficient rank are best classified.

    python benchmarks/does_rank_matter.py [FOLDER] [--seeds 3] [--size 100] [--people 400]
                                          [--methods ridge,logistic]

Simulated connectomes: covariance matrices of eight sites, of which two at a time are left out.
Sites differ in their gains, their noise and the number of time points, from 0.6 to 1.5 times the
number of regions; eigenvalues follow a power law; patients differ in a few connections. Methods
are tuned by cross-validation over sites. ``drop`` trains without singular matrices and predicts the
most frequent class for those of the test sites; ``+ eps`` adds eps times the mean eigenvalue; ``no
labels`` is Subspace with the shrinkage estimated from eigenvalues.

FOLDER contains ``motor_imagery_a09.npz``, ``ssvep_exo.npz`` and ``emg_gestures.npz``. Each set is
classified as it is, after an average reference, and from windows that are shorter than the number
of channels.
"""

import argparse
from pathlib import Path

import numpy as np
import scipy.signal
from how_good_is_the_default import SETS, folds

from spdnet import metrics
from spdnet.adaptation import Subspace, find_rank
from spdnet.baselines import LogEuclideanClassifier

SITES = 8
EPS = (1e-9, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)


def connectomes(seed, n, people, strength=0.3):
    """Simulate covariance matrices, classes and sites."""
    rng = np.random.default_rng(seed)
    # a population of smooth maps with a power law
    Q = np.linalg.qr(rng.normal(size=(n, n)))[0]
    root = Q * np.arange(1, n + 1) ** -0.75 @ Q.T
    ends = rng.choice(n, size=(6, 2), replace=False)
    patient = np.zeros((n, n))
    patient[ends[:, 0], ends[:, 1]] = patient[ends[:, 1], ends[:, 0]] = strength
    X, y, sites = [], [], []
    for site in range(SITES):
        T = round(n * (0.6 + 0.9 * site / (SITES - 1)))
        gain = np.exp(0.2 * rng.normal(size=n))
        noise = 0.02 * rng.uniform(0.5, 2)
        for _ in range(people // SITES):
            label = rng.integers(2)
            own = rng.normal(size=(n, n))
            log = 0.6 * (own + own.T) / np.sqrt(2 * n) + label * patient
            s, U = np.linalg.eigh(log)
            mixing = gain[:, None] * (root @ (U * np.exp(s / 2)) @ U.T)
            signals = mixing @ rng.normal(size=(n, T))
            signals += noise * signals.std() * rng.normal(size=(n, T))
            X.append(np.cov(signals))
            y.append(label)
            sites.append(site)
    return np.stack(X), np.array(y), np.array(sites)


def score(method, X, y, train, test, groups):
    """Return the share of right predictions of a tuned classifier."""
    by = {} if groups is None else {"groups": groups[train]}
    model = LogEuclideanClassifier(method=method).fit(X[train], y[train], **by)
    return model.predict(X[test]) == y[test]


def treat(X, eps):
    """Add a multiple of the mean eigenvalue."""
    n = X.shape[-1]
    return X + eps * np.trace(X, axis1=1, axis2=2)[:, None, None] / n * np.eye(n)


def by_subspace(method, X, y, train, test, groups, labels=True):
    """Score a classifier after a subspace that is fitted to the training part."""
    own = None if groups is None else groups[train]
    subspace = Subspace().fit(X[train], y[train] if labels else None, groups=own)
    Z = np.empty((len(X), subspace.rank_, subspace.rank_))
    for part in (train, test):
        Z[part] = subspace.transform(X[part])
    return score(method, Z, y, train, test, groups), subspace


def dropped(method, X, y, train, test, groups):
    """Score a classifier of matrices of full rank."""
    full = find_rank(X) == X.shape[-1]
    right = y[test] == np.bincount(y[train]).argmax()
    inside = test[full[test]]
    if len(inside):
        right[full[test]] = score(method, X, y, train[full[train]], inside, groups)
    return right


def simulated(method, seeds, n, people):
    """Print the accuracy on new sites for each treatment."""
    found = {}
    for seed in range(seeds):
        X, y, sites = connectomes(seed, n, people)
        right = {"drop": [], **{f"+ {eps:.0e}": [] for eps in EPS}, "no labels": [], "Subspace": []}
        for train, test in folds(y, sites):
            right["drop"].append(dropped(method, X, y, train, test, sites))
            for eps in EPS:
                Z = treat(X, eps)
                right[f"+ {eps:.0e}"].append(score(method, Z, y, train, test, sites))
            right["no labels"].append(by_subspace(method, X, y, train, test, sites, False)[0])
            ok, subspace = by_subspace(method, X, y, train, test, sites)
            right["Subspace"].append(ok)
        print(f"seed {seed}: {subspace.describe()}", flush=True)
        for name, parts in right.items():
            found.setdefault(name, []).append(100 * np.concatenate(parts).mean())
    for name, values in found.items():
        mean, deviation = metrics.spread(values)
        print(f"simulated {method:9} {name:10} {mean:6.2f} ± {deviation:5.2f} %", flush=True)


def reference(X, channels):
    """Subtract the mean of each group of channels, such as a frequency band."""
    own = np.eye(channels) - 1 / channels
    P = np.kron(np.eye(X.shape[-1] // channels), own)
    return P @ X @ P


def short_windows(folder, name, length):
    """Return covariances of the first samples of the windows of SSVEP or EMG."""
    if name == "ssvep":
        file = np.load(folder / "ssvep_exo.npz")
        signals, bands = file["signals"] * float(file["unit"]), []
        for f in (13, 17, 21):
            sos = scipy.signal.butter(4, [f - 0.7, f + 0.7], "bandpass", fs=128, output="sos")
            bands.append(scipy.signal.sosfiltfilt(sos, signals))
        windows = np.concatenate(bands, 1)[..., :: signals.shape[-1] // length][..., :length]
        y, groups = file["label"], file["subject"].astype(int)
    else:
        file = np.load(folder / "emg_gestures.npz")
        label, session = file["label"], file["session"]
        changes = np.flatnonzero((label[1:] != label[:-1]) | (session[1:] != session[:-1])) + 1
        parts = np.split(np.arange(len(label)), changes)
        starts = np.concatenate([part[: len(part) - 199 : 200] for part in parts])
        index = starts[:, None] + np.arange(length) * (200 // length)
        windows = file["signals"].astype(float)[index].swapaxes(1, 2)
        y, groups = label[starts], session[starts].astype(str)
    windows = windows - windows.mean(-1, keepdims=True)
    return windows @ windows.swapaxes(1, 2) / length, np.unique(y, return_inverse=True)[1], groups


def real(method, folder):
    """Print the accuracy on recordings of full rank, and after reducing their rank."""
    for name, channels in (("a09", 22), ("ssvep", 8), ("emg", 8)):
        X, y, groups, _ = SETS[name](folder)
        y = np.unique(y, return_inverse=True)[1]
        compare(method, f"{name}, as it is", X, y, groups)
        compare(method, f"{name}, average reference", reference(X, channels), y, groups)
    for name, length in (("ssvep", 20), ("emg", 6)):
        X, y, groups = short_windows(folder, name, length)
        compare(method, f"{name}, {length} samples", X, y, groups)


def compare(method, name, X, y, groups):
    """Print the accuracy of each treatment in four folds."""
    splits = folds(y, groups)
    by = {"+ 1e-9": 1e-9, "+ 1e-3": 1e-3, "+ 1e-1": 1e-1}
    found = {
        how: 100
        * np.concatenate([score(method, treat(X, eps), y, *s, groups) for s in splits]).mean()
        for how, eps in by.items()
    }
    parts = [by_subspace(method, X, y, *split, groups) for split in splits]
    found["Subspace"] = 100 * np.concatenate([right for right, _ in parts]).mean()
    text = ", ".join(f"{how} {value:.2f} %" for how, value in found.items())
    print(f"{name:24} {method:9} {text}; {parts[0][1].describe()}", flush=True)


def main():
    """Print the results on simulated and on recorded data."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--people", type=int, default=400)
    parser.add_argument("--methods", default="ridge,logistic")
    arguments = parser.parse_args()
    for method in arguments.methods.split(","):
        if arguments.folder is not None:
            real(method, arguments.folder)
        simulated(method, arguments.seeds, arguments.size, arguments.people)


if __name__ == "__main__":
    main()
