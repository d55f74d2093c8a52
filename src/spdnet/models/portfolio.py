"""PortfolioNet: several small networks on spectral features, averaged."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from spdnet._checks import require_choice, require_count, require_same_dtype, require_square
from spdnet._precision import accurate_dtype, real_dtype
from spdnet.linalg import cholesky
from spdnet.linalg.scalar import Log
from spdnet.linalg.spectral import decompose
from spdnet.manifolds import Metric
from spdnet.models.check import BatchCheck
from spdnet.models.members import FEATURES, MEMBERS, Member
from spdnet.models.mlp import BatchNorm
from spdnet.models.model import Model, average, input_dtype
from spdnet.nn import Center, GaussianFeatures, SpectralFeatures
from spdnet.nn.distributed import gather_rows
from spdnet.nn.features import MOST, MOST_CENTERS


class PortfolioNet(Model):
    r"""Average of small networks on spectral features of the centered matrices.

    Each member takes the :class:`spdnet.nn.SpectralFeatures` of one or several maps, and is a
    linear classifier, a kernel classifier (:class:`spdnet.nn.GaussianFeatures`) or a network with a
    hidden layer and dropout. The probabilities of the members are averaged.

    Center and features have no trainable parameters. They form the *stem*, which training computes
    once for all epochs, so that the steps need no decompositions.

    Parameters
    ----------
    n : int
        Size of the matrices.
    n_classes : int
    members : sequence of str
        Names of ``spdnet.models.MEMBERS``; ``"auto"`` is all of them.
    ensemble : int
        Smallest number of networks. All members are repeated, with different initial weights, until
        there are as many.
    n_samples : int, optional
        Number of training matrices: see :class:`spdnet.nn.SpectralFeatures`.
    center : str or Metric, optional
        Metric of the :class:`spdnet.nn.Center` in front.
    check, device, dtype : see :class:`spdnet.SPDNet`

    Attributes
    ----------
    center : Center or None
    maps : ModuleDict of SpectralFeatures
    kernels : ModuleList of GaussianFeatures
    heads : ModuleList
        The trainable parts of the members.
    n_features : int
        Number of outputs of the stem.

    Examples
    --------
    >>> import torch
    >>> from spdnet.models import PortfolioNet
    >>> model = PortfolioNet(6, 3, members=("log", "all")).eval()
    >>> model(torch.eye(6).expand(8, 6, 6)).shape
    torch.Size([8, 3])
    """

    supports_complex = True
    hyperparameters: tuple[str, ...] = ("members", "ensemble", "n_samples", "center")

    def __init__(
        self,
        n: int,
        n_classes: int,
        *,
        members: Sequence[str] | None = ("log",),
        ensemble: int = 1,
        n_samples: int | None = None,
        center: str | Metric | None = "log_euclidean",
        check: bool | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_count("PortfolioNet", "n_classes", n_classes)
        require_count("PortfolioNet", "ensemble", ensemble)
        members = tuple(MEMBERS) if members == "auto" else members or ("log",)
        if isinstance(members, str):
            raise ValueError(f"PortfolioNet: expected names of members, got {members!r}")
        for name in members:
            require_choice("PortfolioNet", "members", name, MEMBERS)
        where: dict[str, Any] = {"device": device, "dtype": dtype}
        real: dict[str, Any] = {"device": device, "dtype": real_dtype(dtype)}
        self.is_complex = dtype is not None and dtype.is_complex
        self.n, self.n_classes, self.members = n, n_classes, tuple(members)
        self.check, self._checked = check, BatchCheck("PortfolioNet")
        self.center = None if center is None else Center(n, center, **where)
        chosen = [MEMBERS[name] for name in members] * math.ceil(ensemble / len(members))
        self.maps: Any = nn.ModuleDict()
        self.n_features = 0
        columns: dict[tuple[str, float | None], slice] = {}
        for name, (spectral_map, kept) in FEATURES.items():
            if any(name in member.maps for member in chosen):
                n_reduced = math.ceil(kept * n) if kept < 1 else None
                features = SpectralFeatures(
                    n, spectral_map, n_samples, n_reduced=n_reduced, **where
                )
                self.maps[name] = features
                start, self.n_features = self.n_features, self.n_features + features.n_features
                columns[name, None] = slice(start, self.n_features)
        n_centers = min(n_samples or MOST_CENTERS, MOST_CENTERS)
        self.kernels: Any = nn.ModuleList()
        self._kernel_maps: list[str] = []
        for member in chosen:
            if member.gamma is not None and (member.maps[0], member.gamma) not in columns:
                width: Any = self.maps[member.maps[0]].n_features
                self.kernels.append(GaussianFeatures(width, n_centers, member.gamma, **real))
                self._kernel_maps.append(member.maps[0])
                start, self.n_features = self.n_features, self.n_features + n_centers
                columns[member.maps[0], member.gamma] = slice(start, self.n_features)
        self.heads: Any = nn.ModuleList(
            _Head(member, [columns[name, member.gamma] for name in member.maps], n_classes, **real)
            for member in chosen
        )

    def fit_buffers(self, X: Any, y: Tensor | None = None, weight: Tensor | None = None) -> None:
        """Fit the center and the features to the training data, or to 4096 of them."""
        super().fit_buffers(X, y, weight)
        index = torch.linspace(0, len(X) - 1, min(len(X), MOST)).long().unique().to(X.device)
        some, classes = X[index], None if y is None else y.to(X.device)[index]
        if self.center is not None:
            some = self.center(some, check=False)
        decomposed = self._decomposed(some.to(accurate_dtype(some)))
        for features in self.maps.values():
            features.fit(some, classes, decomposed=decomposed)
        for name, kernel in zip(self._kernel_maps, self.kernels, strict=True):
            kernel.fit(self.maps[name](some, check=False, decomposed=decomposed))

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the parameters with the learning rates and penalties of their members."""
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for head in self.heads:
            for p in head.parameters():
                is_weight = p is head.linear.weight
                penalty = head.member.penalty * p.shape[1] if is_weight else 0.0
                groups.setdefault((head.member.lr, penalty), []).append(p)
        # a parameter without a penalty has the weight decay of the recipe
        return [
            {"params": params, "lr_factor": lr, **({"weight_decay": l2} if l2 else {})}
            for (lr, l2), params in groups.items()
        ]

    @property
    def smoothing(self) -> tuple[float, ...]:  # type: ignore[override]
        """Label smoothing of each member, relative to that of the recipe."""
        return tuple(head.member.smoothing for head in self.heads)

    def can_capture(self) -> bool:
        """Return True: a training step can be captured in a CUDA graph."""
        return True

    def stem(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Compute the features ``(B, n_features)`` of matrices ``(B, n, n)``."""
        return self._checked(self._stem, X, self.check if check is None else check)

    def _stem(self, X: Tensor, check: bool | None) -> Tensor:
        dtype = input_dtype(self)
        require_square("PortfolioNet", X, n=self.n)
        require_same_dtype("PortfolioNet", X, dtype)
        if check:
            cholesky(X.detach(), who="PortfolioNet")
        X = X.to(dtype)  # half types are lifted
        if self.center is not None:
            X = self.center(X, check=False)
        decomposed = self._decomposed(X)
        parts = {
            name: features(X, check=False, decomposed=decomposed)
            for name, features in self.maps.items()
        }
        kernels = [k(parts[name]) for name, k in zip(self._kernel_maps, self.kernels, strict=True)]
        return torch.cat([*parts.values(), *kernels], -1)

    features = stem

    def _decomposed(self, X: Tensor) -> tuple[Tensor, Tensor] | None:
        """Decompose the matrices if several maps of the same matrices can share the result."""
        if sum(features.reduction is None for features in self.maps.values()) < 2:
            return None
        return decompose(X, Log(), check=False, who="PortfolioNet")

    def outputs(self, X: Tensor, check: bool | None = None, *, stem: bool = True) -> Tensor:
        """Compute the logits of each member, ``(B, n_classes, n_members)``."""
        features = self.stem(X, check=check) if stem else X  # (B, n_features)
        if not self.training:
            return torch.stack([head(features) for head in self.heads], -1)
        features, own = gather_rows(features)  # dropout is that of the batch of all processes
        return torch.stack([head(features) for head in self.heads], -1)[own]

    def forward(self, X: Tensor, check: bool | None = None, *, stem: bool = True) -> Tensor:
        """Compute the logits, the logarithms of the average probabilities ``(B, n_classes)``.

        In training mode, return the logits of each member: see :meth:`outputs`. With
        ``stem=False``, the input is that of :meth:`stem`.
        """
        outputs = self.outputs(X, check, stem=stem)
        return outputs if self.training else average(outputs)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.n}, {self.n_classes}, members={self.members}"


class _Head(nn.Module):
    """Trainable part of a member, on some columns of the features."""

    def __init__(self, member: Member, columns: list[slice], n_classes: int, **where: Any) -> None:
        super().__init__()
        self.member, self.columns = member, columns
        n, hidden = sum(c.stop - c.start for c in columns), member.hidden
        self.dropout = nn.Dropout(member.dropout)
        has_bias = member.gamma is None  # a kernel classifier is undecided far from all centers
        self.linear = nn.Linear(n, hidden or n_classes, bias=has_bias, **where)
        nn.init.normal_(self.linear.weight, std=n**-0.5 if hidden else 0.0)
        if has_bias:
            nn.init.zeros_(self.linear.bias)
        self.rest: nn.Module = nn.Identity()
        if hidden:
            last = nn.Linear(hidden, n_classes, **where)
            nn.init.normal_(last.weight, std=0.01)
            nn.init.zeros_(last.bias)
            norm = [BatchNorm(hidden, **where)] if member.norm else []
            self.rest = nn.Sequential(*norm, nn.ReLU(), nn.Dropout(0.5), last)

    def forward(self, features: Tensor) -> Tensor:
        parts = [features[..., columns] for columns in self.columns]
        return self.rest(self.linear(self.dropout(torch.cat(parts, -1))))
