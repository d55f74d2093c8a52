"""Effect of BiMap, ReEig and LogEig on 2 x 2 matrices in the SPD cone."""

import math
import sys
from pathlib import Path

import matplotlib
import torch

from spdnet import plots
from spdnet.linalg import expm
from spdnet.nn import BiMap, LogEig, ReEig

matplotlib.use("agg")
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "_made"
folder.mkdir(parents=True, exist_ok=True)
STYLE = {**plots.STYLE, "font.size": 12, "svg.hashsalt": "spdnet"}
torch.manual_seed(3)
ANGLE, EPS = 40, 0.8


def rotation(degrees: float) -> torch.Tensor:
    """Return the matrix of a rotation of the plane."""
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def save(axes: object, name: str) -> None:
    """Save the figure of the axes."""
    axes.figure.savefig(folder / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})


# two classes: covariance matrices of points that vary along one of two directions
X = []
for degrees in (0.0, 60.0):
    spread = torch.tensor([1.3, 0.4], dtype=torch.float64)
    points = torch.randn(10, 40, 2, dtype=torch.float64) * spread
    size = torch.linspace(0.5, 2.2, 10, dtype=torch.float64)[:, None, None]
    X.append(size * (rotation(degrees) @ (points.mT @ points / 40) @ rotation(degrees).mT))
X = torch.cat(X)
y = ["class 1"] * 10 + ["class 2"] * 10

bimap = BiMap(2, 2, dtype=torch.float64)
with torch.no_grad():
    bimap.weight.copy_(rotation(ANGLE))
    after = {"bimap": bimap(X), "reeig": ReEig(eps=EPS)(X)}

with matplotlib.rc_context(STYLE):
    titles = {"bimap": f"rotation by {ANGLE} degrees", "reeig": f"eps = {EPS}"}
    for name, Y in after.items():
        ax = plots.panels(size=(4.6, 3.8), projection="3d")[0]
        plots.cone(torch.stack([X, Y]), y, ax=ax)
        ax.set_box_aspect((1, 1, 0.8), zoom=1.0)
        ax.legend(loc="upper left", bbox_to_anchor=(-0.05, 1.0), handletextpad=0.2)
        ax.set_title(f"{titles[name]} (ring: before, dot: after)", fontsize=12)
        save(ax, f"cone_{name}")

    # circles of determinant 1 around the identity; their logarithms are evenly spaced
    angle = torch.linspace(0, 2 * math.pi, 97, dtype=torch.float64)
    radii = torch.tensor([0.5, 1.0, 1.5, 2.0], dtype=torch.float64)
    u, v = radii * angle.cos()[:, None], radii * angle.sin()[:, None]
    circles = expm(torch.stack([torch.stack([u, v], -1), torch.stack([v, -u], -1)], -2))
    logs = LogEig()(circles)  # (97, 4, 2, 2)
    names = [f"{math.sqrt(2) * r:.1f}" for r in radii.tolist()]  # Frobenius norm of the logarithm
    figure = plots.panels(size=(4.6, 7.4))[0].figure
    figure.clf()
    grid = figure.add_gridspec(2, 1, height_ratios=(1.15, 1))
    top = figure.add_subplot(grid[0], projection="3d")
    bottom = figure.add_subplot(grid[1])
    plots.cone(circles, names, ax=top)
    top.set_box_aspect((1, 1, 0.8), zoom=1.0)
    top.get_legend().remove()
    for i, name in enumerate(names):
        bottom.plot(logs[:, i, 0, 0], logs[:, i, 0, 1], color=plots.COLORS[i])
        bottom.text(0, radii[i] - 0.06, name, ha="center", va="top", color=plots.COLORS[i])
    for line in top.lines[-len(names) :]:
        line.set(lw=1.6, alpha=1.0)
    bottom.plot(0, 0, "o", color=plots.INK, ms=4)
    top.set_title("SPD matrices of determinant 1")
    bottom.set_title("their logarithms, evenly spaced")
    bottom.set(aspect="equal", xlabel="(a - c) / 2", ylabel="b")
    save(top, "cone_logeig")
