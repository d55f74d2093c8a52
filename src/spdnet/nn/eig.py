"""Functions of matrices as layers: ReEig (Eq. 2), LogEig (Eq. 4), ExpEig, activations, Vech."""

from typing import Any

import torch
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet._checks import require_choice, require_number, require_threshold
from spdnet._precision import real_dtype
from spdnet.linalg import vech
from spdnet.linalg.rectify import clamp_exp, rectify
from spdnet.linalg.scalar import Clamp, Exp, Log, ScalarFunction, Sigmoid, Softplus
from spdnet.linalg.spectral import decompose, map_decomposed, spectral_map
from spdnet.linalg.validate import require_semidefinite_eigenvalues
from spdnet.nn.distributed import gather_rows, is_distributed
from spdnet.nn.layer import SPDLayer


class ReEig(SPDLayer):
    r"""Rectification of eigenvalues, :math:`Y = U \max(\epsilon I, S) U^\top`.

    Parameters
    ----------
    eps : float or str
        Threshold, or a percentage such as ``"10%"``: that fraction of the eigenvalues seen in
        training is below the threshold. Covariance matrices may have any scale, so an absolute
        threshold often clips nothing.
    momentum : float
        For a percentage: weight of the latest batch in the running threshold. Every batch except
        the first is rectified with the threshold of the previous batches, so that a matrix does not
        depend on the others in its batch. Every forward pass in training updates the threshold, so
        activation checkpointing cannot be used with a percentage.
    check, device, dtype : see :class:`BiMap`
        ``check`` also raises an error for evaluation with a percentage before any training.

    Attributes
    ----------
    threshold : Tensor, shape ()
        Running threshold, a buffer, for a percentage only.
    can_capture : bool
        Whether a CUDA graph can contain the layer.
    violated : Tensor of bool or None
        Set while a CUDA graph is captured.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import ReEig
    >>> ReEig(eps=0.5)(torch.diag(torch.tensor([2.0, 0.1]))).diagonal()
    tensor([2.0000, 0.5000])
    >>> layer = ReEig(eps="50%")
    >>> layer(torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0]))).diagonal()
    tensor([4., 3., 2., 2.])
    >>> layer.threshold
    tensor(2.)
    """

    threshold: Tensor
    num_batches_tracked: Tensor
    violated: Tensor | None = None
    can_capture = True
    takes_log = True

    def __init__(
        self,
        eps: float | str = 1e-4,
        *,
        momentum: float = 0.1,
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_number("ReEig", "momentum", momentum, above=0, at_most=1)
        self.eps, self.momentum = eps, momentum
        self.share = require_threshold("ReEig", eps)  # None for an absolute threshold
        if self.share is not None:
            self.register_buffer(
                "threshold", torch.zeros((), device=device, dtype=real_dtype(dtype))
            )
            count = torch.zeros((), device=device, dtype=torch.long)
            self.register_buffer("num_batches_tracked", count)

    @property
    def lower_bound(self) -> float | None:
        """Lower bound of the eigenvalues of the output, or None for a percentage."""
        return float(self.eps) if self.share is None else None

    def reset_parameters(self) -> None:
        """Reset the running threshold."""
        if self.share is not None:
            self.threshold.zero_()
            self.num_batches_tracked.zero_()

    def forward(
        self,
        X: Tensor,
        check: bool | None = None,
        *,
        above: bool = False,
        strict: bool = False,
        copy: bool = True,
        log: bool = False,
    ) -> Tensor:
        """Rectify ``(..., n, n)``.

        With ``above``, no eigenvalue is below a fixed threshold. ``strict`` raises a ValueError if
        the decomposition finds an eigenvalue that is negative beyond rounding. Without ``copy``,
        the result may be ``X`` itself. With ``log``, ``X`` is the logarithm of the matrices.
        """
        check = self._checks(check)
        if self.share is None:
            if above and not log:
                return X
            eps = float(self.eps)
            settings: Any = {"violated": self.violated, "strict": strict, "copy": copy, "log": log}
            return rectify(X, eps, check=check, who="ReEig", **settings)
        found = decompose(X, Exp() if log else Clamp(0.0), check=check, who="ReEig")
        s = found[0].exp() if log else found[0]
        if strict and not s.is_cuda:  # the check would synchronize with a GPU
            require_semidefinite_eigenvalues("ReEig", s)
        if self.training and (s.numel() > 0 or is_distributed()):
            seen = gather_rows(s.detach().reshape(-1, s.shape[-1]))[0]
            return _clamp_decomposed(X, *found, self._track(seen, self.share), log)
        count = self.num_batches_tracked
        if check and s.numel() > 0 and is_concrete(count) and count == 0:
            raise RuntimeError(
                f"ReEig: expected a training batch before evaluation with eps={self.eps!r}, got "
                "none, so there is no threshold yet; call it in training mode, or load a state_dict"
            )
        return _clamp_decomposed(X, *found, self.threshold.clone(), log)

    @torch.no_grad()
    def _track(self, s: Tensor, share: float) -> Tensor:
        """Update the running threshold; return the threshold for this batch."""
        rank = max(1, round(share * s.numel()))
        rounding = 4 * s.shape[-1] * torch.finfo(s.dtype).eps * s.abs().max()  # if X is singular
        seen = torch.maximum(s.flatten().kthvalue(rank).values, rounding).to(self.threshold.dtype)
        current = torch.where(self.num_batches_tracked == 0, seen, self.threshold)
        # a compiled step loses copy_ for a float64 scalar on a CPU
        self.threshold[...] = torch.where(
            seen.isfinite(), torch.lerp(current, seen, self.momentum), self.threshold
        )
        self.num_batches_tracked.add_(1)
        return current

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"eps={self.eps!r}" + ("" if self.share is None else f", momentum={self.momentum}")


def _clamp_decomposed(X: Tensor, s: Tensor, U: Tensor, eps: Tensor, log: bool) -> Tensor:
    return clamp_exp(X, s, U, eps) if log else map_decomposed(X, s, U, Clamp(eps))


class LogEig(SPDLayer):
    r"""Matrix logarithm :math:`Y = U \log(S) U^\top`: from SPD matrices to a flat space.

    Parameters
    ----------
    check : see :class:`BiMap`

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import LogEig
    >>> LogEig()(torch.eye(2)).diagonal().round(decimals=4)
    tensor([0., 0.])
    """

    takes_log = True

    def forward(self, X: Tensor, check: bool | None = None, *, log: bool = False) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n, n)``; with ``log``, ``X`` is already the logarithm."""
        if log:
            return X
        return spectral_map(X, Log(), check=self._checks(check), who="LogEig")


class ExpEig(SPDLayer):
    r"""Matrix exponential :math:`Y = U \exp(S) U^\top`: from symmetric to SPD matrices.

    Parameters
    ----------
    check : see :class:`BiMap`

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import ExpEig
    >>> ExpEig()(torch.zeros(2, 2)).diagonal().round(decimals=4)
    tensor([1., 1.])
    """

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n, n)``."""
        return spectral_map(X, Exp(), check=self._checks(check), who="ExpEig")


