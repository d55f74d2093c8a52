"""The interface of the metrics of SPD matrices, and their registry."""

from collections.abc import Iterable, Iterator
from typing import Any, Never, TypeVar

from torch import Tensor

from spdnet._checks import require_choice, require_pair
from spdnet.linalg import cholesky
from spdnet.manifolds.normalization import Normalization
from spdnet.manifolds.pairs import Progress, by_row


class Metric:
    r"""Base class of the metrics of SPD matrices.

    Every metric has ``squared_distance``, ``distance``, ``pairwise`` and ``mean``; the other
    methods are optional. A missing method raises a NotImplementedError that lists the metrics which
    have it; :meth:`has` tests for it. Layers, classifiers and the command line accept the metrics
    that have the methods they need.

    Points are symmetric positive definite and tangent vectors symmetric, both of shape
    ``(..., n, n)``; leading dimensions broadcast. Complex matrices are Hermitian instead of
    symmetric; inner products and distances are real. Points that are not SPD and values that are
    not finite raise a ValueError; ``check=False`` skips this validation. Except for
    ``log_euclidean``, computations run in float64 and are rounded to the dtype of the first
    argument.

    To add a metric, subclass this class, or :class:`FlatMetric` if the metric is Euclidean in some
    coordinates, set ``name``, and pass an instance to :func:`register_metric`.

    Attributes
    ----------
    name : str
        Name in :data:`METRICS`.
    depends_on_power : bool
        Whether the metric of the powers :math:`X^\theta` differs from the metric of :math:`X`.

    Examples
    --------
    >>> from spdnet.manifolds import log_euclidean, stein
    >>> log_euclidean.has("transport"), stein.has("transport")
    (True, False)
    """

    name: str
    depends_on_power = True
    #: power that :class:`spdnet.nn.SPDMLR` uses by default
    default_power = 1.0
    #: whether the inner product of :class:`spdnet.nn.SPDMLR` may contain the product of the traces
    has_trace_term = True

    def has(self, verb: str) -> bool:
        """Return whether the metric has a method, such as ``"transport"``."""
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
        """Compute the inner product ``(...)`` of the tangent vectors ``U`` and ``V`` at ``X``.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> affine_invariant.inner(2 * torch.eye(2), torch.eye(2), torch.eye(2))
        tensor(0.5000)
        """
        self._lacks("inner")

    def distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        """Compute the distance ``(...)`` between ``X`` and ``Y``.

        The distance has no derivative at ``X = Y``; use :meth:`squared_distance` in losses.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_euclidean
        >>> log_euclidean.distance(torch.eye(2), torch.e * torch.eye(2))
        tensor(1.4142)
        """
        self._lacks("distance")

    def squared_distance(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        """Compute the squared distance ``(...)`` between ``X`` and ``Y``, smooth everywhere.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import stein
        >>> stein.squared_distance(torch.eye(1), 9 * torch.eye(1))  # log(5 / 3)
        tensor(0.5108)
        """
        self._lacks("squared_distance")

    def pairwise(
        self,
        X: Tensor,
        Y: Tensor | None = None,
        *,
        progress: Progress | None = None,
        check: bool = True,
    ) -> Tensor:
        """Compute the squared distances ``(N, M)`` between all ``X (N, n, n)`` and ``Y (M, n, n)``.

        ``Y`` is ``X`` by default. Not differentiable for every metric; use :meth:`squared_distance`
        for derivatives. ``progress`` is called with the number of finished rows and their total.

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
        require_pair(who, X, X if Y is None else Y)
        if check:
            cholesky(X.detach(), who=who)
            if Y is not None:
                cholesky(Y.detach(), who=who, name="Y")
        return self._pairwise(X, Y, progress or (lambda done, total: None))

    def _pairwise(self, X: Tensor, Y: Tensor | None, progress: Progress) -> Tensor:
        def row(i: int, others: Tensor, _: slice) -> Tensor:
            return self.squared_distance(X[i], others, check=False)

        return by_row(X, Y, row, progress)

    def mean(self, X: Tensor, weights: Tensor | None = None, *, check: bool = True) -> Tensor:
        r"""Compute the weighted Frechet mean :math:`\arg\min_M \sum_i w_i \, d(M, X_i)^2`.

        The weights ``(..., N)`` of ``X (..., N, n, n)`` are nonnegative, scaled to a sum of 1, and
        equal by default. Leading dimensions broadcast: weights ``(K, N)`` of matrices ``(N, n, n)``
        give ``K`` means.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky
        >>> log_cholesky.mean(torch.stack([torch.eye(2), 16 * torch.eye(2)])).diagonal()
        tensor([4., 4.])
        """
        self._lacks("mean")

    def geodesic(self, X: Tensor, Y: Tensor, t: float | Tensor, *, check: bool = True) -> Tensor:
        """Compute the point at ``t (...)`` on the geodesic from ``X`` (0) to ``Y`` (1).

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.geodesic(torch.eye(2), 9 * torch.eye(2), 0.5).diagonal()
        tensor([4., 4.])
        """
        self._lacks("geodesic")

    def exp(self, X: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        """Compute the exponential map, the end of the geodesic from ``X`` with velocity ``V``.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.exp(torch.eye(2), 2 * torch.eye(2)).diagonal()
        tensor([4., 4.])
        """
        self._lacks("exp")

    def log(self, X: Tensor, Y: Tensor, *, check: bool = True) -> Tensor:
        """Compute the logarithmic map, the tangent vector at ``X`` that points to ``Y``.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import bures_wasserstein
        >>> bures_wasserstein.log(torch.eye(2), 4 * torch.eye(2)).diagonal()
        tensor([2., 2.])
        """
        self._lacks("log")

    def transport(self, X: Tensor, Y: Tensor, V: Tensor, *, check: bool = True) -> Tensor:
        """Transport the tangent vector ``V`` in parallel along the geodesic from ``X`` to ``Y``.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky
        >>> log_cholesky.transport(torch.eye(2), 4 * torch.eye(2), torch.eye(2)).diagonal()
        tensor([4., 4.])
        """
        self._lacks("transport")

    def coordinates(
        self, X: Tensor, *, check: bool = True, who: str | None = None, name: str = "X"
    ) -> Tensor:
        """Compute the coordinates in which the metric is Euclidean.

        Errors name the caller ``who`` and the argument ``name``.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky
        >>> log_cholesky.coordinates(torch.tensor([[1.0, 2.0], [2.0, 5.0]]))
        tensor([[0., 0.],
                [2., 0.]])
        """
        self._lacks("coordinates")

    def from_coordinates(self, C: Tensor) -> Tensor:
        """Compute the point with the coordinates ``C``, the inverse of :meth:`coordinates`.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import log_cholesky
        >>> log_cholesky.from_coordinates(torch.tensor([[0.0, 0.0], [2.0, 0.0]]))
        tensor([[1., 2.],
                [2., 5.]])
        """
        self._lacks("from_coordinates")

    def normalization(
        self, *, power: float = 1.0, root: str = "symmetric", karcher_steps: int | None = None
    ) -> Normalization:
        """Create the operations of a batch normalization; see :class:`spdnet.nn.SPDBatchNorm`.

        Examples
        --------
        >>> from spdnet.manifolds import affine_invariant
        >>> type(affine_invariant.normalization()).__name__
        'CongruenceNormalization'
        """
        self._lacks("normalization")

    def logits(
        self, X: Tensor, S: Tensor, A: Tensor, *, power: float, alpha: float, beta: float
    ) -> Tensor:
        """Compute the logits ``(..., n_classes)`` of :class:`spdnet.nn.SPDMLR`.

        ``S (n_classes, n, n)`` are the matrix logarithms of the points, ``A`` the normals.

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
        r"""Compute :math:`\sum_p w_p \, d^2(X_{i_p}, X_{j_p})` and its gradient ``(N, n, n)``.

        ``i``, ``j`` and ``weights`` have the shape ``(P,)``. Only metrics that are invariant under
        congruence, as :class:`spdnet.baselines.SPDML` requires, have this method.

        Examples
        --------
        >>> import torch
        >>> from spdnet.manifolds import affine_invariant
        >>> X = torch.stack([torch.eye(2), torch.e * torch.eye(2)])
        >>> i, j = torch.tensor([0]), torch.tensor([1])
        >>> affine_invariant.sum_over_pairs(X, i, j, torch.ones(1))[0].round(decimals=4)
        tensor(2.)
        """
        self._lacks("sum_over_pairs")


#: metrics of SPD matrices by name; :func:`register_metric` adds to them
METRICS: dict[str, Metric] = {}
_M = TypeVar("_M", bound=Metric)


class MetricNames(Iterable[str]):
    """Names of the registered metrics with the method ``verb``, including those registered later.

    ``extra`` are further names, which come first.

    Examples
    --------
    >>> from spdnet.manifolds import MetricNames
    >>> list(MetricNames("transport"))
    ['log_euclidean', 'affine_invariant', 'log_cholesky']
    """

    def __init__(self, verb: str = "mean", *extra: str) -> None:
        self.verb = verb
        self.extra = extra

    def __iter__(self) -> Iterator[str]:
        yield from self.extra
        yield from (name for name, metric in METRICS.items() if metric.has(self.verb))


def register_metric(metric: _M) -> _M:
    """Register a metric by its name, so that layers and the command line accept it.

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
    extra: tuple[str, ...] = (),
) -> Metric:
    """Return a metric, given by name or as an object, if it has the method ``verb``.

    Errors name the caller ``who`` and the argument ``name``, and list the names in ``extra``, which
    the caller accepts as well.

    Examples
    --------
    >>> from spdnet.manifolds import get_metric, log_euclidean
    >>> get_metric("log_euclidean") is get_metric(log_euclidean) is log_euclidean
    True
    """
    if isinstance(metric, Metric):
        if not metric.has(verb):
            require_choice(who, name, metric.name, MetricNames(verb, *extra))
        return metric
    require_choice(who, name, metric, MetricNames(verb, *extra))
    return METRICS[metric]
