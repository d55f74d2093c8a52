"""Measure how much recentering by domain helps on new subjects and sessions.

    python benchmarks/does_recentering_help.py FOLDER [--seeds 1] [--sets ssvep,emg,a09]
                                                      [--methods a,b]

FOLDER contains ``ssvep_exo.npz``, ``emg_gestures.npz`` and ``motor_imagery_a09.npz``. Each domain
(subject of SSVEP, session of EMG and A09) is left out once. Its matrices are recentered at their
own mean, without labels. The number after ± is the standard deviation over the domains left out.
pyRiemann is measured if it is installed.
"""

import argparse
import time
from pathlib import Path

import numpy as np
from how_good_is_the_default import SETS

from spdnet import SPDNetClassifier, metrics
from spdnet.adaptation import Recenter, Rescale
from spdnet.baselines import LogEuclideanClassifier, MinimumDistanceToMean


def steps(name, X, domains):
    """Transform each domain on its own."""
    if name != "none":
        X = Recenter().fit_transform(X, domains=domains)
    return Rescale().fit_transform(X, domains=domains) if name == "recenter, rescale" else X


def own(make):
    """Return a function that scores a classifier of this package."""

    def score(X, y, domains, held, how, seed):
        X = steps(how, X, domains)
        model, train = make(seed), ~held
        by = {} if isinstance(model, MinimumDistanceToMean) else {"groups": domains[train]}
        return (model.fit(X[train], y[train], **by).predict(X[held]) == y[held]).mean()

    return score


def theirs(make):
    """Return a function that scores a transfer pipeline of pyRiemann."""

    def score(X, y, domains, held, how, seed):
        from pyriemann.transfer import TLCenter, TLScale, encode_domains

        y, names, target = y.astype(str), domains.astype(str), str(domains[held][0])
        if how != "none":
            X, labels = encode_domains(X.copy(), y, names)
            X = TLCenter(target).fit_transform(X, labels)
            if how == "recenter, rescale":
                X = TLScale(target, centered_data=True).fit_transform(X, labels)
        return (make().fit(X[~held], y[~held]).predict(X[held]) == y[held]).mean()

    return score


def pyriemann_mdm():
    from pyriemann.classification import MDM

    return MDM()


def pyriemann_tangent():
    from pyriemann.tangentspace import TangentSpace
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(TangentSpace(), LogisticRegression(max_iter=2000))


METHODS = {
    "default": own(lambda seed: SPDNetClassifier(random_state=seed)),
    "logistic regression": own(lambda seed: LogEuclideanClassifier()),
    "LDA": own(lambda seed: LogEuclideanClassifier(method="lda")),
    "MDM": own(lambda seed: MinimumDistanceToMean("affine_invariant")),
    "pyRiemann MDM": theirs(pyriemann_mdm),
    "pyRiemann tangent space": theirs(pyriemann_tangent),
}


def main():
    """Print a line for each data set, method and adaptation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sets", default="ssvep,emg,a09")
    parser.add_argument("--methods", default=",".join(METHODS))
    arguments = parser.parse_args()
    for name in arguments.sets.split(","):
        X, y, domains, train = SETS[name](arguments.folder)
        domains = train.astype(int) if domains is None else domains
        y = np.unique(y, return_inverse=True)[1]
        for method in arguments.methods.split(","):
            for how in ("none", "recenter", "recenter, rescale"):
                started = time.perf_counter()
                found = [
                    100 * np.mean([
                        METHODS[method](X, y, domains, domains == held, how, seed)
                        for seed in range(arguments.seeds if method == "default" else 1)
                    ])
                    for held in np.unique(domains)
                ]  # fmt: skip
                mean, deviation = metrics.spread(found)
                seconds = time.perf_counter() - started
                print(
                    f"{name:6} {method:24} {how:18} {mean:6.2f} ± {deviation:5.2f} %"
                    f"  {seconds:6.1f} s",
                    flush=True,
                )


if __name__ == "__main__":
    main()
