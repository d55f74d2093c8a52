"""
End-to-end training on images
=============================

Since the layers on SPD matrices are differentiable, a convolutional network can learn the features
whose covariance they receive. ``ConvSPDNet`` is such a network. This example trains it with an
ordinary PyTorch loop.
"""

# %%
# First-order and second-order pooling
# ------------------------------------
#
# A convolutional backbone computes a vector of 32 features at each position of the image. Most
# networks then take the *mean* of the features over the positions. ``ConvSPDNet`` computes their
# *covariance*, a 32 by 32 matrix, and applies an SPDNet to it. For comparison, we also train the
# same backbone with mean pooling.

import numpy as np
import torch
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.nn.functional import cross_entropy

from spdnet import metrics, plots
from spdnet.baselines import LogEuclideanClassifier
from spdnet.data import load_digits_spd
from spdnet.models import ConvSPDNet, O2PNet
from spdnet.optim import RiemannianAdam

EPOCHS, BATCH = 15, 50
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 8 - 1  # (n, 1, 8, 8)
y = torch.tensor(digits.target)

MODELS = {
    "ConvSPDNet": lambda: ConvSPDNet(10),
    "mean pooling": lambda: O2PNet(10, pool="mean"),
}

# %%
# Training
# --------
#
# The training loop is the same as for any PyTorch model. ``RiemannianAdam`` keeps the columns of
# the BiMap weights orthonormal and updates all other parameters like Adam.


def fit(model, train, test, seed):
    """Train a model; return the loss and the test accuracy of each epoch."""
    optimizer = RiemannianAdam(model.parameters(), lr=0.003)
    steps = EPOCHS * (len(train) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    rng = np.random.default_rng(seed)
    history = []
    for _ in range(EPOCHS):
        model.train()
        losses = []
        for batch in rng.permutation(train)[: steps // EPOCHS * BATCH].reshape(-1, BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(model(images[batch]), y[batch])
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            accuracy = (model(images[test]).argmax(-1) == y[test]).double().mean().item()
        history.append({"loss": float(np.mean(losses)), "test_accuracy": accuracy})
    return history


# %%
# We train on three random halves and report the test accuracy of the last epoch; nothing is
# selected on the test set. The baseline is the log-Euclidean linear classifier on covariance
# matrices of seventeen hand-crafted features, trained on the same halves.

X, _ = load_digits_spd()
scores = {name: [] for name in [*MODELS, "log-Euclidean linear"]}
histories = {}
for seed in range(3):
    train, test = train_test_split(np.arange(len(y)), test_size=0.5, stratify=y, random_state=seed)
    for name, make in MODELS.items():
        torch.manual_seed(seed)
        histories[name] = fit(make(), train, test, seed)
        scores[name].append(histories[name][-1]["test_accuracy"])
    linear = LogEuclideanClassifier().fit(X[train], y[train])
    scores["log-Euclidean linear"].append(linear.score(X[test], y[test]))
for name, values in scores.items():
    mean, deviation = metrics.spread(values)
    print(f"{name:22}{100 * mean:6.2f} ± {100 * deviation:.2f} %")

# %%
# The plots show the learning curves for the last half. The dotted line is the linear classifier: on
# images as small as these, hand-crafted features can be as good as learned ones.

left, right = plots.panels(1, 2, size=(9.6, 3.6))
for (name, history), color in zip(histories.items(), plots.COLORS, strict=False):
    plots.learning_curves(history, "loss", parts=["train"], label=name, color=color, ax=left)
    plots.learning_curves(history, "accuracy", parts=["test"], label=name, color=color, ax=right)
linear = scores["log-Euclidean linear"][-1]
right.axhline(linear, color=plots.BASELINE, ls=":", label="log-Euclidean linear")
right.legend(frameon=False)
right.set(ylabel="test accuracy", ylim=(0.8, 1.005))
plt.show()
