"""Fraction of eigenvalues that each ReEig raises, in networks trained on the digits."""

import sys
from pathlib import Path

import matplotlib
import torch
from torch.nn.functional import cross_entropy

from spdnet import SPDNet, plots
from spdnet.data import load_digits_spd
from spdnet.optim import RiemannianAdam

matplotlib.use("agg")
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "_made"
folder.mkdir(parents=True, exist_ok=True)
torch.set_num_threads(1)  # small matrices

DIMS, STEPS = (17, 15, 13, 11, 9), 60
X, y = (torch.as_tensor(part[:600]) for part in load_digits_spd())


def trained(eps: float | str) -> SPDNet:
    """Train a network for a few steps and return it in evaluation mode."""
    torch.manual_seed(0)
    model = SPDNet(DIMS, 10, eps=eps, dtype=torch.float64)
    optimizer = RiemannianAdam(model.parameters(), lr=0.02)
    for _ in range(STEPS):
        batch = torch.randint(len(X), (60,))
        optimizer.zero_grad()
        cross_entropy(model(X[batch], check=False), y[batch]).backward()
        optimizer.step()
    return model.eval()


@torch.no_grad()
def clipped(model: SPDNet) -> list[float]:
    """Return the fraction of input eigenvalues below the threshold of each ReEig."""
    shares = []
    Y = X
    for bimap, reeig in zip(model.bimaps, model.reeigs, strict=False):
        Y = bimap(Y)
        eps = float(reeig.eps) if reeig.share is None else float(reeig.threshold)
        s = torch.linalg.eigvalsh(Y)
        shares.append(float((s < eps * (1 - 1e-9)).double().mean()))  # ignore rounding errors
        Y = reeig(Y)
    return shares


shares = {eps: clipped(trained(eps)) for eps in (1e-4, 0.02, "20%")}
names = {1e-4: "0.0001", 0.02: "0.02", "20%": '"20%"'}

with matplotlib.rc_context({**plots.STYLE, "font.size": 12, "svg.hashsalt": "spdnet"}):
    ax = plots.panels(size=(4.2, 3.6))[0]
    layers = torch.arange(1, len(DIMS) - 1)
    for i, (eps, values) in enumerate(shares.items()):
        x = layers + 0.27 * (i - 1)
        bars = ax.bar(x, [100 * v for v in values], 0.25, color=plots.COLORS[i], label=names[eps])
        ax.bar_label(bars, fmt="%.0f", fontsize=10, padding=2)
    ax.set_xticks(layers, [f"ReEig {i}" for i in layers.tolist()])
    ax.set(ylabel="eigenvalues raised, %")
    ax.grid(axis="x", visible=False)
    ax.legend(title="eps", loc="upper right")
    ax.margins(y=0.12)
    ax.figure.savefig(folder / "clipped.svg", metadata={"Date": None})

rows = [
    f"Eigenvalues raised by each ReEig, for SPDNets with sizes {', '.join(map(str, DIMS))} after "
    f"{STEPS} training steps on {len(X)} covariance matrices of handwritten digits:\n"
]
rows += ["| `eps` | " + " | ".join(f"ReEig {i}" for i in layers.tolist()) + " |"]
rows.append("|---|" + "---|" * len(layers))
for eps, values in shares.items():
    rows.append(f"| `{names[eps]}` | " + " | ".join(f"{100 * v:.1f} %" for v in values) + " |")
text = "\n".join(rows) + "\n"
(folder / "clipped.md").write_text(text)
print(text)
