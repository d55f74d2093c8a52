"""Euclidean, log-Euclidean and affine-invariant paths between two ellipses of equal area."""

import math
import sys
from pathlib import Path

import matplotlib
import torch
from torch import Tensor

from spdnet import plots
from spdnet.linalg import sqrtm
from spdnet.manifolds import affine_invariant, log_euclidean

matplotlib.use("agg")
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "_made"
folder.mkdir(parents=True, exist_ok=True)

c, s = math.cos(math.pi / 3), math.sin(math.pi / 3)
turn = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
A = torch.diag(torch.tensor([4.0, 0.25], dtype=torch.float64))
B = turn @ A @ turn.mT


def straight(t: float) -> Tensor:
    """Return the point at t on the Euclidean path."""
    return (1 - t) * A + t * B


PATHS = {
    "Euclidean": (straight, plots.VAL, "-"),
    "log-Euclidean": (lambda t: log_euclidean.geodesic(A, B, t), plots.TRAIN, "-"),
    "affine-invariant": (lambda t: affine_invariant.geodesic(A, B, t), plots.BASELINE, (0, (4, 3))),
}

style = {**plots.STYLE, "font.size": 12, "svg.hashsalt": "spdnet"}
with matplotlib.rc_context(style):
    top, bottom = plots.panels(2, 1, size=(4.2, 5.8))
    angle = torch.linspace(0, 2 * math.pi, 121, dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()])
    for row, (name, (path, color, line)) in enumerate(PATHS.items()):
        for column, t in enumerate((0.0, 0.25, 0.5, 0.75, 1.0)):
            x, y = sqrtm(path(t)) @ circle  # the points with x^T X^-1 x = 1
            top.fill(5 * column + x, y - 5.4 * row, color=color, alpha=0.25, lw=0)
            top.plot(5 * column + x, y - 5.4 * row, color=color, lw=1.4)
        top.text(10, 2.3 - 5.4 * row, name, ha="center", color=color, fontweight="bold")
        ts = torch.linspace(0, 1, 41).tolist()
        bottom.plot(ts, [path(t).det() for t in ts], color=color, ls=line, lw=2)
    top.set(aspect="equal", xticks=[], yticks=[])
    top.grid(False)
    for side in top.spines.values():
        side.set_visible(False)
    bottom.set(xlabel="t, from A to B", ylabel="determinant", ylim=(0, None))
    bottom.text(0.5, 3.05, "Euclidean", ha="center", color=plots.VAL)
    bottom.text(0.5, 1.12, "log-Euclidean,", ha="center", color=plots.TRAIN)
    bottom.text(0.5, 0.84, "affine-invariant", ha="center", va="top", color=plots.BASELINE)
    bottom.figure.get_layout_engine().set(hspace=0.06)
    bottom.figure.savefig(folder / "swelling.svg", metadata={"Date": None})

rows = ["Determinant along each path:\n"]
rows += ["| t | " + " | ".join(PATHS) + " |", "|---|" + "---|" * len(PATHS)]
for t in (0.0, 0.25, 0.5, 0.75, 1.0):
    values = " | ".join(f"{path(t).det():.3f}" for path, _, _ in PATHS.values())
    rows.append(f"| {t:g} | {values} |")
text = "\n".join(rows) + "\n"
(folder / "swelling.md").write_text(text)
print(text)
