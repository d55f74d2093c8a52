"""SPDNet, the network of the paper."""

import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from spdnet._autograd import is_concrete
from spdnet._checks import (
    require_choice,
    require_count,
    require_same_dtype,
    require_shrinking,
    require_square,
    require_threshold,
)
from spdnet.linalg.validate import require_positive_semidefinite
from spdnet.manifolds import Metric, MetricNames, get_metric
from spdnet.manifolds.stiefel import is_orthonormal
from spdnet.nn import SPDMLR, BiMap, Center, LogEig, ReEig, SPDBatchNorm, Vech
from spdnet.nn.bimap import INITS

#: batch normalisations after each BiMap, by name
NORMS = MetricNames("normalization", "brooks")
#: classifiers by name
HEADS = MetricNames("logits", "linear")


def norm_settings(who: str, norm: str | Metric) -> dict[str, Any]:
    """Return the settings of the :class:`spdnet.nn.SPDBatchNorm` that ``norm`` stands for."""
    if norm == "brooks":
        return {"metric": "affine_invariant", "variance": False, "karcher_steps": 1}
    metric = get_metric(norm, "normalization", who=who, name="norm", extra=("brooks",))
    if metric.name == "affine_invariant":
        return {"metric": metric, "root": "cholesky", "karcher_steps": 1}  # as LieBN
    return {"metric": metric}


