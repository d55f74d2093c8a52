"""
Many methods on the same data
=============================

Before a network is worth its training time, the simple methods should have had their chance.
``spdnet compare`` on the command line, or ``spdnet.runs.compare`` in Python, fits as many of
them as you like to the same parts of the same data.
"""

# %%
# The question
# ------------
#
# A tenth of the digits to learn from, eighteen or so of each class, and nine tenths to be tested
# on: with so few examples, what does it matter which method it is? Each family is represented.
# Nearest neighbours and means need a distance between SPD matrices only; logistic regression and
# discriminant analysis (CDL) work on logarithms; the Stein kernel carries a support vector machine
# and a sparse coding (RSR); the networks, without and with two BiMaps, learn what the others are
# given. Leave ``methods`` out to get all there are.

import tempfile
from pathlib import Path

from matplotlib import pyplot as plt

from spdnet import plots
from spdnet.runs import Comparison, ComparisonFolder, compare

settings = Comparison(
    data="digits",
    methods=(
        "nn-log-euclidean",
        "mdm",
        "logistic",
        "cdl",
        "svm-stein",
        "rsr",
        "spdnet-0",
        "spdnet-2",
    ),
    repeats=3,
    test_size=0.9,
    device="cpu",
)

# %%
# The answer
# ----------
#
# A folder keeps every cell of the table, so that a comparison that was interrupted goes on where it
# stood, and one with more methods or repeats does only what is new. ``results`` is what the folder
# holds in ``results.json``; beside it are the table as text, CSV and LaTeX. The number behind
# ``±`` is the deviation over the three random parts.

with tempfile.TemporaryDirectory() as place:
    folder = ComparisonFolder(Path(place) / "digits")
    results = compare(settings, folder)
    print((folder.path / "table.txt").read_text())

# %%
# A picture of it
# ---------------
#
# Errors instead of accuracies, because near 100 % it is the errors that differ: 2 % are half of
# 4 %. Bars start at zero, the whiskers are the deviation. The log-Euclidean linear classifier is
# the line to look at: a method whose bar goes beyond it has not earned its extra cost on these
# data. No method was tuned, and many more parts would be needed to put close ones in order.

rows = sorted(results.rows, key=lambda row: row.accuracy.mean)
means = [100 * (1 - row.accuracy.mean) for row in rows]
deviations = [100 * row.accuracy.std for row in rows]
colors = [plots.TRAIN if row.method.startswith("spdnet") else "#94a3b8" for row in rows]
(ax,) = plots.panels(size=(8.0, 4.0))
ax.barh(range(len(rows)), means, xerr=deviations, color=colors, height=0.7, ecolor=plots.INK)
linear = next(mean for row, mean in zip(rows, means, strict=True) if row.method == "logistic")
ax.axvline(linear, color=plots.BASELINE, ls="--", label="log-Euclidean linear")
ax.set_yticks(range(len(rows)), [row.title for row in rows])
ax.set_xlabel("errors on the held-out part, %")
ax.grid(False, axis="y")
ax.legend(frameon=False)
plt.show()
