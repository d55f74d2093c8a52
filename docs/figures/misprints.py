"""Comparison of Eq. 15 as printed and as corrected with finite differences."""

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from spdnet import plots
from spdnet.linalg import Clamp, Log, ScalarFunction, spectral_map, symmetrize

matplotlib.use("agg")
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "_made"
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)

N, COUNT, EPS = 6, 300, 1.0
LAYERS: dict[str, tuple[ScalarFunction, Callable[[Tensor], Tensor]]] = {
    "LogEig": (Log(), torch.reciprocal),
    "ReEig": (Clamp(EPS), lambda s: (s > EPS).double()),
}
FORMS = ("as printed", "without the factor 2", "with sym moved", "corrected (both changes)")

A = torch.randn(COUNT, N, 4 * N)
X = A @ A.mT / (4 * N) + 0.3 * torch.eye(N)
E, G = symmetrize(torch.randn(COUNT, N, N)), torch.randn(COUNT, N, N)  # directions, gradients
s, U = torch.linalg.eigh(X)
P = 1 / (s[:, :, None] - s[:, None, :]).masked_fill(torch.eye(N, dtype=bool), torch.inf)


def slopes(f: ScalarFunction, df: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Compute the slope of <G, f(X)> along E by each form of Eq. 15."""
    dU = 2 * symmetrize(G) @ U * f.value(s)[:, None, :]
    dS = (df(s)[:, :, None] * (U.mT @ symmetrize(G) @ U)).diagonal(dim1=-2, dim2=-1)
    first = {
        "as printed": 2 * P.mT * symmetrize(U.mT @ dU),
        "without the factor 2": P.mT * symmetrize(U.mT @ dU),
        "with sym moved": 2 * symmetrize(P.mT * (U.mT @ dU)),
        "corrected (both changes)": symmetrize(P.mT * (U.mT @ dU)),
    }
    E_ = U.mT @ E @ U
    return {
        form: ((term + torch.diag_embed(dS)) * E_).sum((-2, -1)) for form, term in first.items()
    }


def truth(f: ScalarFunction, h: float = 1e-4) -> Tensor:
    """Compute the slope by fourth-order finite differences."""

    def loss(t: float) -> Tensor:
        return (G * spectral_map(X + t * E, f)).sum((-2, -1))

    return (8 * (loss(h) - loss(-h)) - loss(2 * h) + loss(-2 * h)) / (12 * h)


rows = [
    f"Median relative error of the slope for {COUNT} random matrices of size {N} x {N}:\n",
    "| form of Eq. 15 | " + " | ".join(LAYERS) + " |",
    "|---|" + "---|" * len(LAYERS),
]
found = {name: (slopes(f, df), truth(f)) for name, (f, df) in LAYERS.items()}
for form in FORMS:
    errors = [((got[form] - true).abs() / true.abs()).median() for got, true in found.values()]
    rows.append(f"| {form} | " + " | ".join(f"{error:.1g}" for error in errors) + " |")
text = "\n".join(rows) + "\n"
(folder / "misprints.md").write_text(text)
print(text)

with matplotlib.rc_context({**plots.STYLE, "font.size": 12, "svg.hashsalt": "spdnet"}):
    ax = plots.panels(size=(4.2, 4.0))[0]
    got, true = found["LogEig"]
    ax.plot(true, got["as printed"], ".", color=plots.VAL, ms=5, alpha=0.6, label="as printed")
    ax.plot(true, got["corrected (both changes)"], ".", color=plots.TRAIN, ms=5, label="corrected")
    ax.set(xlabel="slope by finite differences", ylabel="slope by Eq. 15", aspect="equal")
    ax.set_title("LogEig", fontsize=12)
    ax.legend(loc="upper left")
    ax.figure.savefig(folder / "misprints.svg", metadata={"Date": None})
