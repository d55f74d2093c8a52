"""
A first training run
====================

This example represents handwritten digits by symmetric positive definite (SPD) matrices and trains
an SPDNet to classify them. The images are included in scikit-learn, so nothing is downloaded.
"""

# %%
# The data
# --------
#
# Each image has 8 by 8 pixels. Seventeen features are computed at each pixel: position, brightness,
# gradients, and products of these. Their covariance over the pixels is a 17 by 17 matrix. It is
# symmetric with positive eigenvalues: an SPD matrix. The sum of two SPD matrices is SPD, but their
# difference need not be. SPD matrices form a cone, not a vector space, so they need special layers.

from matplotlib import pyplot as plt
from sklearn.model_selection import train_test_split

from spdnet import SPDNetClassifier, metrics, plots
from spdnet.baselines import LogEuclideanClassifier
from spdnet.data import load_digits_spd

X, y = load_digits_spd()
print(f"{len(X)} matrices of {X.shape[1]} by {X.shape[2]}, {len(set(y))} classes")

# %%
# Network and baseline
# --------------------
#
# An SPDNet maps a matrix to a smaller or rotated matrix (BiMap), keeps its eigenvalues away from
# zero (ReEig), and takes the matrix logarithm at the end (LogEig). Logarithms form a vector space,
# so a linear classifier can be applied to them. ``SPDNetClassifier`` has a scikit-learn interface;
# ``recipe="fast"`` trains a single SPDNet instead of the default, which averages several networks.
#
# The baseline is logistic regression on the entries of the matrix logarithm. It is fast to fit and
# accurate. Both are trained on three random halves of the data and tested on the other halves.

network_scores, linear_scores = [], []
for seed in range(3):
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.5, stratify=y, random_state=seed
    )
    network = SPDNetClassifier(
        recipe="fast",
        epochs=30,
        early_stopping=True,
        n_iter_no_change=30,
        random_state=seed,
        device="cpu",
    )
    network.fit(X_train, y_train)
    network_scores.append(network.score(X_test, y_test))
    linear_scores.append(LogEuclideanClassifier().fit(X_train, y_train).score(X_test, y_test))

# %%
# Results
# -------
#
# We print the mean and the standard deviation over the halves. If the means differ by less than the
# standard deviations, three splits are too few to rank the methods.

for name, scores in (("SPDNet", network_scores), ("log-Euclidean linear", linear_scores)):
    mean, deviation = metrics.spread(scores)
    print(f"{name:22}{100 * mean:6.2f} ± {100 * deviation:.2f} %")

# %%
# Learning curves
# ---------------
#
# The left plot shows the loss of the last network on the training set and on the validation set, a
# tenth of the training half, which is used to select the epoch. The training loss is higher because
# it uses label smoothing, which reduces overconfidence. The right plot is the confusion matrix on
# the test half.

history = network.history_
best = min(history, key=lambda row: row["val_loss"])
left, right = plots.panels(1, 2, size=(9.6, 4.4))
plots.learning_curves(history, "loss", best_epoch=best["epoch"], ax=left)
plots.confusion(y_true=y_test, y_pred=network.predict(X_test), ax=right)
right.set_title("the held-out half")
plt.show()
