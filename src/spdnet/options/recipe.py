"""The hyperparameters."""

from dataclasses import dataclass

from spdnet.models.registry import MODELS
from spdnet.options.kinds import Choice, Count, Flag, ModelName, Number, Threshold
from spdnet.options.option import NETWORK, TRAINING, hyperparameter


@dataclass(frozen=True, kw_only=True)
class RecipeOptions:
    """Hyperparameters in the order of the help, with the defaults of the recipe ``default``."""

    model: str = hyperparameter(
        ModelName(),
        "Network",
        detail=" ".join(f"{name} {model.note}." for name, model in MODELS.items() if model.note),
        default="spdnet",
        panel=NETWORK,
    )
    norm: str | None = hyperparameter(
        Choice(
            ("brooks", "log_euclidean", "affine_invariant", "log_cholesky"),
            none=True,
            verb="normalization",
        ),
        "Batch normalization after each BiMap",
        default=None,
        neutral=None,
        panel=NETWORK,
    )
    head: str = hyperparameter(
        Choice(
            (
                "linear",
                "log_euclidean",
                "affine_invariant",
                "log_cholesky",
                "power_euclidean",
                "bures_wasserstein",
            ),
            verb="logits",
        ),
        "Classifier",
        detail="A metric selects Riemannian logistic regression instead of LogEig and linear.",
        default="linear",
        neutral="linear",
        panel=NETWORK,
    )
    log: bool = hyperparameter(
        Flag(),
        "LogEig before the linear classifier",
        detail="Without it, SPDNet is the ablation of the paper.",
        default=True,
        neutral=True,
        panel=NETWORK,
        in_estimator=False,
    )
    eps: float | str = hyperparameter(
        Threshold(),
        "Threshold of ReEig",
        detail="A number, or a percentage of the eigenvalues such as 10%.",
        default=1e-4,
        panel=NETWORK,
    )
    center: str | None = hyperparameter(
        Choice(
            (
                "log_euclidean",
                "affine_invariant",
                "log_cholesky",
                "power_euclidean",
                "bures_wasserstein",
                "stein",
            ),
            none=True,
            verb="mean",
        ),
        "Metric of the mean of the training data, which centering maps to the identity",
        default="log_euclidean",
        neutral=None,
        recipes={"paper": None},
        panel=NETWORK,
    )
    epochs: int = hyperparameter(
        Count(),
        "Number of passes over the training data",
        default=60,
        recipes={"paper": 500},
        panel=TRAINING,
    )
    batch_size: int = hyperparameter(
        Count(), "Number of samples in a training step", default=30, panel=TRAINING
    )
    lr: float = hyperparameter(
        Number(at_least=0),
        "Initial learning rate",
        default=0.01,
        panel=TRAINING,
        flags=("--lr", "--learning-rate"),
    )
    optimizer: str = hyperparameter(
        Choice(("adam", "sgd")),
        "Riemannian optimizer",
        default="adam",
        recipes={"paper": "sgd"},
        panel=TRAINING,
    )
    schedule: str = hyperparameter(
        Choice(("constant", "cosine")),
        "Learning rate schedule",
        detail="cosine decreases the learning rate to zero.",
        default="cosine",
        recipes={"paper": "constant"},
        panel=TRAINING,
    )
    momentum: float = hyperparameter(
        Number(at_least=0),
        "Momentum of SGD",
        default=0.0,
        panel=TRAINING,
    )
    weight_decay: float = hyperparameter(
        Number(at_least=0),
        "Weight decay of all weights except those of BiMaps",
        default=0.0,
        panel=TRAINING,
    )
    label_smoothing: float = hyperparameter(
        Number(at_least=0, below=1),
        "Label smoothing of the training loss",
        detail="It reduces overconfidence when a small training set is overfitted.",
        default=0.1,
        recipes={"paper": 0.0},
        panel=TRAINING,
    )
    bias: bool = hyperparameter(
        Flag(),
        "Bias of the linear classifier",
        detail="The logarithms of centered data are near zero: without a bias, the network "
        "predicts rare classes as often as frequent ones.",
        default=True,
        recipes={"paper": False},
        panel=None,
    )
