"""Compare the eigenvalues of the data with the ReEig threshold.

    python benchmarks/what_is_below_the_threshold.py [--motion FOLDER]

Print the smallest eigenvalue before and after centering, and the condition numbers, for the digits
and for the motion data in FOLDER (see which_recipe.py), the latter with positions relative to the
root and with absolute positions. The last line is the fraction of a test half of the digits that is
also in the training halves of the four other splits used to choose the recipe.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from which_recipe import motion

from spdnet.data import load_digits_spd
from spdnet.nn import Center

FILES = {"CMU-27": "cmu27_joints.npz", "HDM05-11": "hdm05_11_joints.npz"}


def describe(name, X):
    """Print one line of statistics of the matrices."""
    X = torch.from_numpy(X)
    centered = Center(X.shape[-1], "log_euclidean", dtype=X.dtype).fit(X)(X)
    s = torch.linalg.eigvalsh(X)
    condition = s[:, -1] / s[:, 0]
    print(
        f"{name:22} smallest {s.min():.2g}  centered {torch.linalg.eigvalsh(centered).min():.2g}  "
        f"condition {condition.min():.0f} to {condition.max():.0f}, median {condition.median():.0f}"
    )


def overlap(y, seeds=5):
    """Return the fraction of the first test half that is also in another training half."""
    halves = [
        train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=seed)
        for seed in range(seeds)
    ]
    return np.isin(halves[0][1], np.concatenate([train for train, _ in halves[1:]])).mean()


def main():
    """Print one line per data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--motion", type=Path)
    folder = parser.parse_args().motion
    X, y = load_digits_spd()
    describe("digits", X)
    for name, file in FILES.items() if folder else ():
        for root, what in ((0, "root"), (None, "absolute")):
            describe(f"{name}, {what}", motion(folder / file, root)[0])
    print(f"digits of a test half that are also in another training half: {100 * overlap(y):.0f} %")


if __name__ == "__main__":
    main()
