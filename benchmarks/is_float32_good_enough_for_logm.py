"""Measure the error of the gradient of the matrix logarithm in float32.

    python benchmarks/is_float32_good_enough_for_logm.py

Half of the eigenvalues are 1e-3, and the others are between 1e-3 and ``top``. Each row gives the
relative error compared with float64 on the same rounded matrix, for a float32 eigenvalue solver and
for ``logm``, as the worst of ten matrices.
"""

import torch

from spdnet.linalg import Log, logm, symmetrize
from spdnet.linalg.eigh import eigh
from spdnet.linalg.spectral import map_decomposed


def gradient(X, G, solver):
    """Compute the gradient of logm for the output gradient G."""
    X = X.clone().requires_grad_()
    if solver == "float32":
        Y = map_decomposed(X, *eigh(X.detach(), accurate=False), Log())
    else:
        Y = logm(X)
    return torch.autograd.grad(Y, X, G.to(X.dtype))[0].double()


def main():
    """Print one row for each size and largest eigenvalue."""
    torch.manual_seed(0)
    for n in (20, 50):
        for top in (0.01, 1.0, 100.0):
            worst = {"float32": 0.0, "logm": 0.0}
            for _ in range(10):
                Q = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64)).Q
                rest = 1e-3 + (top - 1e-3) * torch.rand(n - n // 2, dtype=torch.float64)
                s = torch.cat([torch.full((n // 2,), 1e-3, dtype=torch.float64), rest])
                X, G = symmetrize((Q * s) @ Q.mT).float(), symmetrize(torch.randn(n, n))
                exact = gradient(X.double(), G, "logm")
                for solver in worst:
                    error = (gradient(X, G, solver) - exact).norm() / exact.norm()
                    worst[solver] = max(worst[solver], error.item())
            print(f"n {n:3}  top {top:6}  " + "  ".join(f"{k} {v:.1e}" for k, v in worst.items()))


if __name__ == "__main__":
    main()
