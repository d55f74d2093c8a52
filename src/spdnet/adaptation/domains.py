"""Statistics of domains: recentering and rescaling."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from spdnet._checks import require_number, require_same_kind
from spdnet._inputs import TakesMatrices, as_tensor, checked_matrices, encode_domains
from spdnet._precision import accurate_dtype
from spdnet._warnings import warn_user
from spdnet.linalg import congruence, invsqrtm, logm, powm
from spdnet.linalg.symmetric import abs_square
from spdnet.manifolds import Metric, get_metric

IntArray = NDArray[numpy.int64]
#: function from indices of matrices to the matrices ``(k, n, n)``
Read = Callable[[IntArray], Tensor]

#: weight of the center of the known domains in the mean of a new one, as a number of matrices
_PRIOR_COUNT = 10
#: fraction of the usual dispersion below which matrices differ only by rounding errors
_MIN_DISPERSION = 1e-6


class DomainTransformer(TakesMatrices, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Base class of transformers that use one statistic of each domain.

    A subclass is a dataclass that defines ``_statistic`` of the matrices of one domain and the
    attribute ``_stored`` for the statistics of the training domains. ``_moved`` transforms matrices
    with the statistic of their domain; by default, it moves that matrix to the identity.
    ``_new_statistic`` may treat new domains differently, and ``_require_settings`` validates the
    parameters.
    """

    _stored: ClassVar[str]
    #: end of the warning about a new domain with a single matrix
    _single_matrix_note: ClassVar[str] = "which is its own mean; its class cannot be predicted"
    domains_: NDArray[Any] | None
    n_features_in_: int

    def fit(self, X: ArrayLike, y: Any = None, *, domains: ArrayLike | None = None) -> Self:
        """Compute the statistics of the domains of SPD matrices ``X (N, n, n)``.

        ``domains (N,)`` are the names or numbers of the domains; without them, all matrices belong
        to one domain. ``y (N,)`` are the classes, for a transformer that uses them.
        """
        self._require_settings()
        return self.fit_tensor(self._checked(X), domains, y)

    def transform(self, X: ArrayLike, *, domains: ArrayLike | None = None) -> NDArray[Any]:
        """Transform SPD matrices ``(N, n, n)``.

        A domain of :meth:`fit` keeps its statistics. Those of a new domain are computed from the
        matrices of that domain in ``X``: pass all of them at once. Without ``domains``, the
        matrices belong to one domain, which is new if :meth:`fit` had domains.
        """
        check_is_fitted(self)
        return self.transform_tensor(self._checked(X, self.n_features_in_), domains).numpy()

    def fit_transform(
        self, X: ArrayLike, y: Any = None, *, domains: ArrayLike | None = None
    ) -> NDArray[Any]:
        """Fit to matrices and transform them."""
        return self.fit(X, y, domains=domains).transform(X, domains=domains)

    def fit_tensor(self, X: Tensor, domains: ArrayLike | None, y: ArrayLike | None = None) -> Self:
        """Fit to valid matrices of any floating-point type, on any device."""
        codes, names = domain_codes(type(self).__name__, domains, len(X))
        require_several(type(self).__name__, codes)
        dtype = accurate_dtype(X)
        statistics = [self._statistic(X[own].to(dtype)) for own in domain_parts(codes).values()]
        self.domains_, self.counts_ = names, numpy.bincount(codes)
        self.n_features_in_ = int(X.shape[-1])
        setattr(self, self._stored, torch.stack(statistics).cpu().numpy())
        return self

    def transform_tensor(self, X: Tensor, domains: ArrayLike | None) -> Tensor:
        """Transform valid matrices of any floating-point type, on any device."""
        codes, statistics = self.statistics(lambda index: X[index], len(X), domains)
        return self.move(X, codes, statistics)

    def statistics(
        self, read: Read, n: int, domains: ArrayLike | None
    ) -> tuple[IntArray, dict[int, Tensor]]:
        """Return the index of the domain of each of ``n`` matrices, and the statistics.

        All matrices of a new domain are read at once, one domain after the other.
        """
        stored = as_tensor(getattr(self, self._stored))
        known = self.domains_
        if (domains is None) != (known is None):  # none of these domains is one of fit
            stored, known = stored[:0], None
        codes, names = domain_codes(type(self).__name__, domains, n, known)
        found = dict(enumerate(stored))
        for code in sorted({*codes.tolist()} - {*found}):
            X = read(numpy.flatnonzero(codes == code))
            name = "all" if names is None else names[code]
            if len(X) == 1:
                warn_user(
                    f"{type(self).__name__}: the new domain {name} has a single matrix, "
                    f"{self._single_matrix_note}",
                )
            found[code] = self._new_statistic(X.to(accurate_dtype(X)), name)
            del X  # before the next domain is read
        return codes, found

    def move(self, X: Tensor, codes: IntArray, statistics: dict[int, Tensor]) -> Tensor:
        """Transform matrices with the statistics of their domains."""
        moved = torch.empty_like(X)
        for code, own in domain_parts(codes).items():
            statistic, part = statistics[code].to(X.device), X[own]
            if statistic.is_complex():
                require_same_kind(type(self).__name__, **{self._stored: statistic, "X": X})
            moved[own] = self._moved(part.to(accurate_dtype(X)), statistic).to(X.dtype)
        return moved

    def _checked(self, X: ArrayLike, n: int | None = None) -> Tensor:
        return checked_matrices(type(self).__name__, X, n=n, allow_complex=True)

    def _require_settings(self) -> None:
        pass

    def _statistic(self, X: Tensor) -> Tensor:
        raise NotImplementedError

    def _new_statistic(self, X: Tensor, name: Any) -> Tensor:
        return self._statistic(X)

    def _moved(self, X: Tensor, statistic: Tensor) -> Tensor:
        return congruence(X, invsqrtm(statistic))


