"""Toy set with four classes that differ in ten of thirty dimensions."""

import numpy as np
import scipy.linalg


def toy(seed, d=30, genuine=10, classes=4, each=100):
    """Return training and test halves ``(X, y), (X, y)``."""
    rng = np.random.default_rng(seed)
    p = genuine * (genuine + 1) // 2
    shared = rng.uniform(size=p)
    centers = shared + 0.5 * rng.uniform(size=(classes, p))
    rows, cols = np.triu_indices(d)
    is_diagonal, inside = rows == cols, (rows < genuine) & (cols < genuine)
    X, y = [], []
    for c in range(classes):
        for _ in range(each):
            v = 0.3 * rng.normal(size=len(rows))
            v[inside] = centers[c] + 0.1 * rng.normal(size=p)
            T = np.zeros((d, d))
            T[rows, cols] = np.where(is_diagonal, v, v / np.sqrt(2))
            T = T + np.triu(T, 1).T
            X.append(scipy.linalg.expm(T))
            y.append(c)
    X, y = np.stack(X), np.array(y)
    u = 1 / np.sqrt(np.diagonal(X, axis1=1, axis2=2).max(0))
    X = u[:, None] * X * u
    first = np.tile(np.arange(each) < each // 2, classes)
    return (X[first], y[first]), (X[~first], y[~first])
