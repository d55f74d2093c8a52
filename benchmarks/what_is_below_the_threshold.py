"""Compare the eigenvalues of the data with the ReEig threshold.

    python benchmarks/what_is_below_the_threshold.py [--motion FOLDER]

Print the smallest eigenvalue before and after centering, and the condition numbers, for the digits
and for the motion data in FOLDER (see how_good_is_the_default.py), the latter with positions
relative to the root and with absolute positions.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from spdnet import covariance
from spdnet.data import load_digits_spd
from spdnet.nn import Center

FILES = {"CMU-27": "cmu27_joints.npz", "HDM05-11": "hdm05_11_joints.npz"}


def motion(path, root=0):
    """Compute covariances of joint positions, absolute or relative to a root joint."""
    file = np.load(path)
    ends = np.cumsum(file["lengths"])
    clips = np.split(file["frames"].astype(np.float64), ends[:-1])
    matrices = [covariance.joint_covariance(clip, root=root) for clip in clips]
    return np.stack(matrices), file["label"]


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


def main():
    """Print one line per data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--motion", type=Path)
    folder = parser.parse_args().motion
    X, _ = load_digits_spd()
    describe("digits", X)
    for name, file in FILES.items() if folder else ():
        for root, what in ((0, "root"), (None, "absolute")):
            describe(f"{name}, {what}", motion(folder / file, root)[0])


if __name__ == "__main__":
    main()
