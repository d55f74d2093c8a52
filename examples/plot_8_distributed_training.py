"""
Distributed training
====================

``spdnet train --devices 2`` starts two processes that divide each batch between them, on two GPUs
or on the CPU. The result does not depend on the number of processes, except for rounding: batch
size, learning rate and statistics refer to all processes together. This example verifies this.
"""

# %%
# Training with one and two processes
# -----------------------------------
#
# The command line starts the processes and stops all of them if one fails. Only the first process
# writes files. This example calls it from Python; in a shell, the command is
# ``spdnet train digits --devices 2``. With ``torchrun``, the same command runs on several machines.
# Here, each process uses one thread.

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from matplotlib import pyplot as plt

from spdnet import plots
from spdnet.runs import RunFolder

REPEATS = 3


def train(processes, directory):
    """Train on the digits with the given number of processes and return the run folder."""
    out = Path(directory) / f"with-{processes}"
    command = "-m spdnet train digits --recipe fast --device cpu --epochs 8 --test 0.5"
    more = ["--repeat", str(REPEATS), "--devices", str(processes), "--out", str(out)]
    result = subprocess.run(
        [sys.executable, *command.split(), *more],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if result.returncode != 0:
        raise RuntimeError(result.stderr)
    return RunFolder(out)


# %%
# Results
# -------
#
# A run folder stores the results and one row per epoch. Each run trains with three seeds, each with
# its own random split, and fits the log-Euclidean linear classifier as a baseline.

with tempfile.TemporaryDirectory() as directory:
    runs = {n: train(n, directory) for n in (1, 2)}
    histories = {n: [run.of_seed(s).metrics() for s in range(REPEATS)] for n, run in runs.items()}
    results = {n: run.results() for n, run in runs.items()}

for n, result in results.items():
    network, linear = result.accuracy, result.baseline.accuracy
    for name, score in (("SPDNet", network), ("log-Euclidean linear", linear)):
        print(f"{n} process{'es:' if n > 1 else ':':5}{name:22}{score.percent()} %")

# %%
# Two processes add numbers in a different order than one process, which changes the last digits of
# floating-point sums. Nothing else should differ.

gap = max(
    abs(a[key] - b[key])
    for one, two in zip(histories[1], histories[2], strict=True)
    for a, b in zip(one, two, strict=True)
    for key in ("loss", "val_loss")
)
print(f"largest difference of a loss between one and two processes: {gap:.1e}")

# %%
# The learning curves of one process (wide pale lines) and of two processes (dashed lines) coincide.

(ax,) = plots.panels(size=(6.4, 4.0))
plots.learning_curves(histories[1][0], label="one process", lw=5, alpha=0.35, ax=ax)
plots.learning_curves(histories[2][0], label="two processes", ls="--", ax=ax)
plt.show()
