"""Registry of the methods of a comparison."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import signature
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
class FitSettings:
    """Settings of a fit: size ``n`` of the matrices, seed, and device.

    ``epochs`` are those of networks, or None for the default of the recipe.
    """

    n: int
    seed: int
    device: str
    epochs: int | None = None


@dataclass(frozen=True)
class Method:
    """One row of a comparison.

    ``make`` returns a new estimator, ``grid`` the candidates of ``--tune`` for matrices of size n,
    and ``dims`` the sizes of a network. ``takes`` is the input: SPD ``matrices``, ``sets`` of
    vectors (the columns of signals), or ``images``.
    """

    title: str
    make: Callable[[FitSettings], Any]
    grid: Callable[[int], dict[str, list[Any]]] = lambda n: {}
    takes: str = "matrices"
    dims: Callable[[int], tuple[int, ...] | None] = lambda n: None


def _method(
    title: str,
    kind: type,
    fixed: dict[str, Any] | None = None,
    takes: str = "matrices",
    **grid: Any,
) -> Method:
    """Describe an estimator with fixed parameters; a grid may be a function of the size."""

    def make(where: FitSettings) -> Any:
        known = {"random_state": where.seed, "device": where.device}
        names = signature(kind).parameters
        return kind(**fixed or {}, **{k: v for k, v in known.items() if k in names})

    def candidates(n: int) -> dict[str, list[Any]]:
        return {name: values(n) if callable(values) else values for name, values in grid.items()}

    return Method(title, make, candidates, takes)


def _network(title: str, n_bimaps: int | None = None) -> Method:
    """Describe an SPDNet with ``n_bimaps`` BiMaps, or the network of the recipe auto for None."""

    def dims(n: int) -> tuple[int, ...] | None:
        return None if n_bimaps is None else choose_dims(n, n_bimaps)

    def make(w: FitSettings) -> SPDNetClassifier:
        return SPDNetClassifier(dims(w.n), epochs=w.epochs, random_state=w.seed, device=w.device)

    grid: dict[str, list[Any]] = {} if n_bimaps is None else {"lr": [0.003, 0.01, 0.03]}
    return Method(title, make, lambda n: grid, dims=dims)


def _neighbor(metric: str, title: str) -> Method:
    return _method(f"NN, {title}", NearestNeighbor, {"metric": metric}, k=[1, 3, 5])


def _log_euclidean(method: str, title: str) -> Method:
    return _method(f"log-Euclidean {title}", LogEuclideanClassifier, {"method": method})


def _halves(n: int) -> list[int]:
    return sorted({max(1, n // 4), max(1, n // 2)})


def _spdml(metric: str, title: str) -> Method:
    return _method(f"SPDML-{title}", SPDML, {"metric": metric}, n_components=_halves, k_w=[3, 8])


_METRIC_LEARNING: Any = {"slack": [0.1, 1.0], "spread": [0.1, 0.5]}
_SPDML_STEIN = _spdml("stein", "Stein")
_RSR = _method("RSR", RSR, alpha=[1e-3, 1e-2, 1e-1])

METHODS: dict[str, Method] = {
    "nn-log-euclidean": _neighbor("log_euclidean", "log-Euclidean"),
    "nn-affine-invariant": _neighbor("affine_invariant", "affine-invariant"),
    "nn-stein": _neighbor("stein", "Stein"),
    "mdm": _method(
        "minimum distance to mean",
        MinimumDistanceToMean,
        {"metric": "affine_invariant"},
        metric=["log_euclidean", "affine_invariant"],
    ),
    "logistic": _log_euclidean("logistic", "logistic regression"),
    "lda": _log_euclidean("lda", "LDA"),
    "ridge": _log_euclidean("ridge", "ridge regression"),
    "svm": _log_euclidean("svm", "SVM"),
    "svm-stein": _method("SVM, Stein kernel", SteinSVC, C=[1.0, 10.0, 100.0]),
    "cdl": _method("CDL", CDL, reg=[10.0**e for e in range(-2, 5)]),
    "cdl-pls": _method("CDL-PLS", CDL, {"discriminant": "pls"}, n_components=[None, 5, 10, 20, 40]),
    "leml": _method("LEML", LEML, **_METRIC_LEARNING),
    "spdml-aim": _spdml("affine_invariant", "AIM"),
    "spdml-stein": _SPDML_STEIN,
    "rsr": _RSR,
    "rsr-spdml": Method(
        "RSR-SPDML",
        lambda where: make_pipeline(_SPDML_STEIN.make(where), _RSR.make(where)),
        lambda n: {"spdml__n_components": _halves(n)},
    ),
    "herml": _method("HERML", HERML, takes="sets", **_METRIC_LEARNING),
    "expressionlets": _method(
        "expressionlets (reduced STM-ExpLet)",
        ExpressionletClassifier,
        takes="sets",
        n_modes=[4, 8, 16],
    ),
    "deepo2p": _method("DeepO2P", DeepO2PClassifier, takes="images", lr=[0.001, 0.003, 0.01]),
    **{f"spdnet-{k}": _network(f"SPDNet-{k}BiRe", k) for k in range(4)},
    "auto": _network("PortfolioNet, recipe auto"),
}