class SPDNet(nn.Module):
    r"""BiMap and ReEig blocks, LogEig, and a linear classifier.

    .. math:: Y_1 = W_1^\top X W_1, \quad Y_{k+1} = W_{k+1}^\top \max(\epsilon, Y_k) W_{k+1}, \quad
              \mathrm{logits} = A \, \mathrm{vec}(\log Y_K) + b

    with orthonormal columns in each :math:`W_k`, where :math:`\max` and :math:`\log` act on
    eigenvalues. Input is ``(..., d_0, d_0)``, output ``(..., n_classes)``.

    ``SPDNet((400, 200, 100, 50), 7)`` is the paper's SPDNet-3BiRe: three BiMaps with ReEigs between
    them. ``(400, 50)`` is 1BiRe, ``(400,)`` is 0BiRe.

    Parameters
    ----------
    dims : sequence of int
        Size of the input matrices, then of the output of each BiMap; they never grow.
    n_classes : int
        Number of outputs.
    eps : float or str
        Threshold of the ReEigs, a number or a percentage: see :class:`spdnet.nn.ReEig`. They stand
        between BiMaps: with fewer than two there is none.
    log : bool
        False leaves LogEig out, the paper's ablation.
    bias : bool
        Whether the classifier has a bias; the paper's has none.
    center : str or Metric, optional
        Put a :class:`spdnet.nn.Center` with the mean of this metric in front; it does nothing until
        ``model.center.fit(X)``.
    norm : {"brooks", "log_euclidean", "affine_invariant", "log_cholesky"} or Metric, optional
        Batch normalisation after each BiMap, of the mean (Brooks et al.) or of mean and dispersion
        in a metric (LieBN): see :class:`spdnet.nn.SPDBatchNorm`. Singular matrices do not go with
        it.
    head : str or Metric
        ``linear``: LogEig and a linear classifier. Or a metric of :class:`spdnet.nn.SPDMLR`, which
        takes the place of both; ``log``, ``bias`` and ``vectorize`` play no part then.
    vectorize : {"full", "vech"}
        All ``d * d`` entries as in the paper, or the upper triangle with off-diagonal entries
        times the square root of 2.
    init : {"uniform", "authors"}
        Of the BiMaps: see :class:`spdnet.nn.BiMap`. The classifier starts from ``0.01 * randn``.
    check : bool
        Refuse input that is not finite, not symmetric or not positive semi-definite; also an
        argument of each call: ``model(X, check=False)`` in a training step whose data have been
        checked once.
    device, dtype : optional
        Of weights and buffers.

    Attributes
    ----------
    center : Center or None
    bimaps : ModuleList of BiMap
    reeigs : ModuleList of ReEig
        One fewer.
    norms : ModuleList of SPDBatchNorm
        Empty without ``norm``.
    classifier : Linear or SPDMLR

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
        head: str | Metric = "linear",
        vectorize: str = "full",
        init: str = "uniform",
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        dims = require_shrinking("SPDNet", dims)
        require_threshold("SPDNet", eps)
        require_count("SPDNet", "n_classes", n_classes)
        require_choice("SPDNet", "vectorize", vectorize, ("full", "vech"))
        require_choice("SPDNet", "init", init, INITS)
        if head != "linear":
            head = get_metric(head, "logits", who="SPDNet", name="head", extra=("linear",))
        settings = None if norm is None else norm_settings("SPDNet", norm)
        if norm is not None and len(dims) < 2:
            raise ValueError(
                f"SPDNet: expected a BiMap for norm={norm!r} to follow, got dims {dims}"
            )
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        d = dims[-1]
        self.dims = dims
        self.n_classes = n_classes
        self.check = check
        self.center = None if center is None else Center(dims[0], center, **where)
        self.bimaps = nn.ModuleList(BiMap(i, o, init=init, **where) for i, o in pairwise(dims))
        self.norms = (
            nn.ModuleList()
            if settings is None
            else nn.ModuleList(SPDBatchNorm(n, **settings, **where) for n in dims[1:])
        )
        self.reeigs = nn.ModuleList(ReEig(eps, **where) for _ in self.bimaps[1:])
        self.classifier: nn.Linear | SPDMLR
        self.vectorize: nn.Module
        if head == "linear":
            self.logeig = LogEig() if log else None
            self.vectorize = nn.Flatten(-2) if vectorize == "full" else Vech()
            n_features = d * d if vectorize == "full" else d * (d + 1) // 2
            self.classifier = nn.Linear(n_features, n_classes, bias=bias, **where)
        else:
            self.logeig, self.vectorize = None, nn.Identity()
            self.classifier = SPDMLR(d, n_classes, head, **where)
        self._reset_classifier()

    def reset_parameters(self) -> None:
        """Draw new weights, and forget the centre and the eigenvalues that ReEigs have seen."""
        for layer in self.modules():
            if isinstance(layer, (BiMap, Center, ReEig, SPDBatchNorm)):
                layer.reset_parameters()
        self._reset_classifier()

    @torch.no_grad()
    def _reset_classifier(self) -> None:
        if isinstance(self.classifier, SPDMLR):
            self.classifier.reset_parameters()
            return
        self.classifier.weight.normal_(std=0.01)
        if self.classifier.bias is not None:
            self.classifier.bias.zero_()

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Logits ``(..., n_classes)`` of matrices ``(..., d_0, d_0)``."""
        features = self.features(X, check=check)
        if isinstance(self.classifier, SPDMLR):
            return self.classifier(features, check=self.check if check is None else check)
        return self.classifier(features)

    def features(self, X: Tensor, check: bool | None = None) -> Tensor:
        """What the classifier sees: ``(..., d * d)``, ``(..., d * (d + 1) / 2)`` or a matrix."""
        check = self.check if check is None else check
        require_square("SPDNet", X, n=self.dims[0])  # (..., d_0, d_0)
        weight = next(self.classifier.parameters())
        require_same_dtype("SPDNet", X, weight)
        if check:
            require_positive_semidefinite("SPDNet", X)
        X = X.to(weight.dtype)  # half types are lifted
        if self.center is not None:
            X = self.center(X, check=False)  # (..., d_0, d_0), mean at the identity
        for i, bimap in enumerate(self.bimaps):
            if i > 0:
                if check and i == 1:
                    self._warn_of_scale(X)
                known = {"above": True} if i > 1 and self._stays_above(i - 1) else {}
                X = self.reeigs[i - 1](X, check=False, **known)  # (..., d_i, d_i), >= eps
            X = bimap(X, check=False)  # (..., d_{i+1}, d_{i+1})
            if self.norms:
                X = self.norms[i](X, check=check and i == 0)
        if self.logeig is not None:
            X = self.logeig(X, check=check)  # (..., d, d), flat
        return self.vectorize(X)  # (..., d * d)

    def _warn_of_scale(self, X: Tensor) -> None:
        """Say so if the first ReEig replaces all eigenvalues of all matrices by its threshold."""
        reeig = self.reeigs[0]
        if not isinstance(reeig, ReEig) or reeig.share is not None or not is_concrete(X):
            return
        # no eigenvalue of a semi-definite matrix is above its trace
        if X.numel() > 0 and bool((X.diagonal(dim1=-2, dim2=-1).sum(-1) < float(reeig.eps)).all()):
            warnings.warn(
                f"SPDNet: all eigenvalues of all {X.shape[:-2].numel()} matrices are below eps = "
                f"{reeig.eps}, and ReEig makes them equal; scale the matrices (as from volts to "
                "microvolts), centre them (center='log_euclidean'), or give eps as a percentage",
                RuntimeWarning,
                stacklevel=3,
            )

    def _stays_above(self, i: int) -> bool:
        """Whether the i-th BiMap cannot bring eigenvalues below the threshold of its ReEig again.

        They are above that of the ReEig before, and orthonormal columns do not lower the least one.
        """
        if self.norms:
            return False
        before, after = self.reeigs[i - 1], self.reeigs[i]
        if not (isinstance(before, ReEig) and isinstance(after, ReEig)):
            return False  # of the user's own
        fixed = before.share is None and after.share is None
        if not fixed or float(after.eps) > float(before.eps):
            return False
        weight = self.bimaps[i].weight
        return isinstance(weight, Tensor) and is_orthonormal(weight)

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return f"dims={self.dims}, n_classes={self.n_classes}"
