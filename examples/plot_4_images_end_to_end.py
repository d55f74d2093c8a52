"""
From images to classes, end to end
==================================

The features that a covariance is made of need not be written down by hand: a convolutional network
can learn them, because the layers on SPD matrices pass gradients on. ``ConvSPDNet`` is such a
network. This example is plain PyTorch.
"""

# %%
# First and second order
# ----------------------
#
# A convolutional network ends in feature maps: a vector of 32 numbers at each place of the image.
# The usual network keeps their *mean* over the places. ``ConvSPDNet`` keeps their *covariance*:
# which features appear together. That is a matrix of 32 by 32, and an SPDNet takes it from there.
# To see what the covariance brings, the same backbone is trained with the mean as well.

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
    "mean of the features": lambda: O2PNet(10, pool="mean"),
}

# %%
# Training
# --------
#
# The loop is that of any PyTorch model. ``RiemannianAdam`` finds the weights that have to keep
# orthonormal columns by itself, and treats all others as Adam does.


def fit(model, train, test, seed):
    """Train on some images; a row for each epoch, with the scores on others at the end of it."""
    optimizer = RiemannianAdam(model.parameters(), lr=0.003)
    steps = EPOCHS * (len(train) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    order = np.random.default_rng(seed)
    history = []
    for _ in range(EPOCHS):
        model.train()
        losses = []
        for batch in order.permutation(train)[: steps // EPOCHS * BATCH].reshape(-1, BATCH):
            optimizer.zero_grad()
            loss = cross_entropy(model(images[batch]), y[batch])
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            hits = (model(images[test]).argmax(-1) == y[test]).double().mean().item()
        history.append({"loss": float(np.mean(losses)), "test_accuracy": hits})
    return history


# %%
# Three random halves each, and nothing is chosen by the half that is held out: the accuracy that
# counts is that of the last epoch. Beside them the log-Euclidean linear classifier, on covariance
# matrices of seventeen features that a person thought of. It learns from the same halves.

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
# The curves of the last half. Learning features by gradient descent has its price, and on images as
# small as these, features made by hand can do as well: the dotted line is the linear classifier.

left, right = plots.panels(1, 2, size=(9.6, 3.6))
for (name, history), color in zip(histories.items(), plots.COLORS, strict=False):
    plots.learning_curves(history, "loss", parts=["train"], label=name, color=color, ax=left)
    plots.learning_curves(history, "accuracy", parts=["test"], label=name, color=color, ax=right)
linear = scores["log-Euclidean linear"][-1]
right.axhline(linear, color=plots.BASELINE, ls=":", label="log-Euclidean linear")
right.legend(frameon=False)
right.set(ylabel="accuracy on the held-out half", ylim=(0.8, 1.005))
plt.show()
