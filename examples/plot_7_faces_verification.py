"""
Face verification
=================

Face verification decides whether two videos show the same person. Each video is represented by an
SPD matrix. The network is trained on *other* people, and the score of two videos is the cosine
similarity of their features.
"""

# %%
# Simulated videos
# ----------------
#
# A face network computes a feature vector for each frame, here with twelve features. In the
# simulation, each person has a mean and a covariance. Pose and lighting shift the features of all
# people along the same few directions. This variation is larger than the differences between
# people, and its magnitude varies between videos.

import numpy as np
import torch
from matplotlib import pyplot as plt
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from spdnet import SPDNetClassifier, covariance, metrics, plots
from spdnet.linalg import logm, vech

N_FEATURES, VIDEOS, TRAIN, TEST = 12, 6, 40, 30


def film(people, rng):
    """Simulate videos ``(people * videos, features, frames)`` of new people, and their labels."""
    nuisance = np.random.default_rng(0).normal(size=(N_FEATURES, 4))  # the same for everybody
    videos = []
    for _ in range(people):
        mean = rng.normal(scale=0.6, size=(N_FEATURES, 1))
        loadings = rng.normal(scale=0.3, size=(N_FEATURES, 3))
        for _ in range(VIDEOS):
            spread = rng.lognormal(sigma=0.5, size=(4, 1))
            pose = rng.normal(size=(4, 1)) + spread * rng.normal(size=(4, 80))
            frames = mean + loadings @ rng.normal(size=(3, 80)) + nuisance @ pose
            videos.append(frames + rng.normal(scale=0.3, size=frames.shape))
    return np.stack(videos), np.repeat(np.arange(people), VIDEOS)


# %%
# From videos to scores
# ---------------------
#
# ``gaussian_embedding`` combines the mean and the covariance of the frames in one SPD matrix. We
# compare two kinds of features: the logarithm of the matrix, and the input of the classifier of an
# SPDNet, which is also a logarithm. For both, the matrices are first centered, which moves the mean
# of the training videos to the identity. A classifier can ignore the variation due to pose and
# lighting, but the cosine similarity cannot. We therefore evaluate both kinds of features with and
# without a linear map fitted by discriminant analysis.


def logarithms(X, center):
    """Compute the logarithms of the centered matrices as vectors."""
    return vech(logm(center(torch.from_numpy(X)))).numpy()


def cosines(features):
    """Compute the cosine similarity of all pairs."""
    directions = features / np.linalg.norm(features, axis=1, keepdims=True)
    return directions @ directions.T


def score(seed):
    """Score all pairs of test videos by each method; also return which show the same person."""
    rng = np.random.default_rng(seed)
    (train, y), (test, person) = film(TRAIN, rng), film(TEST, rng)
    X, X_test = (covariance.gaussian_embedding(frames, reg=1e-2) for frames in (train, test))
    network = SPDNetClassifier((13, 10, 8), epochs=40, random_state=seed, device="cpu").fit(X, y)
    steps = {
        "log-Euclidean": lambda X: logarithms(X, network.model_.center),
        "SPDNet": network.transform,
    }
    features = {}
    for name, step in steps.items():
        F, F_test = step(X), step(X_test)
        features[name] = F_test - F.mean(0)
        linear = LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto").fit(F, y)
        features[f"{name}, linear map"] = linear.transform(F_test)
    pairs = np.triu_indices(len(person), 1)  # each pair once
    same = (person[:, None] == person[None])[pairs]
    return {name: cosines(F)[pairs] for name, F in features.items()}, same


# %%
# Results
# -------
#
# We report the verification rate at a false acceptance rate of 0.01, and the equal error rate, at
# which the false acceptance rate equals the false rejection rate. Both are averaged over three
# random draws of people, with the standard deviation after ``±``.

draws = [score(seed) for seed in range(3)]
for name in draws[0][0]:
    rates = [metrics.verification_rate(scores[name], same, far=0.01) for scores, same in draws]
    errors = [metrics.equal_error_rate(scores[name], same) for scores, same in draws]
    rate, error = metrics.spread(rates), metrics.spread(errors)
    print(
        f"{name:26} verified {100 * rate.mean:5.1f} ± {100 * rate.deviation:.1f} %, "
        f"equal error {100 * error.mean:5.1f} ± {100 * error.deviation:.1f} %"
    )

# %%
# The plot shows the ROC curves of the last draw. The dotted line marks a false acceptance rate of
# 0.01.

scores, same = draws[-1]
(ax,) = plots.panels(size=(6.4, 4.0))
for name, values in scores.items():
    color = plots.TRAIN if "SPDNet" in name else plots.BASELINE
    linestyle = "-" if "linear" in name else "--"
    plots.roc(metrics.roc(values, same), label=name, color=color, ls=linestyle, ax=ax)
plt.show()
