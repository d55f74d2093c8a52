"""
A first training
================

Handwritten digits become symmetric positive definite (SPD) matrices, and an SPDNet learns to tell
them apart. Nothing has to be downloaded: the digits are embedded.
"""

# %%
# The data
# --------
#
# An image of a digit has 8 by 8 pixels. At each pixel we measure seventeen features: position,
# brightness, slopes, and products of these. How the features vary together over the pixels is
# their covariance, a matrix of 17 by 17. It is symmetric, and its eigenvalues are positive: an SPD
# matrix. The sum of two SPD matrices is one again, their difference need not be. They fill a cone,
# not a flat space, and that is why they deserve layers of their own.

from matplotlib import pyplot as plt
from sklearn.model_selection import train_test_split

from spdnet import SPDNetClassifier, metrics, plots
from spdnet.baselines import LogEuclideanClassifier
from spdnet.data import load_digits_spd

X, y = load_digits_spd()
print(f"{len(X)} matrices of {X.shape[1]} by {X.shape[2]}, {len(set(y))} classes")

# %%
# Networks and a baseline
# -----------------------
#
# An SPDNet maps a matrix to a smaller or rotated one (BiMap), keeps its eigenvalues away from zero
# (ReEig), and takes the logarithm at the end (LogEig), where the space is flat and a linear
# classifier is at home. ``SPDNetClassifier`` has the manners of scikit-learn.
#
# A result needs something beside it. The matrix logarithm alone, with logistic regression on its
# entries, is cheap and strong. We train both on three random halves, and score them on the others.

ours, linear = [], []
for seed in range(3):
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.5, stratify=y, random_state=seed
    )
    network = SPDNetClassifier(
        epochs=30, early_stopping=True, n_iter_no_change=30, random_state=seed, device="cpu"
    )
    network.fit(X_train, y_train)
    ours.append(network.score(X_test, y_test))
    linear.append(LogEuclideanClassifier().fit(X_train, y_train).score(X_test, y_test))

# %%
# How good are they?
# ------------------
#
# The mean and the standard deviation over the halves. Where the means are closer to each other than
# the deviations are large, three halves cannot tell which of the two is better.

for name, scores in (("SPDNet", ours), ("log-Euclidean linear", linear)):
    mean, deviation = metrics.spread(scores)
    print(f"{name:22}{100 * mean:6.2f} ± {100 * deviation:.2f} %")

# %%
# What happened on the way
# ------------------------
#
# On the left the loss of the last network, on the matrices it learns from and on a tenth of them
# that it never saw, which chose the epoch to keep. The loss in training is the higher one: its
# targets are smoothed, so that the network does not become too sure of itself. On the right, which
# digits it takes for which.

history = network.history_
best = min(history, key=lambda row: row["val_loss"])
left, right = plots.panels(1, 2, size=(9.6, 4.4))
plots.learning_curves(history, "loss", best_epoch=best["epoch"], ax=left)
plots.confusion(y_true=y_test, y_pred=network.predict(X_test), ax=right)
right.set_title("the held-out half")
plt.show()
