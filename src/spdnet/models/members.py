"""Members of a portfolio by name.

This module imports no third-party library, so that help texts are quick.
"""

from dataclasses import dataclass

ALL_MAPS = ("log", "sqrt", "invsqrt")
#: logarithm of the matrices after a BiMap to a quarter of their size
REDUCED = "reduced"


@dataclass(frozen=True)
class Member:
    """Network of a portfolio: spectral features, dropout, and a linear or a hidden layer.

    Parameters
    ----------
    maps : tuple of str
        Spectral maps of the features, or ``"reduced"``: the logarithm of the matrices after a BiMap
        to a quarter of their size.
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
    "linear": Member(ALL_MAPS, hidden=0, lr=10 / 3, penalty=1e-3),
    "linear-hard": Member(ALL_MAPS, hidden=0, lr=10 / 3, penalty=1e-4, smoothing=0.0),
    "sqrt-dropout-50": Member(("sqrt",), dropout=0.5, lr=1 / 3),
    "sqrt-kernel": Member(("sqrt",), gamma=3.0, hidden=0, lr=10 / 3, penalty=1e-5),
    "norm-dropout-80": Member(norm=True, dropout=0.8),
    "norm-dropout-50": Member(norm=True, dropout=0.5),
    "reduced-dropout-50": Member((REDUCED,), dropout=0.5, lr=1 / 3),
    "reduced": Member((REDUCED,)),
    "log": Member(),
    "all": Member(ALL_MAPS),
    "all-hard": Member(ALL_MAPS, smoothing=0.0),
}
