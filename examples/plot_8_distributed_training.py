"""
Two processes train as one
==========================

``spdnet train --devices 2`` starts two processes that divide each batch between them, on two GPUs
or on the CPU. The course of the training does not depend on their number: the batch, the learning
rate and the statistics are those of all processes together. We look at whether that is so.
"""

# %%
# The same command twice
# ----------------------
#
# The command line is the easiest way to several processes: it starts them, lets one of them write,
# and takes all of them down when one fails. We call it from Python, so that everything here is in
# one place; in a shell it would be ``spdnet train digits --devices 2``. Under ``torchrun`` the same
# program runs on several machines. The processes have one thread each.

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from matplotlib import pyplot as plt

from spdnet import plots
from spdnet.runs import RunFolder

REPEATS = 3


def train(processes, place):
    """Train on the digits with so many processes; the folder of the run."""
    out = Path(place) / f"with-{processes}"
    command = f"-m spdnet train digits --device cpu --epochs 8 --repeat {REPEATS} --test 0.5"
    found = subprocess.run(
        [sys.executable, *command.split(), "--devices", str(processes), "--out", str(out)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if found.returncode != 0:
        raise RuntimeError(found.stderr)
    return RunFolder(out)


# %%
# What they found
# ---------------
#
# The folder of a run keeps its results and one row for each epoch. Both trainings are done for
# three seeds, each with its own random half to learn from, and the log-Euclidean linear classifier
# is fitted beside them.

with tempfile.TemporaryDirectory() as place:
    runs = {n: train(n, place) for n in (1, 2)}
    histories = {n: [run.of_seed(s).metrics() for s in range(REPEATS)] for n, run in runs.items()}
    results = {n: run.results() for n, run in runs.items()}

for n, found in results.items():
    ours, linear = found.accuracy, found.baseline.accuracy
    for name, score in (("SPDNet", ours), ("log-Euclidean linear", linear)):
        print(f"{n} process{'es:' if n > 1 else ':':5}{name:22}{score.percent()} %")

# %%
# The sums of two processes are added in another order than those of one, and the last digits of
# floating-point numbers depend on the order. Nothing else should differ.

gap = max(
    abs(a[key] - b[key])
    for one, two in zip(histories[1], histories[2], strict=True)
    for a, b in zip(one, two, strict=True)
    for key in ("loss", "val_loss")
)
print(f"largest difference of a loss between one process and two: {gap:.1e}")

# %%
# One on top of the other, the lines of one process wide and pale, those of two dashed.

(ax,) = plots.panels(size=(6.4, 4.0))
plots.learning_curves(histories[1][0], label="one process", lw=5, alpha=0.35, ax=ax)
plots.learning_curves(histories[2][0], label="two processes", ls="--", ax=ax)
plt.show()
