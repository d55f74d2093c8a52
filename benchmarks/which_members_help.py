"""Compare the members of the default network, and rules that choose among them.

    python benchmarks/which_members_help.py FOLDER [--seeds 1] [--sets a,b]

FOLDER and the sets are those of ``how_good_is_the_default.py``; those of packages, ``watch-g``,
``vowels`` and ``textures``, are not evaluated by default. Within the training part of each data
set, four folds are held out in turn; they consist of whole subjects or sessions for the sets
``*-g``. On the other folds, each member is trained, and the members are ranked by inner
cross-validation.

The table has the accuracy on the held-out folds: of each member alone; of the average of the best
``k`` members by accuracy, by log loss, and by the sum of both ranks, which is the rule of the
default network; and of logistic regression on logarithms, with its strength chosen on the inner
folds. The number after ± is half the range over the seeds.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from how_good_is_the_default import SETS
from sklearn.model_selection import StratifiedKFold

from spdnet.baselines import LogEuclideanClassifier
from spdnet.data.split import assign_folds
from spdnet.models import MEMBERS
from spdnet.training import RECIPES, Samples, Trainer, build, choose_members

NAMES = tuple(MEMBERS)
PARTS = ("a09", "ssvep-g", "emg", "emg-g", "utd-g", "cmu", "cmu-g", "hdm-g", "digits")


def load(part, folder):
    """Return matrices, classes, groups or None, and the outer fold of each sample."""
    name, _, by_groups = part.partition("-")
    X, y, groups, train = SETS[name](folder)
    if name == "cmu":
        groups = np.load(folder / "cmu27_joints.npz")["subject"]
    y = np.unique(y[train], return_inverse=True)[1]
    groups = groups[train] if by_groups else None
    fold = np.zeros(len(y), dtype=int)
    if by_groups or name in ("a09", "emg"):  # neighboring windows stay together
        fold = assign_folds(y, groups)[0]
    else:
        for k, (_, held) in enumerate(StratifiedKFold(4, shuffle=True, random_state=0).split(y, y)):
            fold[held] = k
    return torch.from_numpy(X[train]), torch.from_numpy(y), groups, fold


def outputs_of_all(train, X, n_classes, seed):
    """Train one network of each member; return the probabilities ``(N, n_classes, n_members)``."""
    recipe = RECIPES["auto"].changed(members=NAMES, ensemble=1, n_samples=len(train))
    model = build(recipe, (), n_classes, train, seed=seed)
    Trainer(model, train, recipe, seed=seed).run()
    with torch.no_grad():
        return model.eval().outputs(X, check=False).softmax(1).numpy()


def baseline(X, y, groups, inner, held):
    """Return the predictions of logistic regression whose strength is chosen on inner folds."""
    model = LogEuclideanClassifier().fit(X[inner].numpy(), y[inner].numpy(), groups=groups)
    return model.predict(X[held].numpy())


def rankings(choice):
    """Return the order of the members by accuracy, by log loss, and by both."""
    accuracy = sorted(NAMES, key=lambda name: -choice.accuracy[name])
    return {
        "accuracy": accuracy,
        "log loss": sorted(NAMES, key=choice.loss.get),
        "both": list(choice.loss),
    }


def right(X, y, groups, fold, seed):
    """Return for each member and rule which samples are classified correctly."""
    found, n_classes = {}, int(y.max()) + 1
    for k in sorted(set(fold.tolist())):
        inner, held = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        train = Samples(X[inner], y[inner])
        by = None if groups is None else groups[inner]
        choice = choose_members(RECIPES["auto"], train, n_classes, groups=by, seed=seed)
        P, truth = outputs_of_all(train, X[held], n_classes, seed), y[held].numpy()
        scores = {f"only {name}": P[:, :, i] for i, name in enumerate(NAMES)}
        for rule, order in rankings(choice).items():
            for count in (1, 2, 4, 6, len(NAMES)):
                best = [NAMES.index(name) for name in order[:count]]
                scores[f"best {count:2} by {rule}"] = P[:, :, best].mean(2)
        hits = {name: score.argmax(1) == truth for name, score in scores.items()}
        hits["logistic regression, tuned"] = baseline(X, y, by, inner, held) == truth
        for name, correct in hits.items():
            found.setdefault(name, []).append(correct)
    return {name: np.concatenate(hits) for name, hits in found.items()}


def main():
    """Print the accuracy of each member and rule on each set, and their mean."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--sets", default=",".join(PARTS))
    arguments = parser.parse_args()
    table = {}
    for part in arguments.sets.split(","):
        data = load(part, arguments.folder)
        found = [right(*data, seed) for seed in range(arguments.seeds)]
        for name in found[0]:
            accuracies = [100 * hits[name].mean() for hits in found]
            table.setdefault(name, []).append((np.mean(accuracies), np.ptp(accuracies) / 2))
        print(f"{part} done", flush=True)
    print(f"{'':28}" + "".join(f"{part:>14}" for part in [*arguments.sets.split(","), "mean"]))
    for name, row in table.items():
        cells = "".join(f"{mean:8.2f} ± {half:3.1f}" for mean, half in row)
        print(f"{name:28}{cells}{np.mean([mean for mean, _ in row]):14.2f}")


if __name__ == "__main__":
    main()
