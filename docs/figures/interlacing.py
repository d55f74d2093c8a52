"""Interlacing of the eigenvalues of W^T X W and X for random orthonormal W."""

import sys
from pathlib import Path

import matplotlib
import torch
from matplotlib.ticker import MaxNLocator

from spdnet import plots
from spdnet.data import load_digits_spd
from spdnet.linalg import congruence
from spdnet.manifolds import stiefel

matplotlib.use("agg")
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "_made"
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)

X = torch.as_tensor(load_digits_spd()[0][0])  # (17, 17), one handwritten digit
n, k, draws = len(X), 8, 500
W = stiefel.random_point(draws, n, k, dtype=X.dtype)
s = torch.linalg.eigvalsh(X).flip(-1)  # descending
t = torch.linalg.eigvalsh(congruence(X, W)).flip(-1)  # (500, 8)
high, low = s[:k], s[n - k :]
outside = int(((t > high * (1 + 1e-12)) | (t < low * (1 - 1e-12))).sum())

with matplotlib.rc_context({**plots.STYLE, "font.size": 12, "svg.hashsalt": "spdnet"}):
    ax = plots.panels(size=(4.2, 3.7))[0]
    index = torch.arange(1, k + 1)
    ax.bar(index, high - low, bottom=low, width=0.62, color="#cbd5e1", label="allowed")
    x = index + 0.44 * (torch.rand(draws, 1) - 0.5)
    ax.plot(x, t, ".", ms=2, alpha=0.35, color=plots.TRAIN, rasterized=True)
    ax.plot([], [], "o", ms=5, color=plots.TRAIN, label=f"{draws} random W")
    ax.set_yscale("log")
    ax.set_ylim(0.6 * float(s.min()), 1.6 * float(s.max()))
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="index", ylabel="eigenvalue of $W^T X W$")
    ax.yaxis.label.set_parse_math(True)
    ax.legend(loc="lower left", framealpha=1)
    ax.figure.savefig(folder / "interlacing.svg", dpi=200, metadata={"Date": None})

text = (
    f"`X` is the {n} x {n} covariance matrix of a handwritten digit. For {draws} random `W`, the "
    f"{k} x {k} matrices have {t.numel()} eigenvalues in total; {outside} of them are outside "
    "their intervals.\n"
)
(folder / "interlacing.md").write_text(text)
print(text)
