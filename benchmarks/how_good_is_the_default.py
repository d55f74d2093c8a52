"""Compare the default network with tuned shallow methods.

    python benchmarks/how_good_is_the_default.py FOLDER [--part cv|test] [--seeds 3] [--sets a,b]
                                                        [--methods a,b]

FOLDER contains ``cmu27_joints.npz``, ``hdm05_11_joints.npz``, ``utd_mhad_joints.npz``,
``motor_imagery_a09.npz``, ``ssvep_exo.npz`` and ``emg_gestures.npz``. Three more sets, ``watch``,
``vowels`` and ``textures``, are files of the packages seglearn, aeon and scikit-image. With ``cv``,
the methods are compared by four-fold cross-validation within the training part of each set, in
folds of whole subjects where they are known; with ``test``, on the test part. The number after ± is
the standard deviation over the seeds of a network.
"""

import argparse
import importlib.util
import time
from pathlib import Path

import numpy as np
import scipy.signal
import torch
from PIL import Image
from sklearn.model_selection import GroupKFold, StratifiedKFold, train_test_split

from spdnet import SPDNetClassifier, covariance, metrics
from spdnet.baselines import LogEuclideanClassifier, MinimumDistanceToMean
from spdnet.data import load_digits_spd
from spdnet.models import MEMBERS

SHALLOW = {
    "logistic regression": lambda: LogEuclideanClassifier(),
    "LDA": lambda: LogEuclideanClassifier(method="lda"),
    "ridge": lambda: LogEuclideanClassifier(method="ridge"),
    "SVM": lambda: LogEuclideanClassifier(method="svm"),
    "MDM": lambda: MinimumDistanceToMean(),
}
NETWORKS = {
    "default": {},
    "one of each member": {"ensemble": 1},
    "fast": {"recipe": "fast"},
    "fast, head mlp": {"recipe": "fast", "head": "mlp"},
    **{f"only {name}": {"members": (name,)} for name in MEMBERS},
}


def motion(path, root, *, without_root=False):
    """Compute covariances of joint positions relative to a root joint."""
    file = np.load(path)
    clips = np.split(file["frames"].astype(np.float64), np.cumsum(file["lengths"])[:-1])
    matrices = []
    for clip in clips:
        joints = clip - clip[:, root : root + 1]
        joints = np.delete(joints, root, 1) if without_root else joints
        C = np.cov(joints.reshape(len(clip), -1).T)
        matrices.append(C + 1e-3 * np.trace(C) * np.eye(len(C)))
    return np.stack(matrices), file


def halves(X, y):
    """Return matrices, labels, no groups, and a random half as the training part."""
    train = np.zeros(len(y), dtype=bool)
    train[train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=0)[0]] = True
    return X, y, None, train


def a09(folder):
    """Motor imagery: the first session is the training part."""
    file = np.load(folder / "motor_imagery_a09.npz")
    return file["X"], file["y"], None, file["split"] == "train"


def ssvep(folder):
    """SSVEP: covariances of three narrow bands; odd subjects are the training part."""
    file = np.load(folder / "ssvep_exo.npz")
    signals, bands = file["signals"] * float(file["unit"]), []
    for f in (13, 17, 21):
        sos = scipy.signal.butter(4, [f - 0.7, f + 0.7], "bandpass", fs=128, output="sos")
        bands.append(scipy.signal.sosfiltfilt(sos, signals))
    Z = np.concatenate(bands, 1)
    Z = Z - Z.mean(-1, keepdims=True)
    C = Z @ Z.swapaxes(1, 2) / Z.shape[-1]
    C = C + 1e-3 * np.trace(C, axis1=1, axis2=2)[:, None, None] / 24 * np.eye(24)
    subject = file["subject"].astype(int)
    return C, file["label"], subject, subject % 2 == 1


def emg(folder):
    """EMG: windows of 200 samples; the first session of each person is the training part."""
    file = np.load(folder / "emg_gestures.npz")
    signals, label, session = file["signals"].astype(float), file["label"], file["session"]
    changes = np.flatnonzero((label[1:] != label[:-1]) | (session[1:] != session[:-1])) + 1
    matrices, y, sessions = [], [], []
    for part in np.split(np.arange(len(label)), changes):
        for start in range(0, len(part) - 199, 200):
            C = np.cov(signals[part[start : start + 200]].T)
            matrices.append(C + 1e-3 * np.trace(C) / 8 * np.eye(8))
            y.append(label[part[0]])
            sessions.append(session[part[0]])
    sessions = np.array(sessions, str)
    return np.stack(matrices), np.array(y), sessions, np.char.endswith(sessions, "s1")


def utd(folder):
    """UTD-MHAD: odd subjects are the training part."""
    X, file = motion(folder / "utd_mhad_joints.npz", 3, without_root=True)
    return X, file["label"], file["subject"], file["subject"] % 2 == 1


def cmu(folder):
    """CMU-27: random halves."""
    X, file = motion(folder / "cmu27_joints.npz", 0)
    return halves(X, file["label"])


def hdm(folder):
    """HDM05-11: three subjects are the training part."""
    X, file = motion(folder / "hdm05_11_joints.npz", 0)
    return X, file["label"], file["subject"], file["split"] == "train"


