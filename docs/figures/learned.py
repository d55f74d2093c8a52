"""Comparison of a linear classifier on logarithms and a small SPDNet on two synthetic tasks."""

import sys
from pathlib import Path

import matplotlib
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from spdnet import SPDNet, metrics, plots
from spdnet.baselines import LogEuclideanClassifier
from spdnet.manifolds import stiefel
from spdnet.optim import RiemannianAdam

matplotlib.use("agg")
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "_made"
folder.mkdir(parents=True, exist_ok=True)
torch.set_num_threads(1)  # faster for small matrices
torch.set_default_dtype(torch.float64)

N, K, SIZES, TEST, SEEDS = 6, 2, (50, 200, 800), 2000, range(3)


def fixed_axes(count: int) -> tuple[Tensor, Tensor]:
    """Generate X = A V A^T with fixed A; the class depends on the variance of the first source."""
    A = torch.randn(N, N)
    V = (2 * torch.randn(count, N)).exp()
    return A @ torch.diag_embed(V) @ A.mT, V[:, 0] > 1


def random_axes(count: int) -> tuple[Tensor, Tensor]:
    """Generate matrices with random axes; the class depends on the variance w^T X w."""
    w = stiefel.random_point(N, 1)
    Q = stiefel.random_point(count, N, N)
    X = Q @ torch.diag_embed(torch.randn(count, N).exp()) @ Q.mT
    power = (w.mT @ X @ w).flatten()
    return X, power > power.median()


def train(X: Tensor, y: Tensor, seed: int, steps: int = 300) -> SPDNet:
    """Train an SPDNet that consists of a BiMap to size K x K, LogEig and a linear classifier."""
    torch.manual_seed(seed)
    model = SPDNet((N, K), 2, bias=True)
    optimizer = RiemannianAdam(model.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        batch = torch.randint(len(X), (min(64, len(X)),))
        optimizer.zero_grad()
        cross_entropy(model(X[batch], check=False), y[batch]).backward()
        optimizer.step()
        schedule.step()
    return model.eval()


METHODS = ("linear on logarithms", "SPDNet")
TASKS = {"fixed axes": fixed_axes, "random axes": random_axes}
scores: dict[tuple[str, str, int], list[float]] = {}
for task, make in TASKS.items():
    for seed in SEEDS:
        torch.manual_seed(seed)
        X, label = make(max(SIZES) + TEST)
        y = label.long()
        X_test, y_test = X[max(SIZES) :], y[max(SIZES) :]
        for size in SIZES:
            linear = LogEuclideanClassifier().fit(X[:size].numpy(), y[:size].numpy())
            network = train(X[:size], y[:size], seed)
            with torch.no_grad():
                right = (network(X_test).argmax(-1) == y_test).double().mean()
            found = (linear.score(X_test.numpy(), y_test.numpy()), float(right))
            for name, score in zip(METHODS, found, strict=True):
                scores.setdefault((task, name, size), []).append(100 * float(score))

with matplotlib.rc_context({**plots.STYLE, "font.size": 12, "svg.hashsalt": "spdnet"}):
    axes = plots.panels(2, 1, size=(4.2, 6.0))
    for ax, task in zip(axes, TASKS, strict=True):
        for name, color in zip(METHODS, (plots.BASELINE, plots.TRAIN), strict=True):
            middle = [metrics.spread(scores[task, name, size])[0] for size in SIZES]
            ax.plot(SIZES, middle, "o-", color=color, label=name)
            for size in SIZES:
                each = scores[task, name, size]
                ax.plot([size] * len(each), each, "_", color=color, ms=9)
        ax.set_xscale("log")
        ax.set_xticks(SIZES, [str(size) for size in SIZES])
        ax.minorticks_off()
        ax.set(ylabel="accuracy, %", ylim=(70, 101), title=task)
        ax.legend(loc="lower right")
    axes[1].set_xlabel("number of training matrices")
    axes[0].figure.savefig(folder / "learned.svg", metadata={"Date": None})

rows = [
    f"Accuracy in percent on {TEST} test matrices of size {N} x {N}, with a BiMap from {N} to {K} "
    f"(mean and standard deviation over {len(SEEDS)} repeats):\n"
]
rows += ["| task, number of training matrices | " + " | ".join(METHODS) + " |", "|---|---|---|"]
for task in TASKS:
    for size in SIZES:
        cells = (metrics.spread(scores[task, name, size]) for name in METHODS)
        text = " | ".join(f"{mean:.1f} ± {deviation:.1f}" for mean, deviation in cells)
        rows.append(f"| {task}, {size} | {text} |")
text = "\n".join(rows) + "\n"
(folder / "learned.md").write_text(text)
print(text)
