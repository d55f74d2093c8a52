"""BiMap: the bilinear mapping of SPD matrices (Eq. 1)."""

import torch
from torch import Tensor

from spdnet._checks import (
    require_channels,
    require_choice,
    require_count,
    require_reducing,
    require_same_dtype,
    require_square,
)
from spdnet._precision import working_dtype
from spdnet.linalg import congruence
from spdnet.linalg.validate import require_symmetric
from spdnet.manifolds.stiefel import StiefelParameter, random_point
from spdnet.nn.layer import SPDLayer
from spdnet.nn.orthonormality import OrthonormalityCheck

INITS = ("uniform", "authors")


class BiMap(SPDLayer):
    r"""Bilinear mapping :math:`Y = W^\top X W` with orthonormal columns, :math:`W^\top W = I`.

    The paper writes :math:`W X W^\top`: its ``W`` is our ``weight.mT``. Positive definite input
    gives positive definite output, with all eigenvalues between the extreme ones of the input. The
    product is not lowered by autocast. In training, the layer warns once when it finds that the
    weight has left the manifold, as after steps of ``torch.optim.Adam``.

    With channels, every output is the sum over its own maps of all inputs,
    :math:`Y_o = \sum_i W_{oi}^\top X_i W_{oi}`; for ``in_channels=1`` the several bilinear mappings
    of one input that the paper proposes.

    Parameters
    ----------
    in_features, out_features : int
        Sizes ``n_in >= n_out`` of the matrices.
    in_channels, out_channels : int, optional
        Matrices in and out for each sample. Neither: one, without a dimension of its own.
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
    weight : StiefelParameter, shape (n_in, n_out), or (out_channels, in_channels, n_in, n_out)

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import BiMap
    >>> BiMap(5, 3)(torch.eye(5).expand(8, 5, 5)).shape
    torch.Size([8, 3, 3])
    >>> BiMap(5, 3, in_channels=1, out_channels=4)(torch.eye(5).expand(8, 1, 5, 5)).shape
    torch.Size([8, 4, 3, 3])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        in_channels: int | None = None,
        out_channels: int | None = None,
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
        channels = _channels(in_channels, out_channels)
        self.in_features = in_features
        self.out_features = out_features
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.init = init
        self.weight = StiefelParameter(
            torch.empty(*channels, in_features, out_features, device=device, dtype=dtype)
        )
        self.reset_parameters()
        self._orthonormality = OrthonormalityCheck()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw new random points of the Stiefel manifold."""
        W = self.weight
        if self.init == "uniform":
            W.copy_(random_point(*W.shape, device=W.device, dtype=W.dtype))
        else:
            dtype = working_dtype(W.dtype)
            shape = (*W.shape[:-1], W.shape[-2])
            A = torch.rand(shape, device=W.device, dtype=dtype)
            W.copy_(torch.linalg.svd(A @ A.mT).U[..., : W.shape[-1]])

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """``(..., n_in, n_in)`` to ``(..., n_out, n_out)``; with channels before the matrices."""
        require_square("BiMap", X, n=self.in_features)
        require_same_dtype("BiMap", X, self.weight)
        if self._checks(check):
            require_symmetric("BiMap", X)
        if self.training and not torch.compiler.is_compiling():
            self._orthonormality(self, self.weight)
        if self.in_channels is None:
            return congruence(X, self.weight)
        require_channels("BiMap", X, self.in_channels)
        # (..., 1, C_in, n, n) with (C_out, C_in, n, k)
        return congruence(X[..., None, :, :, :], self.weight).sum(-3)

    def extra_repr(self) -> str:
        """Settings for ``repr``."""
        text = f"in_features={self.in_features}, out_features={self.out_features}"
        if self.in_channels is not None:
            text += f", in_channels={self.in_channels}, out_channels={self.out_channels}"
        return text


def _channels(in_channels: int | None, out_channels: int | None) -> tuple[int, ...]:
    """Leading shape of the weight."""
    if in_channels is None and out_channels is None:
        return ()
    if in_channels is None or out_channels is None:
        raise ValueError(
            "BiMap: expected in_channels and out_channels, or neither, got "
            f"in_channels={in_channels} and out_channels={out_channels}; one input matrix for each "
            "sample is in_channels=1"
        )
    require_count("BiMap", "in_channels", in_channels)
    require_count("BiMap", "out_channels", out_channels)
    return out_channels, in_channels
