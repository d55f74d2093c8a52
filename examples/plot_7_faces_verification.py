"""
Is it the same person?
======================

Verification asks whether two videos show one person, and the people in question were never seen in
training. A video becomes an SPD matrix, the network learns from *other* people what distinguishes
people at all, and the angle between two features decides.
"""

# %%
# Simulated videos
# ----------------
#
# A face network would give a vector of, here, twelve features for each frame. What such vectors
# have in common is imitated: a person has a typical look and a way of varying around it; pose and
# light, which say nothing about the person, move everybody along the same few directions, more in
# some videos than in others, and more than people differ.

import numpy as np
import torch
from matplotlib import pyplot as plt
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from spdnet import SPDNetClassifier, covariance, metrics, plots
from spdnet.linalg import logm, vech

N_FEATURES, VIDEOS, LEARN, TEST = 12, 6, 40, 30


def film(people, rng):
    """Videos of new people: frames ``(people * videos, features, frames)``, and who it is."""
    nuisance = np.random.default_rng(0).normal(size=(N_FEATURES, 4))  # the same for everybody
    videos = []
    for _ in range(people):
        look = rng.normal(scale=0.6, size=(N_FEATURES, 1))
        way = rng.normal(scale=0.3, size=(N_FEATURES, 3))
        for _ in range(VIDEOS):
            spread = rng.lognormal(sigma=0.5, size=(4, 1))
            pose = rng.normal(size=(4, 1)) + spread * rng.normal(size=(4, 80))
            frames = look + way @ rng.normal(size=(3, 80)) + nuisance @ pose
            videos.append(frames + rng.normal(scale=0.3, size=frames.shape))
    return np.stack(videos), np.repeat(np.arange(people), VIDEOS)


# %%
# From videos to scores
# ---------------------
#
# ``gaussian_embedding`` puts the mean and the covariance of the frames into one SPD matrix, because
# the look of a person is in both. Two ways to a feature: the logarithm of the matrix, or what an
# SPDNet has in front of its classifier, itself a logarithm. Both begin by centring: the mean of the
# training videos becomes the identity. A classifier may ignore pose and light that are still in the
# features, the angle between them does not; so each is tried as it is, and behind the linear map
# that discriminant analysis finds. The score is the cosine of the angle.


def logarithms(X, center):
    """The logarithm of each centred matrix as a vector, which keeps lengths and angles."""
    return vech(logm(center(torch.from_numpy(X)))).numpy()


def cosines(features):
    """Of the angles between all pairs."""
    directions = features / np.linalg.norm(features, axis=1, keepdims=True)
    return directions @ directions.T


def score(seed):
    """Scores of all pairs of test videos by each method, and whether they are of one person."""
    rng = np.random.default_rng(seed)
    (learn, y), (test, who) = film(LEARN, rng), film(TEST, rng)
    X, X_test = (covariance.gaussian_embedding(frames, reg=1e-2) for frames in (learn, test))
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
    pairs = np.triu_indices(len(who), 1)  # each pair once
    same = (who[:, None] == who[None])[pairs]
    return {name: cosines(F)[pairs] for name, F in features.items()}, same


# %%
# How often is it right?
# ----------------------
#
# A door that lets one stranger in a hundred pass, a false acceptance rate of 0.01: how many of the
# rightful ones pass? Mean and deviation over three draws of people. The equal error rate is where
# as many rightful ones are refused as strangers are let in.

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
# The whole trade-off, for the last draw: further left, fewer strangers are let in. The dotted line
# is the door of above.

scores, same = draws[-1]
(ax,) = plots.panels(size=(6.4, 4.0))
for name, values in scores.items():
    color = plots.TRAIN if "SPDNet" in name else plots.BASELINE
    dashes = "-" if "linear" in name else "--"
    plots.roc(metrics.roc(values, same), label=name, color=color, ls=dashes, ax=ax)
plt.show()
