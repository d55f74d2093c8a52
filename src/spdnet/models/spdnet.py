"""SPDNet, the network of the paper."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from spdnet._autograd import is_concrete
from spdnet._checks import (
    require_choice,
    require_count,
    require_number,
    require_threshold,
)
from spdnet._precision import real_dtype
from spdnet._warnings import warn_user
from spdnet.linalg.symmetric import trace, vech_size
from spdnet.manifolds import Metric, get_metric
from spdnet.manifolds.stiefel import is_orthonormal
from spdnet.models.check import CheckedModel
from spdnet.models.domains import DomainModel
from spdnet.models.mlp import MLP
from spdnet.nn import (
    SPDMLR,
    BiMap,
    Center,
    LogEig,
    ReEig,
    SPDBatchNorm,
    SPDDomainBatchNorm,
    Vech,
)
from spdnet.nn.bimap import INITS
from spdnet.nn.eig import Entries
from spdnet.nn.layer import SPDLayer

_VECTOR_HEADS = ("linear", "mlp")


def norm_layer(who: str, norm: str | Metric, n_domains: int | None = None) -> Callable[..., Any]:
    """Return the constructor of the normalization layer for ``norm``, which takes the matrix size.

    ``"domain"`` requires ``n_domains``.
    """
    if norm == "domain" and n_domains is not None:
        return partial(SPDDomainBatchNorm, n_domains=n_domains, karcher_steps=1)  # as TSMNet
    if norm == "brooks":
        return partial(SPDBatchNorm, metric="affine_invariant", variance=False, karcher_steps=1)
    extra = ("brooks",) if n_domains is None else ("brooks", "domain")
    metric = get_metric(norm, "normalization", who=who, name="norm", extra=extra)
    if metric.name == "affine_invariant":
        return partial(SPDBatchNorm, metric=metric, root="cholesky", karcher_steps=1)  # as LieBN
    return partial(SPDBatchNorm, metric=metric)


def choose_dims(n: int, n_bimaps: int = 2) -> tuple[int, ...]:
    """Choose the sizes of the matrices from input to LogEig, for matrices of size ``n``.

    Matrices of size up to 64 keep their size. Larger ones are reduced to 64 by equal factors: the
    logarithm of a larger matrix has more entries than a linear classifier can use. A square BiMap
    commutes with the logarithm, so that square BiMaps without clipping ReEigs are a linear
    classifier on the logarithms.

    Parameters
    ----------
    n : int
    n_bimaps : int
        Number of BiMaps; may be 0.

    Examples
    --------
    >>> from spdnet.training import choose_dims
    >>> choose_dims(17)
    (17, 17, 17)
    >>> choose_dims(400), choose_dims(400, 3)
    ((400, 160, 64), (400, 217, 118, 64))
    """
    require_count("choose_dims", "n", n)
    ratio = min(n, 64) / n
    return n, *(round(n * ratio ** (i / n_bimaps)) for i in range(1, n_bimaps + 1))


class SPDNet(CheckedModel, DomainModel):
    r"""BiMap and ReEig blocks, LogEig, and a classifier, by default linear.

    .. math:: Y_1 = W_1^\top X W_1, \quad Y_{k+1} = W_{k+1}^\top \max(\epsilon, Y_k) W_{k+1}, \quad
              \mathrm{logits} = A \, \mathrm{vec}(\log Y_K) + b

    with orthonormal columns in each :math:`W_k`, where :math:`\max` and :math:`\log` act on
    eigenvalues. Input is ``(..., d_0, d_0)``, output ``(..., n_classes)``.

    ``SPDNet((400, 200, 100, 50), 7)`` is the paper's SPDNet-3BiRe, ``(400, 50)`` is 1BiRe and
    ``(400,)`` is 0BiRe.

    Parameters
    ----------
    dims : sequence of int
        Size of the input matrices, then of the output of each BiMap, in non-increasing order.
    n_classes : int
    eps : float or str
        Threshold of the ReEigs between the BiMaps, a number or a percentage: see
        :class:`spdnet.nn.ReEig`. A network with fewer than two BiMaps has no ReEig.
    log : bool
        Whether to use LogEig; False is the paper's ablation.
    bias : bool
        Whether the linear classifier has a bias; that of the paper has none.
    center : str or Metric, optional
        Metric of a :class:`spdnet.nn.Center` before the network, the identity until it is fitted.
    norm : str or Metric, optional
        Batch normalization after each BiMap, for positive definite matrices. ``brooks`` normalizes
        the mean (Brooks et al.). A metric, ``log_euclidean``, ``affine_invariant`` or
        ``log_cholesky``, normalizes mean and dispersion (LieBN): see
        :class:`spdnet.nn.SPDBatchNorm`.
        ``domain`` has separate statistics for each domain (Kobler et al.): see
        :class:`spdnet.nn.SPDDomainBatchNorm`. :meth:`adapt` and :meth:`refit` compute those of new
        domains.
    n_domains : int
        Number of domains with ``norm="domain"``, which have the indices 0, 1, ...
    head : str or Metric
        ``linear`` is LogEig and a linear classifier. ``mlp`` is LogEig and a network with one
        hidden layer: batch normalization, linear layer, batch normalization, ReLU, dropout, linear
        layer with bias. A metric selects :class:`spdnet.nn.SPDMLR` instead of LogEig and
        classifier; ``log`` and ``vectorize`` are then ignored.
    hidden : int
        Size of the hidden layer of the head ``mlp``.
    dropout : float
        Probability that dropout sets an output of the hidden layer to zero, at least 0 and below 1.
    vectorize : {"full", "vech"}
        All ``d * d`` entries as in the paper, or the upper triangle with off-diagonal entries
        multiplied by the square root of 2. For complex matrices, real and imaginary parts.
    init : {"uniform", "authors"}
        Initialization of the BiMaps: see :class:`spdnet.nn.BiMap`. A linear classifier is
        initialized with ``0.01 * randn``.
    check : bool, optional
        True examines every batch: the input must be finite, symmetric and positive semi-definite.
        False examines none. None examines the first batch, and a later one only if its result is
        not finite or ReEig finds a negative eigenvalue. Also an argument of ``forward``.
    device, dtype : optional
        With a complex ``dtype``, the network takes Hermitian matrices: the BiMaps are complex, the
        features and the classifier real.

    Attributes
    ----------
    center : Center or None
    bimaps : ModuleList of BiMap
    reeigs : ModuleList of ReEig
        One fewer than BiMaps. Other layers may replace them. A layer whose ``lower_bound`` is a
        number is skipped if the eigenvalues are known not to be below it.
    norms : ModuleList of SPDBatchNorm or SPDDomainBatchNorm
        Empty without ``norm``.
    classifier : Linear, Sequential or SPDMLR
    n_features : int
        Number of inputs of the classifier.

    References
    ----------
    Z. Huang, L. Van Gool, "A Riemannian Network for SPD Matrix Learning", AAAI 2017.
    https://doi.org/10.1609/aaai.v31i1.10866

    Examples
    --------
    >>> import torch
    >>> from spdnet import SPDNet
    >>> model = SPDNet((6, 4, 2), 3)
    >>> model(torch.eye(6).expand(8, 6, 6)).shape
    torch.Size([8, 3])
    """

    supports_complex = True
    hyperparameters: tuple[str, ...] = (
        *("dims", "norm", "head", "hidden", "dropout", "log", "eps", "center", "bias"),
    )

    def __init__(
        self,
        dims: Sequence[int],
        n_classes: int,
        *,
        eps: float | str = 1e-4,
        log: bool = True,
        bias: bool = False,
        center: str | Metric | None = None,
        norm: str | Metric | None = None,
        n_domains: int = 1,
        head: str | Metric = "linear",
        hidden: int = 256,
        dropout: float = 0.5,
        vectorize: str = "full",
        init: str = "uniform",
        check: bool | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__("SPDNet", dims, n_classes, check, dtype)
        dims = self.dims
        require_threshold("SPDNet", eps)
        require_count("SPDNet", "n_classes", n_classes)
        require_choice("SPDNet", "vectorize", vectorize, ("full", "vech"))
        require_choice("SPDNet", "init", init, INITS)
        require_count("SPDNet", "hidden", hidden)
        require_number("SPDNet", "dropout", dropout, at_least=0, below=1)
        if head not in _VECTOR_HEADS:
            head = get_metric(head, "logits", who="SPDNet", name="head", extra=_VECTOR_HEADS)
        require_count("SPDNet", "n_domains", n_domains)
        self.uses_domains = norm == "domain"
        if n_domains > 1 and not self.uses_domains:
            raise ValueError(
                f"SPDNet: expected n_domains=1 unless norm='domain', got {n_domains} and norm="
                f"{norm!r}"
            )
        make_norm = None if norm is None else norm_layer("SPDNet", norm, n_domains)
        if make_norm is not None and len(dims) < 2:
            raise ValueError(
                f"SPDNet: expected at least one BiMap with norm={norm!r}, got dims {dims}"
            )
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        real: dict[str, Any] = {"device": device, "dtype": real_dtype(dtype)}
        d = dims[-1]
        self.center = None if center is None else Center(dims[0], center, **where)
        self.bimaps = nn.ModuleList(BiMap(i, o, init=init, **where) for i, o in pairwise(dims))
        self.norms: Any = nn.ModuleList()
        if make_norm is not None:
            self.norms.extend(make_norm(n, **where) for n in dims[1:])
        self.reeigs = nn.ModuleList(ReEig(eps, **where) for _ in self.bimaps[1:])
        self.classifier: nn.Linear | MLP | SPDMLR
        self.vectorize: nn.Module
        self.is_random = head == "mlp"
        if head in _VECTOR_HEADS:
            self.logeig = LogEig() if log else None
            self.vectorize = Entries() if vectorize == "full" else Vech()
            n_entries = d * d * (1 + self.is_complex)
            self.n_features = n_entries if vectorize == "full" else vech_size(d, self.is_complex)
        else:
            self.logeig, self.vectorize, self.n_features = None, nn.Identity(), d * d
        if head == "linear":
            self.classifier = nn.Linear(self.n_features, n_classes, bias=bias, **real)
        elif head == "mlp":
            self.classifier = MLP(self.n_features, hidden, n_classes, dropout=dropout, **real)
        else:
            self.classifier = SPDMLR(d, n_classes, head, **where)
        self._reset_classifier()

    choose_dims = staticmethod(choose_dims)

    def can_capture(self) -> bool:
        """Return whether a training step can be captured in a CUDA graph."""
        layers = (*self.reeigs, *self.norms)
        return all(getattr(layer, "can_capture", False) for layer in layers)

    def reset_parameters(self) -> None:
        """Draw new weights, and reset the center and the running statistics."""
        for layer in self.modules():
            reset = getattr(layer, "reset_parameters", None)
            if isinstance(layer, SPDLayer | MLP) and callable(reset):
                reset()
        self._reset_classifier()

    @torch.no_grad()
    def _reset_classifier(self) -> None:
        if isinstance(self.classifier, nn.Linear):
            self.classifier.weight.normal_(std=0.01)
            if self.classifier.bias is not None:
                self.classifier.bias.zero_()

    def _logits(self, X: Tensor, check: bool | None, domain: Tensor | None = None) -> Tensor:
        features = self._features(X, check, domain)
        if isinstance(self.classifier, SPDLayer):
            return self.classifier(features, check=bool(check))
        return self.classifier(features)  # (..., n_classes)

    def _features(self, X: Tensor, check: bool | None, domain: Tensor | None = None) -> Tensor:
        X = self._prepared(X, check)  # (..., d_0, d_0)
        given: tuple[Tensor, ...] = ()
        if self.uses_domains:
            known = check or (check is None and not X.is_cuda)
            given = (self.norms[0].expand_domain(X, domain, known),)  # (...)
        log: dict[str, bool] = {}  # for two layers that pass logarithms instead of matrices
        for i in range(len(self.bimaps)):
            X = self._block(i, X, check, **log)  # (..., d_{i+1}, d_{i+1})
            if self.norms:
                log = {"log": True} if self._passes_log(i) else {}
                X = self.norms[i](X, *given, check=bool(check) and i == 0, **log)
        if self.logeig is not None:
            X = self.logeig(X, check=bool(check), **log)  # (..., d, d), flat
        return self.vectorize(X)  # (..., d * d)

    def _prepared(self, X: Tensor, check: bool | None) -> Tensor:
        return self._centered(X, next(self.classifier.parameters()), check)

    def _passes_log(self, i: int) -> bool:
        """Return whether norm ``i`` returns logarithms, which saves the next layer a decomposition.

        It does not if there are hooks, which need the matrices.
        """
        pair: Any = self.norms[i], self.reeigs[i] if i < len(self.reeigs) else self.logeig
        if not (getattr(pair[0], "gives_log", False) and getattr(pair[1], "takes_log", False)):
            return False
        return not any(layer._forward_hooks or layer._forward_pre_hooks for layer in pair)

    def _block(self, i: int, X: Tensor, check: bool | None, **log: bool) -> Tensor:
        """Apply BiMap ``i``, after the ReEig that precedes it."""
        if i > 0:
            reeig, known, before = self.reeigs[i - 1], {}, X
            if i > 1 and self._stays_above(i - 1):
                known = {"above": True}
            elif isinstance(reeig, ReEig):
                known = {"strict": check is None, "copy": False}
            X = reeig(X, check=False, **known, **log)  # (..., d_i, d_i), >= eps
            is_checked = check or (check is None and not X.is_cuda)
            if i == 1 and X is not before and not log and is_checked:
                self._warn_of_scale(before)
        return self.bimaps[i](X, check=False)

    def _stages(self) -> list[Any]:
        norms = self.norms if self.uses_domains else ()
        return [(partial(self._block, i, check=False), norm) for i, norm in enumerate(norms)]

    def _warn_of_scale(self, X: Tensor) -> None:
        """Warn if the first ReEig replaces all eigenvalues of all matrices by its threshold."""
        eps: float | None = getattr(self.reeigs[0], "lower_bound", None)
        if eps is None or not is_concrete(X):
            return
        # the trace of a positive semi-definite matrix bounds its eigenvalues
        first = X.detach().reshape(-1, *X.shape[-2:])[:1]  # usually enough
        if X.numel() > 0 and bool(trace(first) < eps) and bool((trace(X) < eps).all()):
            warn_user(
                f"SPDNet: all eigenvalues of all {X.shape[:-2].numel()} matrices are below eps = "
                f"{eps}, so that ReEig makes them equal; scale the matrices (for example from "
                "volts to microvolts), center them (center='log_euclidean'), or set eps to a "
                "percentage",
            )

    def _stays_above(self, i: int) -> bool:
        """Return whether the eigenvalues after BiMap ``i`` cannot be below the ReEig's threshold.

        The ReEig before it has raised them, and orthonormal columns do not lower the smallest one.
        """
        before, after = (getattr(self.reeigs[j], "lower_bound", None) for j in (i - 1, i))
        if self.norms or before is None or after is None or after > before:
            return False
        weight = self.bimaps[i].weight
        return isinstance(weight, Tensor) and is_orthonormal(weight)