def digits(folder):
    """Use random halves of the digits."""
    return halves(*load_digits_spd())


def package_file(package, name):
    """Return a file of an installed package, which is not imported."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise SystemExit(f"{package} is not installed: pip install --no-deps {package}")
    return Path(spec.origin).parent / name


def watch(folder):
    """Shoulder exercises: windows of 200 samples of a watch; odd subjects are the training part."""
    file = np.load(package_file("seglearn", "data/watch_dataset.npy"), allow_pickle=True).item()
    matrices, y, subjects = [], [], []
    for signal, label, subject in zip(file["X"], file["y"], file["subject"], strict=True):
        channels = covariance.lagged(np.array(signal, float).T, [5, 10])  # (18, T)
        for start in range(0, channels.shape[1] - 199, 200):
            matrices.append(covariance.estimate(channels[:, start : start + 200], reg=1e-3))
            y.append(label)
            subjects.append(int(subject))
    subjects = np.array(subjects)
    return np.stack(matrices), np.array(y), subjects, subjects % 2 == 1


def vowels(folder):
    """Japanese vowels of nine speakers: second moments of 12 coefficients and a constant."""
    matrices, y, train = [], [], []
    for part in ("TRAIN", "TEST"):
        path = package_file("aeon", f"datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts")
        lines = [line for line in path.read_text().splitlines() if line[:1] not in "#@"]
        for line in lines:
            *channels, label = line.split(":")
            signal = np.array([c.split(",") for c in channels], float)
            signal = np.vstack([signal, np.ones(signal.shape[1])])
            matrices.append(covariance.regularize(signal @ signal.T / signal.shape[1], 1e-3))
            y.append(int(label))
            train.append(part == "TRAIN")
    return np.stack(matrices), np.array(y), None, np.array(train)


def textures(folder):
    """Patches of 10 x 10 pixels of eight images; the left halves are the training part."""
    patches, y, left = [], [], []
    names = ("brick", "grass", "gravel", "camera", "coins", "moon", "text", "page")
    for label, name in enumerate(names):
        path = package_file("skimage", f"data/{name}.png")
        image = np.asarray(Image.open(path).convert("L"), float) / 255
        height, width = (10 * (size // 10) for size in image.shape)
        grid = image[:height, :width].reshape(height // 10, 10, width // 10, 10).swapaxes(1, 2)
        half = grid.shape[1] // 2
        for is_left, part in ((True, grid[:, :half]), (False, grid[:, half:])):
            part = part.reshape(-1, 10, 10)
            part = part[part.std((1, 2)) > 1e-3]  # without constant ones
            chosen = part[np.linspace(0, len(part) - 1, 150).astype(int)]
            patches.append(chosen)
            y += [label] * len(chosen)
            left += [is_left] * len(chosen)
    X = covariance.region_covariance(torch.from_numpy(np.concatenate(patches)), n_features=8)
    return X.numpy(), np.array(y), None, np.array(left)


OF_FILES = (a09, ssvep, emg, utd, cmu, hdm, digits)
SETS = {f.__name__: f for f in (*OF_FILES, watch, vowels, textures)}


def folds(y, groups):
    """Return the training and validation indices of four folds."""
    if groups is not None:
        return list(GroupKFold(min(4, len(set(groups)))).split(y, y, groups))
    return list(StratifiedKFold(4, shuffle=True, random_state=0).split(y, y))


def score(make, X, y, groups, splits):
    """Return the accuracy over the parts that are held out."""
    right = []
    for train, held in splits:
        by = {} if groups is None else {"groups": groups[train]}
        model = make()
        model.fit(
            X[train], y[train], **(by if not isinstance(model, MinimumDistanceToMean) else {})
        )
        right.append(model.predict(X[held]) == y[held])
    return 100 * np.concatenate(right).mean()


def main():
    """Print a line for each method and data set."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", choices=("cv", "test"), default="cv")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sets", default=",".join(f.__name__ for f in OF_FILES))
    parser.add_argument("--methods", default="default," + ",".join(SHALLOW))
    arguments = parser.parse_args()
    for name in arguments.sets.split(","):
        X, y, groups, train = SETS[name](arguments.folder)
        y = np.unique(y, return_inverse=True)[1]
        if arguments.part == "test":
            splits = [(np.flatnonzero(train), np.flatnonzero(~train))]
        else:
            X, y = X[train], y[train]
            groups = None if groups is None else groups[train]
            splits = folds(y, groups)
        for method in arguments.methods.split(","):
            started, seeds = time.perf_counter(), range(arguments.seeds)
            if method in SHALLOW:
                found = [score(SHALLOW[method], X, y, groups, splits)]
            else:
                found = [
                    score(
                        lambda s=s, m=method: SPDNetClassifier(random_state=s, **NETWORKS[m]),
                        X, y, groups, splits,
                    )
                    for s in seeds
                ]  # fmt: skip
            mean, deviation = metrics.spread(found)
            text = f"{mean:6.2f}" + (f" ± {deviation:4.2f}" if len(found) > 1 else " " * 7)
            seconds = (time.perf_counter() - started) / len(found)
            print(f"{name:8} {method:24} {text} %  {seconds:6.1f} s", flush=True)


if __name__ == "__main__":
    main()
