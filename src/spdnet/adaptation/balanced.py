"""Recentering of domains whose class proportions differ."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import bmat, csr_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import chi2
from torch import Tensor

from spdnet._inputs import as_tensor, encode_labels
from spdnet._precision import accurate_dtype
from spdnet._warnings import warn_user
from spdnet.adaptation.class_shift import ClassScores, fit_scores
from spdnet.adaptation.domains import (
    DomainTransformer,
    domain_codes,
    domain_parts,
    require_several,
)
from spdnet.linalg import congruence, expm, invsqrtm, logm, sqrtm, unvech, vech
from spdnet.manifolds import affine_invariant, log_euclidean

#: steps of the two-way fit, and the largest shift that ends it
_STEPS, _SMALL = 20, 1e-4
#: weight of the two-way fit in the mean of a class in a domain, as a number of matrices
_PRIOR = 2
#: p-value below which, and total variation above which, a shift of the classes is reported
_SIGNIFICANT, _NOTABLE = 0.01, 0.2
#: size of the squares of rounding errors of tangent vectors, relative to 1 and to the vectors
_ROUNDING = 1e-12


@dataclass(eq=False, repr=False)
class BalancedRecenter(DomainTransformer):
    r"""Recenter domains that may differ in their class proportions.

    :class:`Recenter` moves the mean of each domain to the identity. If one class is
    overrepresented in a domain, the mean is biased toward it, and recentering reduces the accuracy.
    This transformer uses the mean that the domain would have with the class proportions of the
    training set:

    .. math:: C = M^{1/2} \exp\Bigl(-\sum_c (\pi_c - \bar\pi_c) \mu_c\Bigr) M^{1/2},

    where :math:`M` is the mean of the domain, :math:`\pi` are its class proportions,
    :math:`\bar\pi` those of training, and :math:`\mu_c` the means of the classes in the tangent
    space of recentered matrices. The proportions of a training domain are known from its labels.
    Those of a new domain are estimated without labels from the distribution of its discriminant
    scores, with a prior for the location of domains: see Notes.

    Centers of domains with few matrices are shrunk along the geodesic toward the center of the
    training domains, by a factor estimated from the variance between and within domains. If the
    training domains do not differ, new domains are not moved.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    domains_ : array, shape (n_domains,), or None
        Domains of the training set.
    centers_ : array, shape (n_domains, n, n)
        Their centers.
    center_ : array, shape (n, n)
        Mean of the centers.
    prior_ : array, shape (n_classes,)
        Class proportions of training: the mean over the domains.
    class_means_ : array, shape (n_classes, n (n + 1) / 2)
        Tangent vectors :math:`\mu_c`.
    within_, between_ : float
        Mean squared distance of the matrices from the mean of their class in their domain, and of
        the domains from their center. For a single training domain, ``between_`` is NaN.
    scores_ : ClassScores or None
        Model of the scores; None if there are too few training samples to fit it, or if they do not
        differ within classes. Then the proportions of new domains are assumed to be those of
        training.
    proportions_ : dict
        Estimated class proportions of the new domains that were transformed; NaN for a domain that
        seems to contain a single class that cannot be identified.
    n_features_in_ : int
        Size of the matrices.

    Notes
    -----
    The scores of a linear discriminant analysis are modeled as a mixture of one Gaussian for each
    class, whose weights are the class proportions. Candidates are the proportions of training,
    mixtures of these with a single class, and the maximum-likelihood estimate. Each is weighted by
    its likelihood times a prior of the location of the domain, in scores in which the classes
    differ more than the training domains. The estimate is the candidate, or the weighted mean of
    all, whose predicted classes agree best with those of the candidates. The likelihood is raised
    to a power for which the proportions of the training domains are recovered; the power is small
    if the scores are not Gaussian. If a domain contains only one class, only its location
    identifies this class, which fails far from the training domains.

    References
    ----------
    P. L. C. Rodrigues, C. Jutten, M. Congedo, "Riemannian Procrustes Analysis: Transfer Learning
    for Brain-Computer Interfaces", IEEE Trans. Biomed. Eng., 2019.
    https://doi.org/10.1109/TBME.2018.2889705

    S. Li, M. Kawanabe, R. J. Kobler, "SPDIM: Source-Free Unsupervised Conditional and Label Shift
    Adaptation in EEG", ICLR 2025. https://doi.org/10.48550/arXiv.2411.07249

    Examples
    --------
    >>> import warnings
    >>> import numpy
    >>> from spdnet.adaptation import BalancedRecenter
    >>> rng = numpy.random.default_rng(0)
    >>> y = numpy.arange(200) % 2
    >>> power = numpy.exp(rng.normal(size=(200, 2)) / 4 + y[:, None] * [2, 0])
    >>> X = power[:, :, None] * numpy.eye(2)
    >>> adapted = BalancedRecenter().fit(X, y, domains=numpy.arange(200) // 50)
    >>> mostly = numpy.r_[X[:50][y[:50] == 0], X[:4][y[:4] == 1]]  # few matrices of class 1
    >>> with warnings.catch_warnings(action="ignore"):
    ...     _ = adapted.transform(mostly, domains=["new"] * 27)
    >>> adapted.proportions_["new"].round(1)
    array([0.9, 0.1])
    """

    _stored: ClassVar[str] = "centers_"
    _single_matrix_note: ClassVar[str] = "from which its center cannot be estimated well"

    def fit_tensor(self, X: Tensor, domains: ArrayLike | None, y: ArrayLike | None = None) -> Self:
        """Fit to valid matrices of any floating-point type, on any device, and their classes."""
        if y is None:
            raise ValueError("BalancedRecenter: expected the classes y of the matrices, got none")
        self.classes_, labels = encode_labels("BalancedRecenter", y, len(X))
        codes, self.domains_ = domain_codes("BalancedRecenter", domains, len(X))
        require_several("BalancedRecenter", codes)
        X = X.to(accurate_dtype(X))
        counts = numpy.zeros((codes.max() + 1, len(self.classes_)))
        numpy.add.at(counts, (codes, labels), 1)
        sizes = counts.sum(1)
        self.prior_ = (counts / sizes[:, None]).mean(0)
        if _count_components(counts) == 1:
            centers, means = self._fit_centers(X, codes, labels, counts)
        else:
            warn_user(
                "BalancedRecenter: the training domains do not share classes, so the effects of "
                "domains and classes cannot be separated; the domains are not recentered",
            )
            one, total = numpy.zeros_like(codes), counts.sum(0, keepdims=True)
            centers, means = self._fit_centers(X, one, labels, total)
            centers = centers.expand(len(sizes), -1, -1)
        V = _vectors(X, centers, codes)
        center = affine_invariant.mean(centers, check=False)
        self._n_samples = len(X)
        self.within_ = float(((V - means[labels]) ** 2).sum(1).mean())
        self.between_ = numpy.nan
        if len(sizes) > 1:
            total = float((_vectors(centers, center) ** 2).sum()) / (len(sizes) - 1)
            self.between_ = max(0.0, total - self.within_ * float((1 / sizes).mean()))
        centers = torch.stack(
            [self._shrink(c, center, int(k)) for c, k in zip(centers, sizes, strict=True)]
        )
        V, raw = _vectors(X, centers, codes), _vectors(X, center)
        self.scores_: ClassScores | None = None
        if self.within_ > _ROUNDING * (1 + (raw**2).sum(1).mean()):
            self.scores_ = fit_scores(V, raw, labels, codes, self.prior_)
        self.n_features_in_ = int(X.shape[-1])
        self.center_, self.centers_ = center.cpu().numpy(), centers.cpu().numpy()
        self.class_means_ = means
        self.proportions_: dict[Any, NDArray[numpy.float64]] = {}
        return self

    def _fit_centers(
        self, X: Tensor, codes: NDArray[Any], labels: NDArray[Any], counts: NDArray[Any]
    ) -> tuple[Tensor, NDArray[Any]]:
        """Return the centers for the class proportions of training, and the class means."""
        parts = domain_parts(codes).values()
        centers = torch.stack([log_euclidean.mean(X[own], check=False) for own in parts])
        for _ in range(_STEPS):
            V = _vectors(X, centers, codes)
            shifts, means = _fit_two_way(V, codes, labels, counts, self.prior_)
            centers = _shift_centers(centers, shifts)
            if numpy.abs(shifts).max() < _SMALL:
                break
        return centers, means

    def _shrink(self, center: Tensor, target: Tensor, count: int) -> Tensor:
        """Shrink the center of a domain toward that of training.

        The variance between domains cannot be estimated from a single training domain. It is then
        the squared distance between the two centers, minus that expected by chance.
        """
        noise, between = self.within_ / count, self.between_
        if numpy.isnan(between):
            squared = float(affine_invariant.squared_distance(center, target))
            between = max(0.0, squared - noise - self.within_ / self._n_samples)
        t = between / (between + noise) if between > 0 else 0.0
        return affine_invariant.geodesic(target, center, t)

    def _new_statistic(self, X: Tensor, name: Any) -> Tensor:
        """Estimate the center of a new domain, with the class proportions of training."""
        center = as_tensor(self.center_).to(X)
        mean = affine_invariant.mean(X, check=False)
        self.proportions_[name] = self.prior_
        if self.scores_ is not None and len(X) > 1:
            proportions, statistic = self.scores_.estimate(_vectors(X, mean), _vectors(X, center))
            if proportions is None:
                self.proportions_[name] = numpy.full_like(self.prior_, numpy.nan)
                warn_user(
                    f"BalancedRecenter: the domain {name} seems to contain a single class that "
                    "cannot be identified; the domain is not recentered",
                )
                return center
            self.proportions_[name] = proportions
            self._warn_of_shift(name, proportions, statistic)
            mean = _shift_centers(mean, -(proportions - self.prior_) @ self.class_means_)
        return self._shrink(mean, center, len(X))

    def _warn_of_shift(
        self, name: Any, proportions: NDArray[numpy.float64], statistic: float
    ) -> None:
        """Warn if the class proportions of a domain differ from those of training."""
        p_value = float(chi2.sf(statistic, len(self.prior_) - 1))
        variation = numpy.abs(proportions - self.prior_).sum() / 2
        if p_value < _SIGNIFICANT and variation > _NOTABLE:
            most = int((proportions - self.prior_).argmax())
            warn_user(
                f"BalancedRecenter: the class proportions of the domain {name} seem to differ from "
                f"training (p = {p_value:.1g}): class {self.classes_[most]} has an estimated share "
                f"of {100 * proportions[most]:.0f} % instead of {100 * self.prior_[most]:.0f} %; "
                "recentering accounts for this; if the proportions are known to be equal, use "
                "Recenter (adapt='recenter')",
            )


def _vectors(X: Tensor, centers: Tensor, codes: NDArray[Any] | None = None) -> NDArray[Any]:
    """Return the tangent vectors of matrices at a common center, or at that of their domain."""
    W = invsqrtm(centers)
    return vech(logm(congruence(X, W if codes is None else W[codes]), check=False)).cpu().numpy()


def _shift_centers(centers: Tensor, shift: NDArray[Any]) -> Tensor:
    """Move centers along tangent vectors."""
    vectors = torch.from_numpy(shift).to(centers.device)
    return congruence(expm(unvech(vectors, hermitian=centers.is_complex())), sqrtm(centers))


def _count_components(counts: NDArray[Any]) -> int:
    """Return the number of components of the graph of domains and the classes they contain."""
    edges = csr_array(counts > 0)
    return int(connected_components(bmat([[None, edges], [edges.T, None]]), directed=False)[0])


def _fit_two_way(
    V: NDArray[Any],
    codes: NDArray[Any],
    labels: NDArray[Any],
    counts: NDArray[Any],
    prior: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the mean of each domain for the class proportions ``prior``, and the class means.

    The mean of a class in a domain is a weighted average of the mean of its matrices, weighted by
    their number, and of the least-squares fit ``V = domain shift + class mean``, weighted like two
    matrices.
    """
    n_domains, n_classes = counts.shape
    gram = numpy.zeros((n_domains + n_classes,) * 2)
    gram[:n_domains, n_domains:] = counts
    gram += gram.T
    gram.flat[:: len(gram) + 1] = numpy.r_[counts.sum(1), counts.sum(0)]
    sums = numpy.zeros((len(gram), V.shape[1]))
    numpy.add.at(sums, codes, V)
    numpy.add.at(sums, n_domains + labels, V)
    found = numpy.linalg.pinv(gram, hermitian=True) @ sums
    shifts, means = found[:n_domains], found[n_domains:]
    cells = _PRIOR * (shifts[:, None] + means)
    numpy.add.at(cells, (codes, labels), V)
    cells /= (counts + _PRIOR)[:, :, None]
    return prior @ cells, means - prior @ means
