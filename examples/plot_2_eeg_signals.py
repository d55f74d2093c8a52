"""
EEG signals in a scikit-learn pipeline
======================================

When a person imagines moving the left hand, a rhythm of about 10 Hz becomes weaker over the right
half of the brain, and vice versa. The covariance matrix of the electrodes shows where a rhythm is
strong. This example simulates such signals. A pipeline then filters them, computes covariance
matrices and classifies them.
"""

# %%
# Simulated recordings
# --------------------
#
# There are sixteen electrodes, three rhythmic sources in the motor cortex, one at the back of the
# head that is unrelated to the task, and broadband noise. In each class, one of the three sources
# is weaker, by an amount that varies between trials.

import numpy as np
from matplotlib import pyplot as plt
from scipy.signal import butter, sosfiltfilt, welch
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from spdnet import SPDNetClassifier, covariance, metrics, plots
from spdnet.baselines import LogEuclideanClassifier, MinimumDistanceToMean

RATE, SECONDS, TRIALS = 128, 2, 180
CLASSES = ["left hand", "right hand", "feet"]
rng = np.random.default_rng(0)
grid = np.linspace(-1, 1, 4)
electrodes = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)  # (16, 2): x and y on the head
rhythms = np.array([(0.7, 0.0), (-0.7, 0.0), (0.0, 0.1), (0.0, -0.9)])
noise_sources = rng.uniform(-1, 1, size=(12, 2))


def noise(n, low, high):
    """Generate band-limited noise with standard deviation 1."""
    sos = butter(2, (low, high), "bandpass", fs=RATE, output="sos")
    signals = sosfiltfilt(sos, rng.normal(size=(n, SECONDS * RATE)))
    return signals / signals.std(-1, keepdims=True)


def gain(sources):
    """Compute the gain of each source at each electrode, which decreases with the distance."""
    squared = np.square(electrodes[:, None] - sources[None]).sum(-1)
    return np.exp(-squared / (2 * 0.45**2))


def record(label):
    """Simulate one trial ``(16, time)`` of a class."""
    strength = rng.lognormal(sigma=0.45, size=4)
    strength[label] *= rng.uniform(0.1, 0.7)
    signals = gain(rhythms) @ (strength[:, None] * noise(4, 8, 13))
    signals += gain(noise_sources) @ (0.7 * noise(12, 1, 40))
    return signals + 0.2 * rng.normal(size=signals.shape)


labels = np.arange(TRIALS) % len(CLASSES)
signals = np.stack([record(label) for label in labels])
y = np.array(CLASSES)[labels]
print(f"{len(signals)} trials, {signals.shape[1]} electrodes, {signals.shape[2]} samples")

# %%
# The pipeline
# ------------
#
# The filter keeps the frequencies of the rhythm. ``covariance.Covariances`` computes one matrix
# per trial; ``oas`` shrinks it toward a multiple of the identity, because a covariance matrix
# estimated from few samples is noisy. All classifiers receive the same matrices.


def bandpass(signals):
    """Keep the frequencies from 8 to 13 Hz."""
    return sosfiltfilt(butter(4, (8, 13), "bandpass", fs=RATE, output="sos"), signals)


def pipeline(classifier):
    """Build a pipeline from signals to classes."""
    return make_pipeline(FunctionTransformer(bandpass), covariance.Covariances("oas"), classifier)


methods = {
    "SPDNet": SPDNetClassifier((16, 8), epochs=30, random_state=0, device="cpu"),
    "log-Euclidean linear": LogEuclideanClassifier(),
    "minimum distance to mean": MinimumDistanceToMean(),
}
folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=0)
scores = {name: cross_val_score(pipeline(m), signals, y, cv=folds) for name, m in methods.items()}
for name, values in scores.items():
    mean, deviation = metrics.spread(values)
    print(f"{name:26}{100 * mean:5.1f} ± {100 * deviation:.1f} %")

# %%
# The left plot shows the mean spectrum of an electrode over the right half of the brain: the rhythm
# is weaker for the left hand. The right plot shows the accuracy on each fold, with a line at the
# mean. If the points of two methods overlap, the difference between their means is not conclusive.

left, right = plots.panels(1, 2, size=(9.6, 3.6))
electrode = np.square(electrodes - rhythms[0]).sum(-1).argmin()
for name, color in zip(CLASSES, plots.COLORS, strict=False):
    frequency, power = welch(signals[y == name, electrode], RATE, nperseg=RATE)
    left.plot(frequency[1:31], power.mean(0)[1:31], color=color, label=name)
left.set(xlabel="frequency, Hz", ylabel="power")
left.legend(frameon=False)
for row, (values, color) in enumerate(zip(scores.values(), plots.COLORS, strict=False)):
    right.plot(100 * values, row + rng.uniform(-0.15, 0.15, len(values)), "o", ms=4, color=color)
    right.plot([100 * values.mean()] * 2, [row - 0.3, row + 0.3], color=color)
right.set_yticks(range(len(scores)), list(scores))
right.set_xlabel("accuracy, %")
right.invert_yaxis()
plt.show()