def require_several(who: str, codes: NDArray[Any]) -> None:
    """Raise a ValueError if each of several domains has one matrix, which is its own mean."""
    if len(codes) > 1 and len(numpy.unique(codes)) == len(codes):
        raise ValueError(
            f"{who}: expected domains with several matrices, got {len(codes)} domains of one each; "
            "pass a property that samples have in common, such as the session or the site"
        )


def domain_codes(
    who: str, domains: ArrayLike | None, n: int, known: NDArray[Any] | None = None
) -> tuple[IntArray, NDArray[Any] | None]:
    """Encode the domains of ``n`` samples as integers; without domains, all belong to one."""
    if domains is None:
        return numpy.zeros(n, dtype=numpy.int64), None
    return encode_domains(who, domains, n, known)


def domain_parts(codes: IntArray) -> dict[int, Tensor]:
    """Return the indices of the matrices of each domain."""
    present = numpy.unique(codes).tolist()
    return {code: torch.from_numpy(numpy.flatnonzero(codes == code)) for code in present}


@dataclass(eq=False, repr=False)
class Recenter(DomainTransformer):
    r"""Move the mean of each domain to the identity: :math:`M^{-1/2} X M^{-1/2}`.

    Matrices of different subjects or sessions differ most in their mean. After recentering, a
    classifier that was trained on some subjects applies to others. The means of new domains are
    estimated without labels. Recentering assumes that all domains have the same class proportions:
    if one class is overrepresented in a domain, the estimated center is biased toward it.
    :class:`BalancedRecenter` corrects for this.

    :meth:`partial_fit` follows a stream of matrices, one at a time.

    Parameters
    ----------
    metric : str or Metric
        Metric of the mean, any of :data:`spdnet.manifolds.METRICS`.

    Attributes
    ----------
    domains_ : array, shape (n_domains,), or None
        Domains of the training set.
    means_ : array, shape (n_domains, n, n)
        Their means.
    counts_ : array, shape (n_domains,)
        Number of matrices of each mean.
    n_features_in_ : int
        Size of the matrices.

    References
    ----------
    P. Zanini, M. Congedo, C. Jutten, S. Said, Y. Berthoumieu, "Transfer Learning: A Riemannian
    Geometry Framework With Applications to Brain-Computer Interfaces", IEEE Trans. Biomed. Eng.,
    2018. https://doi.org/10.1109/TBME.2017.2742541

    Examples
    --------
    >>> import numpy
    >>> from spdnet.adaptation import Recenter
    >>> X = numpy.eye(2) * numpy.array([1.0, 4.0, 100.0, 400.0])[:, None, None]
    >>> Recenter().fit_transform(X, domains=["a", "a", "b", "b"])[:, 0, 0].round(6)
    array([0.5, 2. , 0.5, 2. ])
    """

    metric: str | Metric = "affine_invariant"
    _stored: ClassVar[str] = "means_"

    def _require_settings(self) -> None:
        get_metric(self.metric, who="Recenter")

    def partial_fit(self, X: ArrayLike, y: Any = None, *, domains: ArrayLike | None = None) -> Self:
        r"""Update the means with matrices in the order in which they arrive.

        Each moves the mean of its domain along the geodesic, :math:`M \leftarrow M \#_{1/k} X_k`. A
        new domain starts from the mean of the known domains, weighted like 10 matrices. ``y`` is
        ignored.
        """
        if not hasattr(self, "means_"):
            return self.fit(X, domains=domains)
        metric = get_metric(self.metric, who="Recenter")
        matrices = self._checked(X, self.n_features_in_)
        if (domains is None) != (self.domains_ is None):
            raise ValueError(
                "Recenter: expected domains in partial_fit if, and only if, fit had domains"
            )
        codes, names = domain_codes("Recenter", domains, len(matrices), self.domains_)
        means, counts = [*as_tensor(getattr(self, self._stored))], self.counts_.tolist()
        n_new = 0 if names is None else len(names) - len(means)
        if n_new:
            means += [metric.mean(torch.stack(means), check=False)] * n_new
            counts += [_PRIOR_COUNT] * n_new
        for matrix, code in zip(matrices, codes.tolist()):
            counts[code] += 1
            means[code] = metric.geodesic(means[code], matrix, 1 / counts[code])
        self.domains_, self.counts_ = names, numpy.array(counts)
        setattr(self, self._stored, torch.stack(means).numpy())
        return self

    def _statistic(self, X: Tensor) -> Tensor:
        return get_metric(self.metric, who="Recenter").mean(X, check=False)


