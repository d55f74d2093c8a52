"""Covariance matrices of event-related potentials as scikit-learn transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from spdnet._checks import require_count
from spdnet._inputs import as_tensor, encode_labels
from spdnet.covariance.estimators import sample_covariance
from spdnet.covariance.transformers import SignalTransformer
from spdnet.linalg import cholesky
from spdnet.linalg.cholesky import whiten
from spdnet.linalg.validate import UNIT, find_faults, raise_first_fault


@dataclass(eq=False, repr=False)
class ERPCovariances(SignalTransformer):
    r"""Compute the covariance of each signal together with the average signals of the classes.

    The matrix of a signal :math:`X` is the covariance of the super-trial

    .. math:: \begin{pmatrix} P_1 \\ \vdots \\ P_K \\ X \end{pmatrix}

    with the averages :math:`P_k` of the training signals of each class. The blocks of :math:`P_k`
    and :math:`X` measure how much of the evoked response is in the signal, whose time course a
    covariance would otherwise ignore. Fit on the training data only, for example in a pipeline.

    Parameters
    ----------
    estimator : str
        Any of ``ESTIMATORS``: see :func:`estimate`.
    reg, mode
        See :func:`regularize`.
    classes : sequence, optional
        Classes whose average is included, for example only the target. Default: all.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
        Classes whose average is included.
    averages_ : array, shape (n_classes, channels, time)
        Their average signals.
    n_features_in_ : int
        Number of channels.

    References
    ----------
    M. Congedo, A. Barachant, A. Andreev, "A New Generation of Brain-Computer Interface Based on
    Riemannian Geometry", 2013. https://doi.org/10.48550/arXiv.1310.8115

    Examples
    --------
    >>> import numpy
    >>> from spdnet.covariance import ERPCovariances
    >>> X = numpy.random.default_rng(0).normal(size=(20, 4, 100))
    >>> y = numpy.repeat(["target", "other"], 10)
    >>> ERPCovariances().fit_transform(X, y).shape
    (20, 12, 12)
    >>> ERPCovariances(classes=["target"]).fit_transform(X, y).shape
    (20, 8, 8)
    """

    classes: Sequence[Any] | None = None

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Compute the averages of signals ``X (N, channels, time)`` with labels ``y (N,)``."""
        self._fit_averages(X, y)
        return self

    def transform(self, X: ArrayLike) -> NDArray[numpy.float64]:
        """Return the matrices of signals ``(N, channels, time)``, as long as those of ``fit``."""
        signals = self._signals(X)
        return self._super_trials(as_tensor(self.averages_), signals).numpy()

    def _fit_averages(self, X: ArrayLike, y: ArrayLike) -> Tensor:
        who = type(self).__name__
        signals = self._fit(X)
        names, codes = encode_labels(who, y, len(signals))
        self.classes_ = names if self.classes is None else numpy.atleast_1d(self.classes)
        chosen = [code for name in self.classes_ for code in numpy.flatnonzero(names == name)]
        if not chosen or len({*chosen}) < len(self.classes_):
            raise ValueError(
                f"{who}: expected distinct classes among those of y, {names.tolist()}, got "
                f"{self.classes!r}"
            )
        parts = [torch.from_numpy(codes == code) for code in chosen]
        self.averages_ = torch.stack([signals[part].mean(0) for part in parts]).numpy()
        return signals

    def _signals(self, X: ArrayLike) -> Tensor:
        signals = super()._signals(X)
        if signals.shape[-1] != (T := self.averages_.shape[-1]):
            raise ValueError(
                f"{type(self).__name__}: expected signals of {T} observations as in fit, got "
                f"{signals.shape[-1]}; the averages need the same time axis"
            )
        return signals

    def _super_trials(self, averages: Tensor, signals: Tensor) -> Tensor:
        """Return the covariances of averages ``(K, n, T)`` and signals ``(N, m, T)``."""
        stacked = averages.flatten(0, 1).expand(len(signals), -1, -1)
        return self._estimate(torch.cat([stacked, signals], 1))


@dataclass(eq=False, repr=False)
class XdawnCovariances(ERPCovariances):
    r"""Compute the matrices of :class:`ERPCovariances` after spatial filtering with xDAWN.

    The filters of class :math:`k` are the leading solutions of

    .. math:: \mathrm{cov}(P_k) \, w = \lambda \, \mathrm{cov}(X) \, w

    for the average :math:`P_k` and all training signals :math:`X`: the directions with the largest
    power of the evoked response relative to that of the signals. With :math:`W` the filters of all
    classes, the super-trial consists of :math:`W_k^\top P_k` and :math:`W^\top X`. It has
    ``2 * n_classes * n_filters`` rows, which are linearly dependent if ``n_classes * n_filters``
    exceeds the number of channels: keep ``reg`` positive.

    Parameters
    ----------
    estimator : str
        Any of ``ESTIMATORS``: see :func:`estimate`. It also estimates the covariance of the
        training signals.
    reg, mode
        See :func:`regularize`.
    classes : sequence, optional
        Classes with an average and filters. Default: all.
    n_filters : int
        Number of filters of each class.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
        Classes with an average and filters.
    averages_ : array, shape (n_classes, channels, time)
        Their average signals.
    filters_ : array, shape (n_classes, n_filters, channels)
        Their filters, of unit length.
    n_features_in_ : int
        Number of channels.

    References
    ----------
    B. Rivet, A. Souloumiac, V. Attina, G. Gibert, "xDAWN Algorithm to Enhance Evoked Potentials:
    Application to Brain-Computer Interface", IEEE Trans. Biomed. Eng., 2009.
    https://doi.org/10.1109/TBME.2009.2012869

    Examples
    --------
    >>> import numpy
    >>> from spdnet.covariance import XdawnCovariances
    >>> X = numpy.random.default_rng(0).normal(size=(20, 16, 100))
    >>> y = numpy.repeat(["target", "other"], 10)
    >>> XdawnCovariances(n_filters=3).fit_transform(X, y).shape
    (20, 12, 12)
    """

    n_filters: int = 4

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Compute averages and filters of signals ``X (N, channels, time)``, labels ``y (N,)``."""
        require_count("XdawnCovariances", "n_filters", self.n_filters)
        signals = self._fit_averages(X, y)
        if self.n_filters > (n := self.n_features_in_):
            raise ValueError(
                f"XdawnCovariances: expected n_filters <= {n}, the number of channels, got "
                f"{self.n_filters}"
            )
        evoked = sample_covariance(as_tensor(self.averages_))
        noise = self._estimate(signals.transpose(0, 1).flatten(1))
        faults = find_faults([noise[None]], 1, unit=UNIT, dtype=noise.dtype)
        raise_first_fault("XdawnCovariances", faults, UNIT, "cov(X)", shape=())
        L = cholesky(noise, check=False)
        vectors = torch.linalg.eigh(whiten(L, evoked)).eigenvectors.flip(-1)[..., : self.n_filters]
        W = torch.linalg.solve_triangular(L.mT, vectors, upper=True).mT
        W = W / W.norm(dim=-1, keepdim=True)
        largest = W.take_along_dim(W.abs().argmax(-1, keepdim=True), -1)
        self.filters_ = (W * largest.sign()).numpy()  # the sign of an eigenvector is arbitrary
        return self

    def transform(self, X: ArrayLike) -> NDArray[numpy.float64]:
        """Return the matrices of signals ``(N, channels, time)``, as long as those of ``fit``."""
        signals = self._signals(X)
        W = as_tensor(self.filters_)
        averages = W @ as_tensor(self.averages_)
        return self._super_trials(averages, W.flatten(0, 1) @ signals).numpy()
