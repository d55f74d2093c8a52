"""Assertions for tests of layers and metrics, including custom ones."""

import copy
import io
import pickle

import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

from spdnet._precision import accurate_dtype
from spdnet.linalg import symmetrize
from spdnet.manifolds import Metric
from spdnet.manifolds.stiefel import StiefelParameter


def assert_symmetric(X: Tensor) -> None:
    """Assert that every matrix of ``(..., n, n)`` is finite and exactly symmetric."""
    if not X.isfinite().all():
        raise AssertionError("expected finite matrices, got NaN or infinity")
    if not torch.equal(X, X.mH):
        raise AssertionError(
            f"expected exactly symmetric matrices, got |X - X^H| up to {(X - X.mH).abs().max()}"
        )


def assert_spd(X: Tensor) -> None:
    """Assert that every matrix of ``(..., n, n)`` is exactly symmetric and positive definite.

    Examples
    --------
    >>> import torch
    >>> from spdnet.testing import assert_spd
    >>> assert_spd(torch.eye(3).expand(4, 3, 3))
    """
    assert_symmetric(X)
    if X.numel() > 0:
        lowest = torch.linalg.eigvalsh(X).min()
        if not lowest > 0:
            raise AssertionError(f"expected positive eigenvalues, got a smallest one of {lowest}")


def assert_on_stiefel(W: Tensor, *, tol: float | None = None) -> None:
    r"""Assert that the columns of every matrix ``(..., n, k)`` are orthonormal.

    :math:`\lVert W^\top W - I \rVert` is at most ``tol``, by default 1e-12 for float64 and 1e-5 for
    other dtypes.
    """
    tol = _default_tolerance(W.dtype) if tol is None else tol
    A = W.detach().to(accurate_dtype(W))
    error = (A.mH @ A - torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)).norm(dim=(-2, -1))
    if not (error <= tol).all():
        raise AssertionError(f"expected |W^T W - I| <= {tol:g}, got {error.max():g}")


def assert_tangent(W: Tensor, V: Tensor, *, tol: float = 1e-12) -> None:
    r"""Assert that ``V`` is tangent at ``W``: :math:`W^\top V` is skew-symmetric."""
    error = (W.mH @ V + V.mH @ W).detach().abs().max()
    if not error <= tol * max(1.0, V.detach().abs().max().item()):
        raise AssertionError(f"expected W^T V skew-symmetric, got a symmetric part of {error:g}")


def check_layer(
    layer: nn.Module, X: Tensor, *, spd: bool = True, second: bool = True, gradients: bool = True
) -> None:
    """Check a layer on SPD matrices; raise an AssertionError for the first property that fails.

    The output of SPD matrices is SPD; any leading shape works; the result for a matrix does not
    depend on its batch, to the last bit; first and second derivatives are correct in reverse and
    forward mode; vmap works; ``deepcopy``, pickling and a ``state_dict`` round trip preserve the
    layer; Stiefel parameters are on the manifold.

    Parameters
    ----------
    layer : Module
        In the mode to be tested; layers with running statistics in evaluation mode.
    X : Tensor, shape (B, n, n) or (B, C, n, n)
        In double precision, real or complex like the layer; at least one matrix, at which the layer
        is differentiable; with ``C`` matrices per sample if the layer expects them.
    spd : bool
        Check that the output is SPD.
    second, gradients : bool
        Whether to check second derivatives, and any derivatives.

    Examples
    --------
    >>> import torch
    >>> from spdnet.nn import BiMap
    >>> from spdnet.testing import check_layer
    >>> check_layer(BiMap(3, 2, dtype=torch.float64), torch.eye(3).double().repeat(2, 1, 1))
    """
    # before the conversion to float64
    tolerances = [_default_tolerance(p.dtype) for p in layer.parameters()]
    layer = copy.deepcopy(layer).double()  # complex parameters are unchanged
    with torch.no_grad():
        Y = layer(X)
        if spd:
            assert_spd(Y)
        _check_shapes(layer, X, Y)
        torch.testing.assert_close(torch.func.vmap(layer)(X), Y)
        _check_copies(layer, X, Y)
    _check_batch_independence(layer, X)
    if gradients:
        _check_gradients(layer, X, second)
    for parameter, tol in zip(layer.parameters(), tolerances, strict=True):
        if isinstance(parameter, StiefelParameter):
            assert_on_stiefel(parameter, tol=tol)


