"""BiMap: the bilinear mapping of SPD matrices (Eq. 1)."""

import torch
from torch import Tensor

from spdnet._checks import (
    require_choice,
    require_count,
    require_reducing,
    require_same_dtype,
    require_square,
    require_symmetric,
)
from spdnet._precision import working_dtype
from spdnet.linalg import congruence
from spdnet.manifolds.stiefel import StiefelParameter, random_point
from spdnet.nn.layer import SPDLayer

INITS = ("uniform", "authors")


class BiMap(SPDLayer):
    r"""Bilinear mapping :math:`Y = W^\top X W` with orthonormal columns, :math:`W^\top W = I`.

    The paper writes :math:`W X W^\top`: its ``W`` is our ``weight.mT``. Positive definite input
    gives positive definite output, with all eigenvalues between the extreme ones of the input. The
    product is not lowered by autocast.

    Parameters
    ----------
    in_features, out_features : int
        Sizes ``n_in >= n_out`` of the matrices.
    init : {"uniform", "authors"}
        Start uniformly distributed on the Stiefel manifold, or as the authors' released code: from
        the leading left singular vectors of ``A A^T`` for a square ``A`` of uniform numbers. Both
        draw from the global generator of torch.
    check : bool
        Refuse input that is not finite and symmetric.
    device, dtype : optional
        Of the weight.

    Attributes
    ----------
    weight : StiefelParameter, shape (n_in, n_out)

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import BiMap
    >>> BiMap(5, 3)(torch.eye(5).expand(8, 5, 5)).shape
    torch.Size([8, 3, 3])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        init: str = "uniform",
        check: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(check=check)
        require_count("BiMap", "in_features", in_features)
        require_count("BiMap", "out_features", out_features)
        require_reducing("BiMap", in_features, out_features, "(in_features -> out_features)")
        require_choice("BiMap", "init", init, INITS)
        self.in_features = in_features
        self.out_features = out_features
        self.init = init
        self.weight = StiefelParameter(
            torch.empty(in_features, out_features, device=device, dtype=dtype)
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw a new random point of the Stiefel manifold."""
        W = self.weight
        if self.init == "uniform":
            W.copy_(random_point(*W.shape, device=W.device, dtype=W.dtype))
        else:
            dtype = working_dtype(W.dtype)
            A = torch.rand(W.shape[0], W.shape[0], device=W.device, dtype=dtype)
            W.copy_(torch.linalg.svd(A @ A.mT).U[:, : W.shape[1]])

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """``(..., n_in, n_in)`` to ``(..., n_out, n_out)``."""
        require_square("BiMap", X, n=self.in_features)
        require_same_dtype("BiMap", X, self.weight)
        if self._checks(check):
            require_symmetric("BiMap", X)
        return congruence(X, self.weight)

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        return f"in_features={self.in_features}, out_features={self.out_features}"
