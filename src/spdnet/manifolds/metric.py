"""What a metric of SPD matrices is, and the registry of metrics by name."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Never

from torch import Tensor

from spdnet._checks import require_choice, require_square
from spdnet.linalg import cholesky
from spdnet.manifolds.normalization import Normalization
from spdnet.manifolds.pairs import by_row


class Metric:
    r"""Metric of SPD matrices: one object whose methods are the operations of its geometry.

    Every metric has ``squared_distance``, ``distance``, ``pairwise`` and ``mean``; it need not have
    the others. A method that a metric lacks raises a NotImplementedError that names the metrics
    which have it; :meth:`has` tells beforehand. Layers, classifiers and the command line accept the
    metrics that have the methods they need.

    Points are ``(..., n, n)`` symmetric positive definite, tangent vectors ``(..., n, n)``
    symmetric; leading shapes broadcast. ``check=False`` skips the validation of the values.

    To add a metric, subclass this class, or :class:`FlatMetric` if the metric is Euclidean in some
    coordinates, give it a ``name`` and pass an instance to :func:`register_metric`.

    Attributes
    ----------
    name : str
        Name in :data:`METRICS`.
    power_changes_it : bool
        Whether applying the metric to the power :math:`X^\theta` gives another metric.

    Examples
    --------
    >>> from spdnet.manifolds import log_euclidean, stein
    >>> log_euclidean.has("transport"), stein.has("transport")
    (True, False)
    """

    name: str
    power_changes_it = True
    #: power that :class:`spdnet.nn.SPDMLR` uses by default
    default_power = 1.0
    #: whether the inner product of :class:`spdnet.nn.SPDMLR` may contain the product of the traces
    has_trace_term = True

    def has(self, verb: str) -> bool:
        """Whether the metric has a method, such as ``"transport"``.

        Examples
        --------
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.has("geodesic"), bures_wasserstein.has("transport")
        (True, False)
        """
        return getattr(type(self), verb) is not getattr(Metric, verb)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def _lacks(self, verb: str) -> Never:
        names = ", ".join(map(repr, MetricNames(verb)))
        raise NotImplementedError(
            f"{self.name}.{verb}: the metric {self.name!r} has no {verb}; "
            + (f"the metrics that have it are {names}" if names else "no metric has it")
        )

    def inner(self, X: Tensor, U: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        """Compute the inner product ``(...)`` of tangent vectors at ``X``."""
        self._lacks("inner")

    def distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        """Compute the distance ``(...)`` between points."""
        self._lacks("distance")

    def squared_distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        """Compute the squared distance ``(...)``, smooth everywhere."""
        self._lacks("squared_distance")

    def pairwise(
        self,
        X: Tensor,
        Y: Tensor | None = None,
        *,
        progress: Callable[[int, int], None] | None = None,
        check: bool = True,
    ) -> Tensor:
        """Compute the squared distances between all points of two sets, in batches.

        Not differentiable for every metric; use :meth:`squared_distance` where derivatives are
        needed.

        Parameters
        ----------
        X : Tensor, shape (N, n, n)
        Y : Tensor, shape (M, n, n), optional
            ``X`` when not given.
        progress : callable, optional
            Called with the number of rows that are done and the number of rows.

        Returns
        -------
        Tensor, shape (N, M)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> X = torch.stack([torch.eye(2), torch.e * torch.eye(2)]).double()
        >>> affine_invariant.pairwise(X).round(decimals=6)
        tensor([[0., 2.],
                [2., 0.]], dtype=torch.float64)
        """
        who = f"{self.name}.pairwise"
        require_square(who, X)
        if Y is not None:
            require_square(who, Y, "Y", n=X.shape[-1])
        if check:
            cholesky(X.detach(), who=who)
            if Y is not None:
                cholesky(Y.detach(), who=who, name="Y")
        return self._pairwise(X, Y, progress or (lambda done, total: None))

    def _pairwise(
        self, X: Tensor, Y: Tensor | None, progress: Callable[[int, int], None]
    ) -> Tensor:
        def row(i: int, others: Tensor, _: slice) -> Tensor:
            return self.squared_distance(X[i], others, check=False)

        return by_row(X, Y, row, progress)

    def mean(self, X: Tensor, weights: Tensor | None = None, *, check: bool = True) -> Tensor:
        """Compute the weighted Frechet mean ``(..., n, n)`` of points ``(..., N, n, n)``."""
        self._lacks("mean")

    def geodesic(self, X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
        """Compute the point at ``t`` of the geodesic from ``X`` (0) to ``Y`` (1)."""
        self._lacks("geodesic")

    def exp(self, X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        """Compute the exponential map: the point reached from ``X`` along ``V``."""
        self._lacks("exp")

    def log(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        """Compute the logarithmic map: the tangent vector at ``X`` that points to ``Y``."""
        self._lacks("log")

    def transport(self, X: Tensor, Y: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        """Transport the tangent vector ``V`` at ``X`` to ``Y``, in parallel along the geodesic."""
        self._lacks("transport")

    def coordinates(
        self, X: Tensor, *, check: bool = True, who: str | None = None, name: str = "X"
    ) -> Tensor:
        """Compute the coordinates in which the metric is Euclidean."""
        self._lacks("coordinates")

    def from_coordinates(self, C: Tensor) -> Tensor:
        """Compute the point with these coordinates."""
        self._lacks("from_coordinates")

    def normalization(
        self, *, power: float = 1.0, root: str = "symmetric", karcher_steps: int | None = None
    ) -> Normalization:
        """Make the operations of a batch normalisation; see :class:`spdnet.nn.SPDBatchNorm`.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> from spdnet.nn import SPDBatchNorm
        >>> type(affine_invariant.normalization()).__name__
        'CongruenceNormalization'
        >>> SPDBatchNorm(2, affine_invariant)(torch.eye(2).repeat(3, 1, 1)).shape
        torch.Size([3, 2, 2])
        """
        self._lacks("normalization")

    def logits(
        self, X: Tensor, S: Tensor, A: Tensor, *, power: float, alpha: float, beta: float
    ) -> Tensor:
        """Compute the logits of :class:`spdnet.nn.SPDMLR`.

        Parameters
        ----------
        X : Tensor, shape (..., n, n)
        S : Tensor, shape (n_classes, n, n)
            Matrix logarithms of the points of the classes.
        A : Tensor, shape (n_classes, n, n)
            Symmetric normals.
        power, alpha, beta : float

        Returns
        -------
        Tensor, shape (..., n_classes)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_euclidean
        >>> X, S, A = torch.eye(2)[None], torch.zeros(3, 2, 2), torch.ones(3, 2, 2)
        >>> log_euclidean.logits(X, S, A, power=1.0, alpha=1.0, beta=0.0)
        tensor([[0., 0., 0.]])
        """
        self._lacks("logits")

    def sum_over_pairs(
        self, X: Tensor, i: Tensor, j: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Compute :math:`\sum_p w_p \, d^2(X_{i_p}, X_{j_p})` and its gradient.

        The metrics that have it are invariant under congruence, which
        :class:`spdnet.baselines.SPDML` requires.

        Parameters
        ----------
        X : Tensor, shape (N, n, n)
        i, j : Tensor of integers, shape (P,)
        weights : Tensor, shape (P,)

        Returns
        -------
        value : Tensor, shape ()
        gradient : Tensor, shape (N, n, n)

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> X = torch.stack([torch.eye(2), torch.e * torch.eye(2)])
        >>> first, second = torch.tensor([0]), torch.tensor([1])
        >>> value, gradient = affine_invariant.sum_over_pairs(X, first, second, torch.ones(1))
        >>> value.round(decimals=4), gradient.shape
        (tensor(2.), torch.Size([2, 2, 2]))
        """
        self._lacks("sum_over_pairs")


