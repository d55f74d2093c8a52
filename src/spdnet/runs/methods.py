"""Registry of the methods of a comparison."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sklearn.pipeline import make_pipeline

from spdnet.baselines import (
    CDL,
    HERML,
    LEML,
    RSR,
    SPDML,
    DeepO2PClassifier,
    ExpressionletClassifier,
    LogEuclideanClassifier,
    MinimumDistanceToMean,
    NearestNeighbor,
    SteinSVC,
)
from spdnet.estimator import SPDNetClassifier
from spdnet.training import choose_dims


@dataclass(frozen=True)
class Where:
    """Conditions of an estimator: matrices of size ``n``, a seed, a device.

    ``epochs`` are those of networks; None for those of the default recipe.
    """

    n: int
    seed: int
    device: str
    epochs: int | None = None


@dataclass(frozen=True)
class Method:
    """One row of a comparison.

    Parameters
    ----------
    title : str
        Name in tables.
    make : callable
        Returns a new estimator for a :class:`Where`.
    grid : callable
        Returns the candidates for ``--tune`` for a size of the matrices.
    takes : {"matrices", "sets", "images"}
        Input: SPD matrices, sets of vectors (the columns of signals), or images.
    dims : callable
        Returns the sizes of a network for a size of the matrices, None for other methods.
    """

    title: str
    make: Callable[[Where], Any]
    grid: Callable[[int], dict[str, list[Any]]] = lambda n: {}
    takes: str = "matrices"
    dims: Callable[[int], tuple[int, ...] | None] = lambda n: None


def _spdnet(n_bimaps: int) -> Method:
    def make(w: Where) -> SPDNetClassifier:
        dims = choose_dims(w.n, n_bimaps)
        return SPDNetClassifier(dims, epochs=w.epochs, random_state=w.seed, device=w.device)

    return Method(
        f"SPDNet-{n_bimaps}BiRe",
        make,
        lambda n: {"lr": [0.003, 0.01, 0.03]},
        dims=lambda n: choose_dims(n, n_bimaps),
    )


def _neighbor(metric: str, title: str) -> Method:
    return Method(
        f"NN, {title}",
        lambda w: NearestNeighbor(metric, device=w.device),
        lambda n: {"k": [1, 3, 5]},
    )


def _log_euclidean(method: str, title: str) -> Method:
    C = {"C": [0.01, 0.1, 1.0, 10.0, 100.0]} if method != "lda" else {}
    return Method(
        f"log-Euclidean {title}", lambda w: LogEuclideanClassifier(method=method), lambda n: C
    )


def _spdml(metric: str, title: str) -> Method:
    return Method(
        f"SPDML-{title}",
        lambda w: SPDML(metric, random_state=w.seed, device=w.device),
        lambda n: {"n_components": _halves(n), "k_w": [3, 8]},
    )


def _halves(n: int) -> list[int]:
    return sorted({max(1, n // 4), max(1, n // 2)})


METHODS: dict[str, Method] = {
    "nn-log-euclidean": _neighbor("log_euclidean", "log-Euclidean"),
    "nn-affine-invariant": _neighbor("affine_invariant", "affine-invariant"),
    "nn-stein": _neighbor("stein", "Stein"),
    "mdm": Method(
        "minimum distance to mean",
        lambda w: MinimumDistanceToMean("affine_invariant"),
        lambda n: {"metric": ["log_euclidean", "affine_invariant"]},
    ),
    "logistic": _log_euclidean("logistic", "logistic regression"),
    "lda": _log_euclidean("lda", "LDA"),
    "ridge": _log_euclidean("ridge", "ridge regression"),
    "svm": _log_euclidean("svm", "SVM"),
    "svm-stein": Method(
        "SVM, Stein kernel",
        lambda w: SteinSVC(device=w.device),
        lambda n: {"C": [1.0, 10.0, 100.0]},
    ),
    "cdl": Method("CDL", lambda w: CDL(), lambda n: {"reg": [10.0**e for e in range(-2, 5)]}),
    "cdl-pls": Method(
        "CDL-PLS", lambda w: CDL("pls"), lambda n: {"n_components": [None, 5, 10, 20, 40]}
    ),
    "leml": Method(
        "LEML",
        lambda w: LEML(random_state=w.seed),
        lambda n: {"slack": [0.1, 1.0], "spread": [0.1, 0.5]},
    ),
    "spdml-aim": _spdml("affine_invariant", "AIM"),
    "spdml-stein": _spdml("stein", "Stein"),
    "rsr": Method("RSR", lambda w: RSR(device=w.device), lambda n: {"alpha": [1e-3, 1e-2, 1e-1]}),
    "rsr-spdml": Method(
        "RSR-SPDML",
        lambda w: make_pipeline(
            SPDML("stein", random_state=w.seed, device=w.device), RSR(device=w.device)
        ),
        lambda n: {"spdml__n_components": _halves(n)},
    ),
    "herml": Method(
        "HERML",
        lambda w: HERML(random_state=w.seed),
        lambda n: {"slack": [0.1, 1.0], "spread": [0.1, 0.5]},
        takes="sets",
    ),
    "expressionlets": Method(
        "expressionlets (reduced STM-ExpLet)",
        lambda w: ExpressionletClassifier(random_state=w.seed),
        lambda n: {"n_modes": [4, 8, 16]},
        takes="sets",
    ),
    "deepo2p": Method(
        "DeepO2P",
        lambda w: DeepO2PClassifier(random_state=w.seed, device=w.device),
        lambda n: {"lr": [0.001, 0.003, 0.01]},
        takes="images",
    ),
    **{f"spdnet-{k}": _spdnet(k) for k in range(4)},
}
