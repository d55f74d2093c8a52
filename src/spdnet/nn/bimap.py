"""Bilinear mapping of SPD matrices (Eq. 1)."""

from typing import Any

import torch
from torch import Tensor

from spdnet._autograd import can_branch
from spdnet._checks import require_channels, require_choice, require_count, require_reducing
from spdnet._precision import working_dtype
from spdnet._warnings import warn_user
from spdnet.linalg import congruence
from spdnet.manifolds.stiefel import StiefelParameter, deviation, random_point
from spdnet.nn.layer import SPDLayer

INITS = ("uniform", "authors")
#: tolerance per square root of the number of columns: twice the rounding error of bfloat16
TOLERANCE = 2.0**-7
INTERVAL = 256


class BiMap(SPDLayer):
    r"""Bilinear mapping :math:`Y = W^\top X W` with orthonormal columns, :math:`W^\top W = I`.

    The paper writes :math:`W X W^\top`: its ``W`` is ``weight.mT``. A complex ``dtype`` gives
    complex weights with :math:`W^{\mathsf H} W = I`, for Hermitian matrices. The eigenvalues of the
    output lie between the extreme eigenvalues of the input. Autocast does not lower the precision.
    In training, the layer warns once if the weight has left the Stiefel manifold, for example after
    steps of ``torch.optim.Adam``.

    With channels, each output is a sum over the inputs,
    :math:`Y_o = \sum_i W_{oi}^\top X_i W_{oi}`. With ``in_channels=1`` these are the several
    bilinear mappings of one input that the paper proposes.

    Parameters
    ----------
    in_features, out_features : int
        Sizes ``n_in >= n_out`` of the matrices.
    in_channels, out_channels : int, optional
        Number of input and output matrices per sample; by default one, without a channel dimension.
    init : {"uniform", "authors"}
        Initialize uniformly on the Stiefel manifold, or, as in the code of the authors, with the
        leading left singular vectors of ``A A^T`` for a square ``A`` of uniform random numbers.
    check : bool
        Raise an error unless the input is finite, symmetric and, for layers that are defined on SPD
        matrices only, positive definite.
    device, dtype : optional
        Device and dtype of the parameters and buffers.

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
        channels = [count for count in (out_channels, in_channels) if count is not None]
        if len(channels) == 1:
            raise ValueError(
                "BiMap: expected in_channels and out_channels, or neither, got "
                f"in_channels={in_channels} and out_channels={out_channels}; use in_channels=1 for "
                "one input matrix per sample"
            )
        if in_channels is not None:
            require_count("BiMap", "in_channels", in_channels)
            require_count("BiMap", "out_channels", out_channels)
        self.in_features, self.out_features = in_features, out_features
        self.in_channels, self.out_channels, self.init = in_channels, out_channels, init
        self.weight = StiefelParameter(
            torch.empty(*channels, in_features, out_features, device=device, dtype=dtype)
        )
        self.reset_parameters()
        self._orthonormality = OrthonormalityCheck()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw a new random weight."""
        W = self.weight
        if self.init == "uniform":
            W.copy_(random_point(*W.shape, device=W.device, dtype=W.dtype))
        else:
            shape = (*W.shape[:-1], W.shape[-2])
            A = torch.rand(shape, device=W.device, dtype=working_dtype(W.dtype))
            W.copy_(torch.linalg.svd(A @ A.mH).U[..., : W.shape[-1]])

    def forward(self, X: Tensor, check: bool | None = None) -> Tensor:
        """Map ``(..., n_in, n_in)`` to ``(..., n_out, n_out)``, with channels third from last."""
        self._require_input(X, check, n=self.in_features, like=self.weight)
        if self.training and not torch.compiler.is_compiling():
            self._orthonormality(self, self.weight)
        if self.in_channels is None:
            return congruence(X, self.weight)
        require_channels("BiMap", X, self.in_channels)
        # (..., 1, C_in, n, n) with (C_out, C_in, n, k)
        return congruence(X[..., None, :, :, :], self.weight).sum(-3)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        text = f"in_features={self.in_features}, out_features={self.out_features}"
        if self.in_channels is not None:
            text += f", in_channels={self.in_channels}, out_channels={self.out_channels}"
        return text


class OrthonormalityCheck:
    """Warn once if the weight of a layer does not have orthonormal columns.

    Checks the calls 1, 2, 4, 8, ... and every 256th. On a GPU the result is read in a later call,
    after it has arrived, so that no call waits for the device. Nothing is checked under
    compilation, vmap and CUDA graph capture.
    """

    def __init__(self) -> None:
        self.n_calls = 0
        self.warned = False
        self._pending: tuple[Tensor, torch.cuda.Event] | None = None

    def __reduce__(self) -> Any:
        return OrthonormalityCheck, ()  # a fresh state, since CUDA events cannot be copied

    def __call__(self, layer: torch.nn.Module, W: Tensor) -> None:
        """Check the weight ``W (..., n, k)`` if a check is due."""
        self.n_calls = n = self.n_calls + 1
        if self.warned or (self._pending is None and n & (n - 1) and n % INTERVAL):
            return
        if not can_branch(W):
            return
        if self._pending is not None:
            found, event = self._pending
            if event.query():
                self._pending = None
                self._warn_if_large(layer, W, float(found))
        elif W.device.type == "cpu":
            self._warn_if_large(layer, W, float(deviation(W)))
        elif W.device.type == "cuda":
            found = deviation(W).to("cpu", non_blocking=True)  # to pinned memory
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(W.device))
            self._pending = found, event

    def _warn_if_large(self, layer: torch.nn.Module, W: Tensor, found: float) -> None:
        if found > TOLERANCE * W.shape[-1] ** 0.5:
            self.warned = True
            warn_user(
                f"{layer}: expected a weight W with orthonormal columns, got ||W^T W - I|| = "
                f"{found:.2g}, for example after steps of an optimizer that does not keep it on "
                "the Stiefel manifold; use spdnet.optim.RiemannianSGD or RiemannianAdam",
            )
