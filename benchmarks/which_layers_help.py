"""Compare extensions of SPDNet on motion data.

    python benchmarks/which_layers_help.py FOLDER [--halves 3] [--only NAME,NAME]

FOLDER contains ``cmu27_joints.npz`` with ``frames (sumT, 31, 3)``, ``lengths`` and ``label``. All
networks use the sizes, optimizer, schedule, epochs and label smoothing of the default recipe and
differ only in the layer named in the row. The table gives the accuracy of the networks and of the
log-Euclidean linear classifier on stratified random halves, as mean and standard deviation, and the
training time. Nothing is selected on the test halves.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import LabelEncoder
from torch.nn.functional import cross_entropy
from what_is_below_the_threshold import motion

from spdnet import SPDNet
from spdnet.baselines import LogEuclideanClassifier
from spdnet.training import RECIPES, choose_dims

NETWORKS = {
    "SPDNet": {},
    "SPDNetBN (mean)": {"norm": "brooks"},
    "SPDNet-LieBN, log-Euclidean": {"norm": "log_euclidean"},
    "SPDNet-LieBN, log-Cholesky": {"norm": "log_cholesky"},
    "SPDNet-LieBN, affine-invariant": {"norm": "affine_invariant"},
    "SPDNet-MLR, log-Euclidean": {"head": "log_euclidean"},
    "SPDNet-MLR, log-Cholesky": {"head": "log_cholesky"},
    "SPDNet-MLR, power-Euclidean": {"head": "power_euclidean"},
}


def train(X, y, n_classes, settings, seed):
    """Train a network and return it in evaluation mode."""
    recipe = RECIPES["fast"]
    torch.manual_seed(seed)
    dims = choose_dims(X.shape[-1])
    model = SPDNet(dims, n_classes, eps=recipe.eps, bias=True, center=recipe.center, **settings)
    model.center.fit(X)
    optimizer = recipe.make_optimizer(model.parameters())
    parts = -(-len(X) // recipe.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.epochs * parts)
    for _ in range(recipe.epochs):
        for index in torch.randperm(len(X)).chunk(parts):
            optimizer.zero_grad()
            logits = model(X[index], check=False)
            cross_entropy(logits, y[index], label_smoothing=recipe.label_smoothing).backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def accuracy(X, y, settings, seed):
    """Return the accuracy on the test half and the training time."""
    halves = train_test_split(torch.arange(len(y)), test_size=0.5, random_state=seed, stratify=y)
    learn, test = halves
    started = time.perf_counter()
    if settings is None:
        classifier = LogEuclideanClassifier().fit(X[learn].numpy(), y[learn].numpy())
        seconds = time.perf_counter() - started
        return classifier.score(X[test].numpy(), y[test].numpy()), seconds
    model = train(X[learn].float(), y[learn], int(y.max()) + 1, settings, seed)
    seconds = time.perf_counter() - started
    with torch.no_grad():
        logits = torch.cat([model(part, check=False) for part in X[test].float().split(256)])
    return (logits.argmax(-1) == y[test]).double().mean().item(), seconds


def main():
    """Print one row per network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--halves", type=int, default=3)
    parser.add_argument("--only", help="comma-separated names of the rows to compute")
    arguments = parser.parse_args()
    X, labels = motion(arguments.folder / "cmu27_joints.npz")
    X, y = torch.tensor(X), torch.tensor(LabelEncoder().fit_transform(labels))
    rows = {"log-Euclidean linear": None, **NETWORKS}
    if arguments.only:
        rows = {name: rows[name] for name in arguments.only.split(",")}
    print(f"{len(X)} matrices of size {X.shape[-1]} x {X.shape[-1]}, {int(y.max()) + 1} classes")
    print(f"{'':34}accuracy, %      seconds", flush=True)
    for name, settings in rows.items():
        found = [accuracy(X, y, settings, seed) for seed in range(arguments.halves)]
        scores, seconds = zip(*found, strict=True)
        spread = statistics.stdev(scores) if len(scores) > 1 else float("nan")
        mean = f"{100 * statistics.mean(scores):6.2f} ± {100 * spread:.2f}"
        print(f"{name:34}{mean}{statistics.mean(seconds):12.1f}", flush=True)


if __name__ == "__main__":
    main()
