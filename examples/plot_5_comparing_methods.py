"""
Comparing methods on the same data
==================================

``spdnet compare`` on the command line, or ``spdnet.runs.compare`` in Python, fits several methods
to the same splits of the same data. The comparison shows whether a network is worth its training
time.
"""

# %%
# Settings
# --------
#
# We train on a tenth of the digits, about eighteen per class, and test on the rest. The methods
# represent four families. Nearest neighbor and minimum distance to mean need only a distance;
# logistic regression and discriminant analysis (CDL) work on matrix logarithms; the support vector
# machine and sparse coding (RSR) use the Stein kernel; and there are two SPDNets, one without
# BiMaps and one with two. Omit ``methods`` to compare all methods.

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
# Results
# -------
#
# The folder stores the result of every fit, so an interrupted comparison can be resumed, and only
# the new fits are computed if methods or repeats are added. ``results`` is the content of
# ``results.json``; the folder also contains the table as text, CSV and LaTeX. The number after
# ``±`` is the standard deviation over the three random splits.

with tempfile.TemporaryDirectory() as directory:
    folder = ComparisonFolder(Path(directory) / "digits")
    results = compare(settings, folder)
    print((folder.path / "table.txt").read_text())

# %%
# Error rates
# -----------
#
# When accuracies are close to 100 %, error rates are easier to compare. The whiskers show the
# standard deviation. The dashed line is the error of the log-Euclidean linear classifier: methods
# with longer bars are not worth their extra cost on these data. No method was tuned, and more
# splits would be needed to rank methods with similar errors.

rows = sorted(results.rows, key=lambda row: row.accuracy.mean)
means = [100 * (1 - row.accuracy.mean) for row in rows]
deviations = [100 * row.accuracy.std for row in rows]
colors = [plots.TRAIN if row.method.startswith("spdnet") else "#94a3b8" for row in rows]
(ax,) = plots.panels(size=(8.0, 4.0))
ax.barh(range(len(rows)), means, xerr=deviations, color=colors, height=0.7, ecolor=plots.INK)
linear = next(mean for row, mean in zip(rows, means, strict=True) if row.method == "logistic")
ax.axvline(linear, color=plots.BASELINE, ls="--", label="log-Euclidean linear")
ax.set_yticks(range(len(rows)), [row.title for row in rows])
ax.set_xlabel("test error, %")
ax.grid(False, axis="y")
ax.legend(frameon=False)
plt.show()
