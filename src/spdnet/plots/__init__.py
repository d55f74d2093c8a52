"""Plots of SPD matrices and training results, in the style of the reports.

Functions take arrays or tensors, draw on the axes ``ax`` or on new ones, and return the axes. They
do not show the figure or change the settings of matplotlib. Class names are plain text, not math.
"""

from spdnet.plots.confusion import confusion, confusion_size
from spdnet.plots.curves import learning_curves, roc, spectra
from spdnet.plots.points import cone, embedding
from spdnet.plots.style import BASELINE, COLORS, INK, STYLE, TRAIN, VAL, panels

__all__ = [
    "BASELINE",
    "COLORS",
    "INK",
    "STYLE",
    "TRAIN",
    "VAL",
    "cone",
    "confusion",
    "confusion_size",
    "embedding",
    "learning_curves",
    "panels",
    "roc",
    "spectra",
]
