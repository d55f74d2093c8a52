"""Measure how much adaptation to domains helps on new subjects and sessions.

    python benchmarks/does_recentering_help.py FOLDER [--seeds 1] [--sets ssvep,emg,a09]
                                               [--methods a,b] [--adapt none,auto]
                                               [--shares 1,0.1] [--device cpu]

FOLDER contains ``ssvep_exo.npz``, ``emg_gestures.npz`` and ``motor_imagery_a09.npz``. Each domain
(subject of SSVEP, session of EMG and A09) is left out once, and its matrices are adapted to without
labels. The number after ± is the standard deviation over the domains that are left out; the gain is
the difference from the same method without adaptation, which is listed first. For a share below 1,
all matrices of one class and this share of the others are kept in the domain that is left out, for
each class in turn. pyRiemann is measured if it is installed.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from how_good_is_the_default import SETS

from spdnet import SPDNetClassifier, metrics
from spdnet.adaptation import Conditioner
from spdnet.baselines import LogEuclideanClassifier, MinimumDistanceToMean


def own(make):
    """Return a function that scores a classifier of this package."""

    def score(X, y, domains, held, how, seed, test):
        steps = Conditioner(adapt=how)
        train, model = ~held, make(seed)
        steps.fit(torch.from_numpy(X[train]), y[train], domains[train])
        Z = steps.transform(torch.from_numpy(X[train]), domains[train]).numpy()
        by = {} if isinstance(model, MinimumDistanceToMean) else {"groups": domains[train]}
        model.fit(Z, y[train], **by)

        def accuracy(rows):
            new = steps.transform(torch.from_numpy(X[rows]), domains[rows]).numpy()
            return (model.predict(new) == y[rows]).mean()

        return [np.mean([accuracy(rows) for rows in parts]) for parts in test]

    return score


def theirs(make):
    """Return a function that scores a transfer pipeline of pyRiemann."""

    def score(X, y, domains, held, how, seed, test):
        from pyriemann.transfer import TLCenter, TLScale, encode_domains

        target = str(domains[held][0])

        def accuracy(rows):
            use = np.r_[np.flatnonzero(~held), rows]
            Z, train, names = X[use].copy(), ~held[use], domains[use].astype(str)
            if how != "none":
                Z, labels = encode_domains(Z, y[use].astype(str), names)
                Z = TLCenter(target).fit_transform(Z, labels)
                if how == "rescale":
                    Z = TLScale(target, centered_data=True).fit_transform(Z, labels)
            model = make().fit(Z[train], y[use][train])
            return (model.predict(Z[~train]) == y[rows]).mean()

        return [np.mean([accuracy(rows) for rows in parts]) for parts in test]

    return score


def pyriemann_mdm():
    """Minimum distance to mean."""
    from pyriemann.classification import MDM

    return MDM()


def pyriemann_tangent():
    """Logistic regression in the tangent space."""
    from pyriemann.tangentspace import TangentSpace
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(TangentSpace(), LogisticRegression(max_iter=2000))


METHODS = {
    "logistic regression": own(lambda seed: LogEuclideanClassifier()),
    "LDA": own(lambda seed: LogEuclideanClassifier(method="lda")),
    "MDM": own(lambda seed: MinimumDistanceToMean("affine_invariant")),
    "pyRiemann MDM": theirs(pyriemann_mdm),
    "pyRiemann tangent space": theirs(pyriemann_tangent),
}


def chosen(y, held, share, rng):
    """Return the rows to test on, for each class that prevails."""
    rows = np.flatnonzero(held)
    if share == 1:
        return [rows]
    found = []
    for c in np.unique(y):
        others = [rng.permutation(rows[y[rows] == k]) for k in np.unique(y[rows]) if k != c]
        kept = [other[: max(1, int(share * len(other)))] for other in others]
        found.append(np.sort(np.concatenate([rows[y[rows] == c], *kept])))
    return found


def main():
    """Print a line for each data set, method and adaptation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sets", default="ssvep,emg,a09")
    parser.add_argument("--methods", default=",".join(("default", *METHODS)))
    parser.add_argument("--adapt", default="none,recenter,rescale,auto")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shares", default="1")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    shares = list(map(float, arguments.shares.split(",")))
    METHODS["default"] = own(
        lambda seed: SPDNetClassifier(random_state=seed, device=arguments.device)
    )
    for name in arguments.sets.split(","):
        X, y, domains, train = SETS[name](arguments.folder)
        domains = train.astype(int) if domains is None else domains
        y = np.unique(y, return_inverse=True)[1]
        for method in arguments.methods.split(","):
            without = None
            for how in arguments.adapt.split(","):
                if how == "auto" and method.startswith("pyRiemann"):
                    continue
                started, found = time.perf_counter(), []
                for held in np.unique(domains):
                    test = [
                        chosen(y, domains == held, share, np.random.default_rng(0))
                        for share in shares
                    ]
                    seeds = range(arguments.seeds if method == "default" else 1)
                    scores = [
                        METHODS[method](X, y, domains, domains == held, how, seed, test)
                        for seed in seeds
                    ]
                    found.append(100 * np.mean(scores, axis=0))
                found, seconds = np.array(found), time.perf_counter() - started
                without = found if without is None else without
                for share, ours, before in zip(shares, found.T, without.T, strict=True):
                    mean, deviation = metrics.spread(ours)
                    gain, gain_deviation = metrics.spread(ours - before)
                    print(
                        f"{name:6} {method:24} share {share:4} {how:9} {mean:6.2f} ± "
                        f"{deviation:5.2f} %, gain {gain:+6.2f} ± {gain_deviation:5.2f}"
                        f"  {seconds:6.1f} s",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
