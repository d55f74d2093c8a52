"""Layers on eigenvalues: ReEig (Eq. 2), LogEig (Eq. 4), ExpEig and smooth activations."""

import torch
from torch import Tensor

from spdnet._checks import require_choice, require_number
from spdnet.linalg.scalar import Clamp, Exp, Log, ScalarFunction, Sigmoid, Softplus
from spdnet.linalg.spectral import decompose, map_decomposed, spectral_map
from spdnet.nn.layer import SPDLayer


class ReEig(SPDLayer):
    r"""Rectify eigenvalues, :math:`Y = U \max(\epsilon I, S) U^\top`.

    Parameters
    ----------
    eps : float or str
        The threshold; or a percentage such as ``"10%"``: the threshold below which that share of
        the eigenvalues seen in training lies. An absolute threshold often clips nothing, because
        covariance matrices come at any scale.
    momentum : float
        Weight of the latest batch in the running threshold, for a percentage only. A batch is
        rectified with the threshold of the batches before it (the first one with its own), so that
        a matrix does not depend on its batch-mates; in evaluation the threshold stays as it is.
    check : bool
        Refuse input that is not finite and symmetric.

    Attributes
    ----------
    threshold : Tensor, shape ()
        For a percentage only: the running threshold, a buffer; 0 until the first training batch.

    Examples
    --------
    >>> import torch
    >>> ReEig(eps=0.5)(torch.diag(torch.tensor([2.0, 0.1]))).diagonal().round(decimals=4)
    tensor([2.0000, 0.5000])
    >>> layer = ReEig(eps="50%")
    >>> layer(torch.diag(torch.tensor([4.0, 3.0, 2.0, 1.0]))).diagonal()
    tensor([4., 3., 2., 2.])
    >>> layer.threshold
    tensor(2.)
    """

    threshold: Tensor
    num_batches_tracked: Tensor

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
        require_number("ReEig", "momentum", momentum, above=0)
        self.eps = eps
        self.momentum = momentum
        self.quantile = _quantile(eps)
        if self.quantile is not None:
            self.register_buffer("threshold", torch.zeros((), device=device, dtype=dtype))
            self.register_buffer(
                "num_batches_tracked", torch.zeros((), device=device, dtype=torch.long)
            )

    def reset_parameters(self) -> None:
        """Forget the eigenvalues seen so far."""
        if self.quantile is not None:
            self.threshold.zero_()
            self.num_batches_tracked.zero_()

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """``(..., n, n)`` to ``(..., n, n)``."""
        check = self._checks(check)
        if not isinstance(self.eps, str):
            return spectral_map(X, Clamp(self.eps), check=check, who="ReEig")
        s, U = decompose(X, Clamp(0.0), check=check, who="ReEig")
        threshold = self.threshold
        if self.training and s.numel() > 0:
            threshold = self._track(s)
        return map_decomposed(X, s, U, Clamp(threshold))

    @torch.no_grad()
    def _track(self, s: Tensor) -> Tensor:
        """Note the eigenvalues of a batch; the threshold to rectify this batch with."""
        assert self.quantile is not None
        rank = max(1, round(self.quantile * s.numel()))
        seen = s.flatten().kthvalue(rank).values.to(self.threshold.dtype)
        current = torch.where(self.num_batches_tracked == 0, seen, self.threshold)
        self.threshold.copy_(torch.lerp(current, seen, self.momentum))
        self.num_batches_tracked.add_(1)
        return current

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return f"eps={self.eps!r}"


class LogEig(SPDLayer):
    r"""Matrix logarithm :math:`Y = U \log(S) U^\top`: from SPD matrices to a flat space.

    Parameters
    ----------
    check : bool
        Refuse input that is not finite, symmetric and positive definite.

    Examples
    --------
    >>> import torch
    >>> LogEig()(torch.eye(2)).diagonal().round(decimals=4)
    tensor([0., 0.])
    """

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """``(..., n, n)`` to ``(..., n, n)``."""
        return spectral_map(X, Log(), check=self._checks(check), who="LogEig")


class ExpEig(SPDLayer):
    r"""Matrix exponential :math:`Y = U \exp(S) U^\top`: from symmetric to SPD matrices.

    Parameters
    ----------
    check : bool
        Refuse input that is not finite and symmetric.

    Examples
    --------
    >>> import torch
    >>> ExpEig()(torch.zeros(2, 2)).diagonal().round(decimals=4)
    tensor([1., 1.])
    """

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """``(..., n, n)`` to ``(..., n, n)``."""
        return spectral_map(X, Exp(), check=self._checks(check), who="ExpEig")


class SpectralActivation(SPDLayer):
    r"""Smooth siblings of ReEig: an increasing positive function of the eigenvalues.

    ============  ===========================================================================
    ``softplus``  :math:`\epsilon + \log(1 + e^{\beta (s - \epsilon)}) / \beta`: ReEig with a
                  round corner :math:`1 / \beta` wide, ``beta = 1 / eps`` when not given
    ``sigmoid``   :math:`1 / (1 + e^{-\beta s})`: saturates large eigenvalues, ``beta = 1``
                  when not given; ``eps`` plays no part
    ============  ===========================================================================

    Parameters
    ----------
    kind : {"softplus", "sigmoid"}
    eps : float
        Threshold of the softplus.
    beta : float, optional
        Sharpness.
    check : bool
        Refuse input that is not finite and symmetric.

    Examples
    --------
    >>> import torch
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
        """``(..., n, n)`` to ``(..., n, n)``."""
        check = self._checks(check)
        return spectral_map(X, self.function, check=check, who="SpectralActivation")

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        eps = f"eps={self.eps}, " if self.kind == "softplus" else ""
        return f"{self.kind!r}, {eps}beta={self.beta}"


def _quantile(eps: float | str) -> float | None:
    """The share of a percentage such as ``"10%"``; None for a number."""
    if not isinstance(eps, str):
        require_number("ReEig", "eps", eps, above=0)
        return None
    number = eps.strip().removesuffix("%")
    try:
        share = float(number) / 100
    except ValueError:
        share = -1.0
    if number == eps.strip() or not 0 < share < 1:
        raise ValueError(
            "ReEig: expected eps to be a number > 0, or a percentage between 0% and 100% such as "
            f"'10%', got {eps!r}"
        )
    return share