class SpectralActivation(SPDLayer):
    r"""Smooth alternatives to ReEig: increasing positive functions of the eigenvalues.

    ============  ===========================================================================
    ``softplus``  :math:`\epsilon + \log(1 + e^{\beta (s - \epsilon)}) / \beta`: ReEig with a
                  rounded corner of width :math:`1 / \beta`
    ``sigmoid``   :math:`1 / (1 + e^{-\beta s})`: saturates large eigenvalues
    ============  ===========================================================================

    Parameters
    ----------
    kind : {"softplus", "sigmoid"}
    eps : float
        Threshold of ``softplus``.
    beta : float, optional
        Sharpness; by default ``1 / eps`` for ``softplus`` and 1 for ``sigmoid``.
    check : see :class:`BiMap`

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import SpectralActivation
    >>> SpectralActivation("softplus", eps=0.1)(torch.diag(torch.tensor([3.0, 0.1]))).diagonal()
    tensor([3.0000, 0.1693])
    """

    def __init__(
        self,
        kind: str = "softplus",
        *,
        eps: float = 1e-4,
        beta: float | None = None,
        check: bool = True,
    ) -> None:
        super().__init__(check=check)
        require_choice("SpectralActivation", "kind", kind, ("softplus", "sigmoid"))
        require_number("SpectralActivation", "eps", eps, above=0)
        if beta is None:
            beta = 1 / eps if kind == "softplus" else 1.0
        require_number("SpectralActivation", "beta", beta, above=0)
        self.kind, self.eps, self.beta = kind, eps, beta

    @property
    def function(self) -> ScalarFunction:
        """The scalar function applied to each eigenvalue."""
        if self.kind == "softplus":
            return Softplus(self.eps, self.beta)
        return Sigmoid(self.beta)

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n, n)``."""
        check = self._checks(check)
        return spectral_map(X, self.function, check=check, who="SpectralActivation")

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        eps = f"eps={self.eps}, " if self.kind == "softplus" else ""
        return f"{self.kind!r}, {eps}beta={self.beta}"


class Vech(torch.nn.Module):
    r"""Upper triangle as a vector, with off-diagonal entries times :math:`\sqrt 2`.

    Maps ``(..., n, n)`` to ``(..., n * (n + 1) / 2)`` and preserves inner products: see
    :func:`spdnet.linalg.vech`.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import Vech
    >>> Vech()(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1.0000, 2.8284, 3.0000])
    """

    def forward(self, X: Tensor) -> Tensor:
        """Map ``(..., n, n)`` to ``(..., n * (n + 1) / 2)``, complex ones to ``(..., n * n)``."""
        return vech(X)


class Entries(torch.nn.Module):
    """All entries as a vector; for a complex matrix, the real and imaginary part of each row.

    Maps ``(..., n, n)`` to ``(..., n * n)``, or to ``(..., 2 * n * n)`` if complex.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn.eig import Entries
    >>> Entries()(torch.tensor([[1.0, 2.0], [2.0, 3.0]]))
    tensor([1., 2., 2., 3.])
    """

    def forward(self, X: Tensor) -> Tensor:
        """Map matrices to real vectors."""
        return (torch.cat([X.real, X.imag], -1) if X.is_complex() else X).flatten(-2)
