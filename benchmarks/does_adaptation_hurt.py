"""Measure on simulated domains whether adaptation is ever worse than none.

    python benchmarks/does_adaptation_hurt.py [--seeds 20] [--classes 2,4] [--count 100]
                                              [--domains 6] [--shifts 0,0.3] [--shares 0,0.8]
                                              [--contrast 0.12]
                                              [--methods none,information,auto]
                                              [--confounded]

There are ``--domains`` training domains of ``--count`` matrices, with equal class proportions, or
with ``--confounded`` with a single class each. The new domain differs from them by a random
congruence of a given size (``shift``), and one class has a given share of its matrices, the others
the rest. A linear discriminant analysis of the logarithms is trained on the adapted training
domains. ``information`` is the geodesic method of SPDIM (Li et al., 2025): the new domain moves
along the geodesic on which ``recenter`` moves it, as far as the mutual information between matrices
and predicted classes is largest. The table has the accuracy in percent on the new domain without
adaptation, and the differences of the other methods from it, mean ± standard error over the seeds;
each class prevails in turn. The last line states the cells in which ``auto`` is worse than no
adaptation by more than two standard errors.
"""

import argparse
import warnings

import numpy as np
import torch
from scipy.linalg import expm
from scipy.special import entr

from spdnet.adaptation import Conditioner
from spdnet.baselines import LogEuclideanClassifier
from spdnet.linalg import congruence, invsqrtm, powm
from spdnet.manifolds import affine_invariant

N, TIME = 8, 128
METHODS = "none,recenter,rescale,information,auto"


def symmetric(rng):
    """Draw a symmetric matrix whose Frobenius norm is about one."""
    A = rng.normal(size=(N, N))
    return (A + A.T) / (2 * N) * 2**0.5


def draw(rng, patterns, y, shift):
    """Simulate the matrices of one domain with classes ``y``."""
    mixing = expm(shift * N**0.5 * symmetric(rng))
    matrices = []
    for label in y:
        own = expm(0.5 * (patterns[label] + 0.15 * N**0.5 * symmetric(rng)))
        signals = mixing @ own @ rng.normal(size=(N, TIME))
        matrices.append(signals @ signals.T / TIME)
    return np.stack(matrices)


def labels(n_classes, majority, share, count):
    """Return classes of which one has a share; None stands for equal shares."""
    shares = np.full(n_classes, 1 / n_classes)
    if share is not None:
        shares[:] = (1 - share) / (n_classes - 1)
        shares[majority] = share
    counts = np.floor(shares * count + 1e-9).astype(int)
    counts[majority] += count - counts.sum()
    return np.repeat(np.arange(n_classes), counts)


def information(model, center, new):
    """Return the matrices of a new domain, moved by information maximization."""
    X = congruence(new, invsqrtm(center))
    M, best = affine_invariant.mean(X), (np.inf, None)
    for t in np.linspace(0, 2, 21):
        Z = congruence(X, powm(M, -t / 2)).numpy()
        p = model.predict_proba(Z)
        loss = entr(p).sum(1).mean() - entr(p.mean(0)).sum()
        best = min(best, (loss, Z), key=lambda pair: pair[0])
    return best[1]


def accuracies(seed, n_classes, shift, shares, given):
    """Return the accuracy of each method for each share, mean over the prevailing classes."""
    rng, count = np.random.default_rng(seed), given.count
    patterns = np.stack([given.contrast * N**0.5 * symmetric(rng) for _ in range(n_classes)])
    y = np.tile(labels(n_classes, 0, None, count), given.domains)
    domains = np.repeat(np.arange(given.domains), count)
    if given.confounded:
        y = domains % n_classes
    parts = [draw(rng, patterns, y[domains == d], shift) for d in range(given.domains)]
    methods = given.methods.split(",")
    X, found = torch.from_numpy(np.concatenate(parts)), np.zeros((len(shares), len(methods)))
    tests = []
    for share in shares:
        for majority in range(n_classes):
            truth = labels(n_classes, majority, share, count)
            new = torch.from_numpy(
                draw(np.random.default_rng(seed + 10**6), patterns, truth, shift)
            )
            tests.append((truth, new))
    for j, how in enumerate(methods):
        adapt = "recenter" if how == "information" else how
        steps = Conditioner(adapt=adapt).fit(X, y, domains)
        model = LogEuclideanClassifier(method="lda").fit(steps.transform(X, domains).numpy(), y)
        if how == "information":
            center = affine_invariant.mean(torch.from_numpy(steps.steps_[-1].means_))
            moved = [information(model, center, new) for _, new in tests]
        else:
            moved = [steps.transform(new, np.full(len(new), -1)).numpy() for _, new in tests]
        right = [
            (model.predict(Z) == truth).mean() for Z, (truth, _) in zip(moved, tests, strict=True)
        ]
        found[:, j] = np.reshape(right, (len(shares), -1)).mean(1)
    return found


def main():
    """Print a table of the grid for each number of classes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--classes", default="2,4")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--shifts", default="0.0,0.1,0.3,0.6,1.0")
    parser.add_argument("--shares", default="0,0.6,0.8,0.95,1.0", help="0 is equal shares")
    parser.add_argument("--contrast", type=float, default=0.12)
    parser.add_argument("--domains", type=int, default=6)
    parser.add_argument("--confounded", action="store_true")
    parser.add_argument("--methods", default=METHODS, help="starting with none, ending with auto")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    shares, worse = [float(share) or None for share in arguments.shares.split(",")], []
    others = arguments.methods.split(",")[1:]
    for n_classes in map(int, arguments.classes.split(",")):
        print(f"{n_classes} classes\nshift  share    none" + "".join(f"{m:>15}" for m in others))
        for shift in map(float, arguments.shifts.split(",")):
            each = 100 * np.stack([
                accuracies(seed, n_classes, shift, shares, arguments)
                for seed in range(arguments.seeds)
            ])  # fmt: skip
            gain = each[:, :, 1:] - each[:, :, :1]
            error = gain.std(0, ddof=1) / len(gain) ** 0.5
            for i, share in enumerate(shares):
                name = "equal" if share is None else f"{share:.2f}"
                cells = "".join(
                    f"{m:+9.1f} ± {e:3.1f}" for m, e in zip(gain.mean(0)[i], error[i], strict=True)
                )
                print(f"{shift:5.1f}  {name}  {each[:, i, 0].mean():6.1f}{cells}", flush=True)
                if gain.mean(0)[i, -1] < -2 * error[i, -1]:
                    worse.append(f"{n_classes} classes, shift {shift}, share {name}")
    print(f"auto is worse than none: {'; '.join(worse) or 'never'}")


if __name__ == "__main__":
    main()