def check_manifold(manifold: Metric, X: Tensor, Y: Tensor, V: Tensor) -> None:
    """Check a metric of SPD matrices; raise an AssertionError for the first property that fails.

    Parameters
    ----------
    manifold : Metric
        With ``inner``, ``geodesic``, ``exp`` and ``log``; ``transport`` is checked if available.
    X, Y, V : Tensor, shape (B, n, n)
        Points, and tangent vectors at ``X``, in float64.

    Examples
    --------
    >>> import torch
    >>> from spdnet.manifolds import log_euclidean
    >>> from spdnet.testing import check_manifold
    >>> X = torch.diag(torch.tensor([1.0, 2.0], dtype=torch.float64)).repeat(2, 1, 1)
    >>> check_manifold(log_euclidean, X, 3 * X, 0.1 * X)
    """
    close = torch.testing.assert_close
    d, tangent = manifold.distance(X, Y), manifold.log(X, Y)
    assert_spd(manifold.exp(X, V))
    close(manifold.exp(X, tangent), Y)
    close(manifold.log(X, manifold.exp(X, V)), V)
    close(manifold.inner(X, tangent, tangent).sqrt(), d)
    close(manifold.distance(Y, X), d)
    close(manifold.distance(X, X), torch.zeros_like(d), atol=1e-6, rtol=0)
    close(manifold.squared_distance(X, Y), d.square())
    close(manifold.pairwise(X, Y), manifold.squared_distance(X[:, None], Y))
    for t in (0.0, 0.3, 1.0):
        point = manifold.geodesic(X, Y, t)
        assert_spd(point)
        close(point, manifold.exp(X, t * tangent))
        close(manifold.distance(X, point), t * d, atol=1e-6, rtol=1e-6)
    if manifold.has("transport"):
        moved = manifold.transport(X, Y, V)
        close(manifold.inner(Y, moved, moved), manifold.inner(X, V, V))
        close(manifold.transport(X, Y, tangent), -manifold.log(Y, X))
    M = manifold.mean(torch.cat([X, Y]))
    gradient = manifold.log(M.expand_as(X), X).sum(0) + manifold.log(M.expand_as(Y), Y).sum(0)
    close(gradient, torch.zeros_like(gradient), atol=1e-7, rtol=0)
    close(manifold.mean(X[:1]), X[0])


def _default_tolerance(dtype: torch.dtype) -> float:
    return 1e-12 if dtype in (torch.float64, torch.complex128) else 1e-5


def _check_shapes(layer: nn.Module, X: Tensor, Y: Tensor) -> None:
    sample, tail = X.shape[1:], Y.shape[1:]
    torch.testing.assert_close(layer(X[0]), Y[0])
    torch.testing.assert_close(layer(X[:, None]), Y[:, None])
    for batch in ((0,), (2, 0)):
        out = layer(X.new_empty(*batch, *sample))
        if out.shape != (*batch, *tail):
            raise AssertionError(f"expected {(*batch, *tail)} for an empty batch, got {out.shape}")


def _check_batch_independence(layer: nn.Module, X: Tensor) -> None:
    """Check that output and gradient of a matrix do not depend on its batch, to the last bit."""
    outlier = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device) * 1e3
    out, grad = _output_and_gradient(layer, X)
    for i in range(len(X)):
        batch = outlier.expand(X.shape).clone()
        batch[i] = X[i]
        other_out, other_grad = _output_and_gradient(layer, batch)
        if not (torch.equal(out[i], other_out[i]) and torch.equal(grad[i], other_grad[i])):
            raise AssertionError(f"the result for matrix {i} depends on the others of its batch")


def _output_and_gradient(layer: nn.Module, X: Tensor) -> tuple[Tensor, Tensor]:
    X = X.clone().requires_grad_()
    out = layer(X)
    weight = torch.linspace(0, 1, out[0].numel(), dtype=out.dtype, device=out.device)
    loss = (out * weight.view(out.shape[1:])).real.sum()
    return out.detach(), torch.autograd.grad(loss, X)[0]


def _check_gradients(layer: nn.Module, X: Tensor, second: bool) -> None:
    names, values = zip(*layer.named_parameters()) if list(layer.parameters()) else ((), ())

    def function(X: Tensor, *parameters: Tensor) -> Tensor:
        # only the symmetric part, so that differences in one entry keep the input valid
        return torch.func.functional_call(layer, dict(zip(names, parameters)), (symmetrize(X),))

    inputs = [x.detach().clone().requires_grad_() for x in (X, *values)]
    try:
        gradcheck(function, inputs, check_forward_ad=True, fast_mode=True)
    except GradcheckError as error:
        raise AssertionError("the first derivative is wrong") from error
    try:
        if second:
            gradgradcheck(function, inputs, check_fwd_over_rev=True, fast_mode=True)
    except GradcheckError as error:
        raise AssertionError("the second derivative is wrong") from error


def _check_copies(layer: nn.Module, X: Tensor, Y: Tensor) -> None:
    loaded = copy.deepcopy(layer)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    copies = {"deepcopy": copy.deepcopy(layer), "pickle": pickle.loads(pickle.dumps(layer))}
    for name, restored in {**copies, "state_dict": loaded}.items():
        if not torch.equal(restored(X), Y):
            raise AssertionError(f"the output changed after {name}")
        for p, q in zip(layer.parameters(), restored.parameters(), strict=True):
            if type(p) is not type(q):
                raise AssertionError(f"{type(p).__name__} became {type(q).__name__} by {name}")
