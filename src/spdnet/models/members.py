"""Members of a portfolio by name.

This module imports no third-party library, so that help texts are quick.
"""

from dataclasses import dataclass

#: features by name: the spectral map, and the fraction of the size that a BiMap in front keeps
FEATURES = {
    "log": ("log", 1.0),
    "sqrt": ("sqrt", 1.0),
    "invsqrt": ("invsqrt", 1.0),
    "reduced": ("log", 0.25),
}
_ALL = ("log", "sqrt", "invsqrt")


@dataclass(frozen=True)
class Member:
    """Network of a portfolio: spectral features, dropout, and a linear or a hidden layer.

    Parameters
    ----------
    maps : tuple of str
        Names of ``FEATURES``: spectral maps, or ``"reduced"``, the logarithm of the matrices after
        a BiMap to a quarter of their size.
    gamma : float, optional
        Inverse squared width of a Gaussian kernel: the member is a kernel classifier. See
        :class:`spdnet.nn.GaussianFeatures`.
    hidden : int
        Number of hidden units; 0 for a linear classifier.
    norm : bool
        Batch normalization of the hidden units.
    dropout : float
        Dropout of the features. Hidden units have a dropout of 0.5.
    lr : float
        Learning rate, relative to that of the recipe.
    smoothing : float
        Label smoothing, relative to that of the recipe.
    penalty : float
        L2 penalty of a linear classifier, for features whose mean squared norm is 1.
    """

    maps: tuple[str, ...] = ("log",)
    gamma: float | None = None
    hidden: int = 256
    norm: bool = False
    dropout: float = 0.0
    lr: float = 1.0
    smoothing: float = 1.0
    penalty: float = 0.0


#: members by name, from nearly linear and strongly regularized to flexible
MEMBERS = {
    "linear": Member(_ALL, hidden=0, lr=10 / 3, penalty=1e-3),
    "linear-hard": Member(_ALL, hidden=0, lr=10 / 3, penalty=1e-4, smoothing=0.0),
    "sqrt-kernel": Member(("sqrt",), gamma=3.0, hidden=0, lr=10 / 3, penalty=1e-5),
    "log-kernel": Member(gamma=1.0, hidden=0, lr=10 / 3, penalty=1e-5),
    "norm-dropout-80": Member(norm=True, dropout=0.8),
    "norm-dropout-50": Member(norm=True, dropout=0.5),
    "reduced-dropout-50": Member(("reduced",), dropout=0.5, lr=1 / 3),
    "reduced": Member(("reduced",)),
    "log": Member(),
    "all": Member(_ALL),
    "all-hard": Member(_ALL, smoothing=0.0),
}
