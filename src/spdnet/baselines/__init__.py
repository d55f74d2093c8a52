"""What SPDNet is compared with: scikit-learn estimators on SPD matrices ``(N, n, n)``."""

from spdnet.baselines.log_euclidean import LogEuclideanClassifier

__all__ = ["LogEuclideanClassifier"]