#: the metrics of SPD matrices by name; :func:`register_metric` adds to them
METRICS: dict[str, Metric] = {}


class MetricNames(Iterable[str]):
    """Names of the registered metrics that have a method; follows later registrations.

    Parameters
    ----------
    verb : str
    besides : str
        Further names that stand in front.

    Examples
    --------
    >>> from spdnet.manifolds import MetricNames
    >>> list(MetricNames("transport"))
    ['log_euclidean', 'affine_invariant', 'log_cholesky']
    """

    def __init__(self, verb: str = "mean", *besides: str) -> None:
        self.verb = verb
        self.besides = besides

    def __iter__(self) -> Iterator[str]:
        yield from self.besides
        yield from (name for name, metric in METRICS.items() if metric.has(self.verb))


def register_metric(metric: Metric) -> Metric:
    """Make a metric known by its name; it is then accepted wherever its methods suffice.

    Parameters
    ----------
    metric : Metric

    Returns
    -------
    Metric
        The argument.

    Examples
    --------
    >>> from spdnet.manifolds import METRICS, log_euclidean, register_metric
    >>> register_metric(log_euclidean) is METRICS["log_euclidean"]
    True
    """
    if not isinstance(metric, Metric):
        raise TypeError(
            f"register_metric: expected an instance of a subclass of Metric, got {metric!r}"
        )
    if METRICS.get(metric.name, metric) is not metric:
        raise ValueError(
            f"register_metric: expected a new name, got {metric.name!r}, which is the name of "
            f"{METRICS[metric.name]!r}; give the metric another name"
        )
    METRICS[metric.name] = metric
    return metric


def get_metric(
    metric: Any,
    verb: str = "mean",
    *,
    who: str = "get_metric",
    name: str = "metric",
    besides: tuple[str, ...] = (),
) -> Metric:
    """Return the metric with a name, or the metric itself.

    Parameters
    ----------
    metric : str or Metric
    verb : str
        Method that the metric has to have.
    who, name : str
        Caller and argument that an error names.
    besides : tuple of str
        Further names that the caller accepts, for the error.

    Returns
    -------
    Metric

    Examples
    --------
    >>> from spdnet.manifolds import get_metric, log_euclidean
    >>> get_metric("log_euclidean") is get_metric(log_euclidean) is log_euclidean
    True
    """
    if isinstance(metric, Metric):
        if not metric.has(verb):
            require_choice(who, name, metric.name, MetricNames(verb, *besides))
        return metric
    require_choice(who, name, metric, MetricNames(verb, *besides))
    return METRICS[metric]
