"""The hyperparameters."""

from dataclasses import dataclass
from functools import partial

from spdnet.models.registry import MODELS
from spdnet.options.kinds import Choice, Count, Flag, Members, ModelName, Number, Threshold
from spdnet.options.option import NETWORK, TRAINING, hyperparameter

_METRICS = ("log_euclidean", "affine_invariant", "log_cholesky")
_MORE_METRICS = (*_METRICS, "power_euclidean", "bures_wasserstein")
_network = partial(hyperparameter, panel=NETWORK)
_training = partial(hyperparameter, panel=TRAINING)


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """Hyperparameters in the order of the help, with the defaults of the recipe ``fast``."""

    model: str = _network(
        ModelName(),
        ". ".join(
            ["Network", *(f"{name} {model.note}" for name, model in MODELS.items() if model.note)]
        ),
        default="spdnet",
        recipes={"auto": "portfolio"},
    )
    members: tuple[str, ...] | str | None = _network(
        Members(),
        "Members of a portfolio. auto compares all of them by cross-validation within the "
        "training set, and keeps the best.",
        default=None,
        neutral=None,
        recipes={"auto": "auto"},
    )
    ensemble: int = _network(
        Count(),
        "Number of networks that are averaged, with different initial weights. The members "
        "of a portfolio are repeated until there are this many networks.",
        default=1,
        neutral=1,
        recipes={"auto": 4},
    )
    norm: str | None = _network(
        Choice("brooks", "domain", *_METRICS, none=True, verb="normalization"),
        "Batch normalization after each BiMap. domain normalizes each domain by its own "
        "statistics, and adapts to new domains.",
        default=None,
        neutral=None,
    )
    head: str = _network(
        Choice("linear", "mlp", *_MORE_METRICS, verb="logits"),
        "Classifier. mlp has a hidden layer, batch normalization and dropout. A metric selects "
        "Riemannian logistic regression instead of LogEig and linear.",
        default="linear",
        neutral="linear",
    )
    hidden: int = _network(
        Count(), "Size of the hidden layer of head mlp", default=256, neutral=256
    )
    dropout: float = _network(
        Number(at_least=0, below=1),
        "Dropout probability in the hidden layer of head mlp",
        default=0.5,
        neutral=0.5,
    )
    log: bool = _network(
        Flag(),
        "LogEig before the head linear or mlp. Without it, SPDNet is the ablation of the paper.",
        default=True,
        neutral=True,
        in_estimator=False,
    )
    eps: float | str = _network(
        Threshold(),
        "Threshold of ReEig. A number, or a percentage of the eigenvalues such as 10%.",
        default=1e-4,
    )
    center: str | None = _network(
        Choice(*_MORE_METRICS, "stein", none=True, verb="mean"),
        "Metric of the mean of the training data, which centering maps to the identity",
        default="log_euclidean",
        neutral=None,
        recipes={"paper": None},
    )
    epochs: int = _training(
        Count(), "Number of passes over the training data", default=60, recipes={"paper": 500}
    )
    batch_size: int = _training(
        Count(), "Number of samples in a training step", default=30, recipes={"auto": 64}
    )
    lr: float = _training(
        Number(at_least=0),
        "Initial learning rate",
        default=0.003,
        recipes={"paper": 0.01},
        flags=("--lr", "--learning-rate"),
    )
    optimizer: str = _training(
        Choice("adam", "sgd"), "Riemannian optimizer", default="adam", recipes={"paper": "sgd"}
    )
    schedule: str = _training(
        Choice("constant", "cosine"),
        "Learning rate schedule. cosine decreases the learning rate to zero.",
        default="cosine",
        recipes={"paper": "constant"},
    )
    momentum: float = _training(Number(at_least=0), "Momentum of SGD", default=0.0)
    weight_decay: float = _training(
        Number(at_least=0), "Weight decay of all weights except those of BiMaps", default=0.0
    )
    label_smoothing: float = _training(
        Number(at_least=0, below=1),
        "Label smoothing of the training loss. It reduces overconfidence when a small training "
        "set is overfitted.",
        default=0.1,
        recipes={"paper": 0.0},
    )
    bias: bool = hyperparameter(
        Flag(),
        "Bias of the linear classifier. The logarithms of centered data are near zero: without a "
        "bias, the network predicts rare classes as often as frequent ones.",
        default=True,
        recipes={"paper": False},
        panel=None,
    )
    n_samples: int | None = hyperparameter(
        Count(),
        "Number of training samples, set by training",
        default=None,
        neutral=None,
        panel=None,
    )
