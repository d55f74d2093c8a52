"""Checks of the input of a network that are free as long as the input is valid."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]

from spdnet._autograd import can_branch
from spdnet._checks import require_same_dtype, require_shrinking, require_square, require_tensor
from spdnet._precision import complex_dtype
from spdnet.linalg.validate import require_positive_semidefinite
from spdnet.models.model import Model, require_complex_support
from spdnet.nn import Center


class BatchCheck:
    """Run a network with the checks that ``check`` requests.

    True examines every batch, False none. None examines the first batch. A later one is examined
    only if the decompositions find a negative eigenvalue or the result is not finite. On a GPU the
    result is read in a later call, after it has arrived, so that no call waits for the device.
    Nothing is checked under compilation, vmap and CUDA graph capture. Errors name ``who``.
    """

    def __init__(self, who: str) -> None:
        self.who = who
        self._has_passed = False
        self._pending: tuple[Tensor, torch.cuda.Event] | None = None

    def __reduce__(self) -> Any:
        return BatchCheck, (self.who,)  # a copy starts with a fresh state

    def __call__(
        self, compute: Callable[[Tensor, bool | None], Tensor], X: Tensor, check: bool | None
    ) -> Tensor:
        """Call ``compute(X, check)``; None only checks eigenvalues that are computed anyway."""
        require_tensor(self.who, X)
        if check is None and not can_branch(X):
            check = False
        if check is not None:
            return compute(X, check)
        if self._has_passed:
            self._read_pending()
            try:
                Y = compute(X, None)
                if self._is_finite(Y):
                    return Y
            except (ValueError, LinAlgError):  # the examination below finds the matrix
                pass
        Y = compute(X, True)
        self._has_passed = True
        return Y

    def _is_finite(self, Y: Tensor) -> bool:
        """Return whether the result is finite; on a GPU, True, and start to copy the answer."""
        finite = Y.detach().isfinite().all()
        if Y.device.type != "cuda":
            return bool(finite)
        if self._pending is None:
            event = torch.cuda.Event()
            self._pending = finite.to("cpu", non_blocking=True), event  # to pinned memory
            event.record(torch.cuda.current_stream(Y.device))
        return True

    def _read_pending(self) -> None:
        if self._pending is not None and self._pending[1].query():
            finite, self._pending = bool(self._pending[0]), None
            if not finite:
                raise ValueError(
                    f"{self.who}: expected finite results, got NaN or infinity for an earlier "
                    "batch; call the network with check=True to find the matrix"
                )


class CheckedModel(Model):
    """Base class of networks with BiMaps, which define ``_logits`` and ``_features``.

    Both take the matrices and ``check``; None only checks eigenvalues that are computed anyway. If
    the network uses domains, both also take ``domain``, by default None.
    """

    is_random = False
    center: Center | None
    _logits: Callable[[Tensor, bool | None], Tensor]
    _features: Callable[[Tensor, bool | None], Tensor]

    def __init__(
        self,
        who: str,
        dims: Sequence[int],
        n_classes: int,
        check: bool | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__()
        require_complex_support(self, dtype)
        self.is_complex = dtype is not None and dtype.is_complex
        self.dims = require_shrinking(who, dims)
        self.n_classes = n_classes
        self.check, self._checked = check, BatchCheck(who)

    def forward(self, X: Tensor, domain: Tensor | None = None, check: bool | None = None) -> Tensor:
        """Compute the logits ``(..., n_classes)`` of matrices ``(..., d_0, d_0)``.

        With batch normalization by domain, ``domain (B,)`` are indices of domains. It is optional
        for a single domain.
        """
        return self._run(self._logits, X, domain, check)

    def features(
        self, X: Tensor, domain: Tensor | None = None, check: bool | None = None
    ) -> Tensor:
        """Compute the input of the classifier.

        A vector ``(..., d * d)`` or ``(..., d * (d + 1) / 2)``, or a matrix ``(..., d, d)`` for a
        Riemannian classifier.
        """
        return self._run(self._features, X, domain, check)

    def _run(
        self, compute: Callable[..., Tensor], X: Tensor, domain: Tensor | None, check: bool | None
    ) -> Tensor:
        if domain is not None:
            if not self.uses_domains:
                raise ValueError(
                    f"{self._checked.who}: expected no domain, since the network does not use "
                    f"domains, got {type(domain).__name__}; leave it out, or construct an SPDNet "
                    "with norm='domain'"
                )
            compute = partial(compute, domain=domain)
        return self._checked(compute, X, self.check if check is None else check)

    def _centered(self, X: Tensor, weight: Tensor, check: bool | None) -> Tensor:
        """Validate matrices, lift half types to the dtype of the weights, and center them."""
        who = self._checked.who
        require_square(who, X, n=self.dims[0])
        dtype = complex_dtype(weight.dtype) if self.is_complex else weight.dtype
        require_same_dtype(who, X, dtype)
        if check:
            require_positive_semidefinite(who, X)
        X = X.to(dtype)
        return X if self.center is None else self.center(X, check=False)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"dims={self.dims}, n_classes={self.n_classes}"