@dataclass(eq=False, repr=False)
class Rescale(DomainTransformer):
    r"""Give recentered domains the same dispersion: :math:`X^{\sqrt{d^* / d}}`.

    The dispersion :math:`d` of a domain is the mean squared affine-invariant distance of its
    matrices from the identity, where :class:`Recenter` moves their mean. Matrices of a domain whose
    dispersion is zero up to rounding errors, such as a single matrix, are not changed.

    Parameters
    ----------
    dispersion : float, optional
        Dispersion :math:`d^*` of all domains afterwards; by default, the mean of the training
        domains.

    Attributes
    ----------
    domains_ : array, shape (n_domains,), or None
        Domains of the training set.
    dispersions_ : array, shape (n_domains,)
        Their dispersions.
    counts_ : array, shape (n_domains,)
        Number of matrices of each domain.
    n_features_in_ : int
        Size of the matrices.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.adaptation import Rescale
    >>> X = numpy.eye(2) * numpy.array([0.5, 2.0, 0.25, 4.0])[:, None, None]
    >>> X = Rescale(dispersion=1.0).fit_transform(X, domains=["a", "a", "b", "b"])
    >>> X[:, 0, 0].round(4)
    array([0.4931, 2.0281, 0.4931, 2.0281])
    """

    dispersion: float | None = None
    _stored: ClassVar[str] = "dispersions_"

    def _require_settings(self) -> None:
        if self.dispersion is not None:
            require_number("Rescale", "dispersion", self.dispersion, above=0)

    def _statistic(self, X: Tensor) -> Tensor:
        return abs_square(logm(X, check=False)).sum((-2, -1)).mean()

    def _moved(self, X: Tensor, statistic: Tensor) -> Tensor:
        usual = self.dispersions_.mean()
        if statistic <= _MIN_DISPERSION * usual:
            return X
        target = usual if self.dispersion is None else self.dispersion
        return powm(X, float((target / statistic).sqrt()))
