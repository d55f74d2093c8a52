"""Figures of the pages, from runs of ``spdnet train digits-small``."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import torch

matplotlib.use("agg")

from matplotlib import pyplot as plt

from spdnet import covariance, plots
from spdnet.data import load_dataset
from spdnet.runs import RunFolder, TrainedModel

HERE = Path(__file__).parent
DATA = "digits-small"


def make(place):
    """Write the run, its figures and its report to a folder, unless they are up to date."""
    stamp = hashlib.sha256(sources()).hexdigest()
    if (place / "stamp").is_file() and (place / "stamp").read_text() == stamp:
        return
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    train = [sys.executable, "-m", "spdnet", "train", DATA, "--device", "cpu"]
    run(train, place)
    run([*train, "--recipe", "fast", "--out", "runs/fast"], place)
    folder, fast = RunFolder(place / "runs" / DATA), RunFolder(place / "runs" / "fast")
    for name, picture in {
        "first": first(folder),
        "curves": curves(fast.metrics(), fast.results().best_epoch),
        "confusion": confusion(folder.results()),
        "spectra": spectra(fast.results().spectra),
    }.items():
        picture.savefig(place / f"{name}.svg", metadata={"Date": None})
        plt.close(picture)
    for script in sorted((HERE / "figures").glob("*.py")):
        run([sys.executable, script, place], HERE)
    (place / "site").mkdir()
    shutil.copy(folder.report_file, place / "site" / "report.html")
    (place / "stamp").write_text(stamp)


def sources():
    """Return all code that a page may depend on; the gallery has its own stamps."""
    files = sorted([*(HERE.parent / "src").rglob("*.py"), *HERE.rglob("*.py")])
    return b"".join(file.read_bytes() for file in files)


def run(command, place):
    """Run a command in a folder."""
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr}")


def first(folder):
    """Plot 2 by 2 covariance matrices in the cone, and outputs of the trained network."""
    rng = np.random.default_rng(0)
    signals = rng.normal(size=(60, 2, 12))
    y = np.arange(60) % 2
    signals[:, 1] += np.where(y, 0.9, -0.9)[:, None] * signals[:, 0]
    trained = TrainedModel.load(folder.path, device="cpu")
    data = load_dataset(DATA)
    X, digits = data.X, data.y
    test = np.sort(trained.data["parts"]["test"])
    test = test[np.isin(digits[test], (0, 1, 4, 6, 7))]  # ten classes would overlap in the plane
    with torch.no_grad():
        outputs = trained.model.eval()(torch.from_numpy(X[test]))
    with matplotlib.rc_context(plots.STYLE):
        figure = plt.figure(figsize=(9.6, 4.2))
        left = figure.add_subplot(1, 2, 1, projection="3d")
        right = figure.add_subplot(1, 2, 2)
    figure.get_layout_engine().set(wspace=0.12)
    ways = np.where(y, "rising", "falling")
    plots.cone(covariance.sample_covariance(signals), ways, ax=left)
    plots.embedding(outputs, digits[test], ax=right)
    left.set_title("2 by 2 covariance matrices in the SPD cone")
    right.set_title("network outputs for five digits of the test set")
    return figure


def curves(history, best):
    """Plot loss and accuracy per epoch."""
    left, right = plots.panels(1, 2, size=(9.6, 3.6))
    plots.learning_curves(history, "loss", best_epoch=best, ax=left)
    plots.learning_curves(history, "accuracy", best_epoch=best, ax=right)
    return left.figure


def confusion(found):
    """Plot the confusion matrix."""
    (ax,) = plots.panels(size=(5.2, 5.0))
    plots.confusion(found.confusion.dense(), list(found.classes), ax=ax)
    return ax.figure


def spectra(layers):
    """Plot the eigenvalues after each layer."""
    rows = -(-len(layers) // 3)
    axes = plots.panels(rows, 3, size=(9.6, 2.8 * rows))
    for ax, layer in zip(axes, layers, strict=False):
        plots.spectra(layer.to_json(), ax=ax)
        ax.set_title(layer.layer)
    for ax in axes[len(layers) :]:
        ax.remove()
    return axes[0].figure
