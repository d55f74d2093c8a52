"""Pictures of SPD matrices and of what was learnt from them, in the look of the reports.

Every function takes arrays or tensors, draws on the axes it is given or on new ones, and gives the
axes back. Nothing is shown, and the settings of matplotlib stay as they are. Names of classes are
plain text: a class may be called ``$x$``.

>>> from spdnet import plots
>>> left, right = plots.panels(1, 2)
>>> left = plots.learning_curves([{"loss": 2.0}, {"loss": 0.5}], ax=left)
>>> right = plots.confusion([[8, 2], [1, 9]], ["calm", "moving"], ax=right)
"""

from spdnet.plots.cone import cone
from spdnet.plots.confusion import confusion, side_of
from spdnet.plots.curves import learning_curves
from spdnet.plots.embedding import embedding
from spdnet.plots.roc import roc
from spdnet.plots.spectra import spectra
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
    "embedding",
    "learning_curves",
    "panels",
    "roc",
    "side_of",
    "spectra",
]
