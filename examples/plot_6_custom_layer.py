"""
A layer of your own
===================

A layer on SPD matrices is an ordinary PyTorch module. What makes it a good one are the laws that it
keeps, and ``spdnet.testing.check_layer`` checks them for you. Here we write a layer that learns how
far to trust a covariance, and watch it at work inside the cone of SPD matrices.
"""

# %%
# The idea
# --------
#
# A covariance that was estimated from few samples is too stretched: its large eigenvalues are too
# large, its small ones too small. The old remedy is to pull it towards a multiple of the identity,
# without changing its trace, :math:`(1 - r) X + r \frac{\mathrm{tr} X}{n} I`. How far, the network
# may find out by itself: ``r`` becomes a parameter, kept between 0 and 1 by a sigmoid.

import torch
from matplotlib import pyplot as plt
from torch import nn
from torch.nn.functional import cross_entropy

from spdnet import covariance, metrics, plots
from spdnet.baselines import LogEuclideanClassifier
from spdnet.nn import BiMap, LogEig, Vech
from spdnet.optim import RiemannianAdam
from spdnet.testing import check_layer


class Shrink(nn.Module):
    """Pull matrices towards a multiple of the identity, by an amount that is learnt."""

    def __init__(self):
        super().__init__()
        self.amount = nn.Parameter(torch.tensor(0.0, dtype=torch.float64))

    def forward(self, X):
        """``(..., n, n)`` to ``(..., n, n)``."""
        r, mean = self.amount.sigmoid(), X.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
        return (1 - r) * X + r * mean * torch.eye(X.shape[-1], dtype=X.dtype)


# %%
# Does it keep the laws?
# ----------------------
#
# SPD in, SPD out; the same result whatever else is in the batch; right first and second
# derivatives; the same layer after copying and loading. No news is good news. Centring a batch,
# harmless with vectors, breaks a law: matrices leave the cone.


class Centre(nn.Module):
    """Subtract the mean of the batch, which is not a good idea here."""

    def forward(self, X):
        """``(B, n, n)`` to ``(B, n, n)``."""
        return X - X.mean(0)


some = covariance.estimate(torch.randn(4, 3, 20, dtype=torch.float64))
check_layer(Shrink(), some)
try:
    check_layer(Centre(), some)
except AssertionError as error:
    print(f"Centre breaks one: {error}")

# %%
# In a network
# ------------
#
# Signals of eight channels and only six samples each. In the second class two hidden sources are
# twice as loud. BiMap looks for the plane in which that can be seen; the matrices behind it are 2
# by 2. The same network without our layer, and the log-Euclidean linear classifier, learn beside it
# from the same 200 signals; 400 others are the test. Five draws of everything.


def draw(n):
    """Covariance matrices ``(n, 8, 8)`` of short signals, and their classes."""
    y = torch.arange(n) % 2
    hidden = torch.randn(n, 8, 6, dtype=torch.float64)
    hidden[:, :2] *= (1 + y)[:, None, None]
    return covariance.estimate(mixing @ hidden), y


def train(*middle):
    """A network with some layers after its BiMap, trained on ``X_train``."""
    layers = [BiMap(8, 2, dtype=torch.float64), *middle, LogEig(), Vech()]
    model = nn.Sequential(*layers, nn.Linear(3, 2, dtype=torch.float64))
    optimizer = RiemannianAdam(model.parameters(), lr=0.03)
    for _ in range(150):
        optimizer.zero_grad()
        cross_entropy(model(X_train), y_train).backward()
        optimizer.step()
    return model


scores = {"with Shrink": [], "without": [], "log-Euclidean linear": []}
for seed in range(5):
    torch.manual_seed(seed)
    mixing = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64)).Q
    (X_train, y_train), (X_test, y_test) = draw(200), draw(400)
    plain, model = train(), train(Shrink())
    for name, net in (("with Shrink", model), ("without", plain)):
        scores[name].append((net(X_test).argmax(-1) == y_test).double().mean().item())
    linear = LogEuclideanClassifier().fit(X_train, y_train)
    scores["log-Euclidean linear"].append(linear.score(X_test, y_test))
for name, values in scores.items():
    mean, deviation = metrics.spread(values)
    print(f"{name:22}{100 * mean:5.1f} ± {100 * deviation:.1f} %")
print(f"the last network chose r = {model[1].amount.sigmoid():.2f}")

# %%
# In the cone, height is the mean of the eigenvalues and the distance from the axis half their
# difference. Our layer keeps the one and shortens the other: each ring moves inwards to its dot.

before = model[0](X_test[:60])
names = ["loud" if label else "quiet" for label in y_test[:60]]
plots.cone(torch.stack([before, model[1](before)]), names)
plt.show()
