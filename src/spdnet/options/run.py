"""The options of a run, a comparison and a reproduction."""

from dataclasses import dataclass, make_dataclass
from functools import partial
from typing import Any

from spdnet.options import recipe
from spdnet.options.kinds import (
    Choice,
    Count,
    FilePath,
    Flag,
    NameOr,
    Names,
    Natural,
    Number,
    Sizes,
    Text,
)
from spdnet.options.option import (
    DATA,
    NETWORK,
    RECIPE_NAMES,
    RUN,
    TRAINING,
    option,
    options,
    same,
    show,
)

#: data sets that are part of the library, with their number of features per pixel
EMBEDDED = {"digits": 17, "digits-small": 8}
EXPERIMENTS = ("afew", "hdm05", "pasc", "no-logeig", "epsilon", "convergence")
DTYPES = ("float64", "float32")
#: default fractions of a training
TEST_SIZE, VAL_SIZE = 0.2, 0.1

_data = partial(option, panel=DATA)
_training = partial(option, panel=TRAINING)
_run = partial(option, panel=RUN)
_other = partial(option, panel=None)


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options of the data and their preprocessing."""

    data: str = _data(
        FilePath(),
        ", ".join(f"`{name}`" for name in EMBEDDED)
        + ", a .npz or .npy file, or a folder with one subfolder per class",
        default=...,
    )
    labels: str | None = _data(
        FilePath(),
        "File with the labels of a .npy file. A .npy file, or text with one label per line.",
    )
    groups: str | None = _data(
        FilePath(),
        "File with the group label of each sample, for example the subject. A .npy file, or text "
        "with one label per line.",
    )
    signals: bool = _data(Flag(), "Treat X as signals even if it is square", default=False)
    estimator: str = _data(
        Choice("sample", "ledoit_wolf", "oas", "huber", "student_t", "tyler", "mcd"),
        "Covariance estimator for signals. The last four are robust against outliers.",
        default="sample",
    )
    reg: float = _data(
        Number(at_least=0),
        "Regularization of the covariance of signals, relative to its mean eigenvalue",
        default=1e-3,
    )
    bad: str = _data(
        Choice("refuse", "drop", "repair"),
        "Treatment of matrices that are not SPD",
        default="refuse",
    )
    rank: str | int = _data(
        NameOr(Count(), "auto", "full"),
        "Rank of the matrices. auto removes directions without variance in all training matrices "
        "if some are singular, and full keeps all. A number keeps that many directions of largest "
        "variance.",
        default="auto",
    )
    shrinkage: str | float = _data(
        NameOr(Number(at_least=0, below=1), "auto", "none"),
        "Shrinkage of the matrices toward a multiple of the identity. auto chooses it by "
        "cross-validation within the training set if some matrices are still singular, and none "
        "refuses singular matrices.",
        default="auto",
    )
    adapt: str = _data(
        Choice("none", "recenter", "rescale", "auto"),
        "Adaptation to domains, the groups of the data, such as subjects or sessions. recenter "
        "moves the mean of each domain to the identity, rescale also equalizes their dispersion, "
        "and auto accounts for different class proportions.",
        default="none",
    )


_recipe = option(
    Choice(*RECIPE_NAMES),
    "Name of a set of hyperparameters. auto chooses networks by cross-validation within the "
    "training set, fast trains one SPDNet, and paper has the settings of the paper. Other "
    "options override its values. An option of another network, such as dims, changes auto to "
    "fast.",
    default="auto",
    panel=NETWORK,
)
_dims = option(
    Sizes(),
    "Sizes of the matrices, such as 93,70,50,30. The size of the input, then of the output of "
    "each BiMap.",
    unset="from the data",
    panel=NETWORK,
)
_hyperparameters = [
    (name, Any, same(recipe.RecipeOptions, name, default=None))
    for name, found in options(recipe.RecipeOptions).items()
    if found.panel
]
_Settings: Any = make_dataclass(
    "_Settings",
    [("recipe", str, _recipe), ("dims", tuple[int, ...] | None, _dims), *_hyperparameters],
    bases=(DataOptions,),
    frozen=True,
    kw_only=True,
)


@dataclass(frozen=True, kw_only=True)
class RunOptions(_Settings):  # type: ignore[misc]
    """All options of a run, in the order of the help."""

    class_weight: str | None = _training(
        Choice("balanced", none=True),
        "Class weights in the loss. balanced gives all classes the same total weight in training "
        "and validation.",
        unset="none",
    )
    bad_trials: str = _training(
        Choice("none", "flag", "drop"),
        "Treatment of outlier trials. flag reports them, and drop also removes them from "
        "training and validation. Test trials are only reported.",
        default="none",
    )
    patience: int | None = _training(
        Count(),
        "Number of epochs without a lower validation loss after which training stops",
    )
    seed: int = _training(
        Natural(),
        "Random seed. It determines the splits, the initial weights and the order of the batches.",
        default=0,
    )
    device: str = _training(Text(), "Device, such as auto, cpu, cuda or cuda:1", default="auto")
    dtype: str = _training(
        Choice(*DTYPES),
        "Floating-point type",
        default="float64",
    )
    test: float | None = option(
        Number(at_least=0, below=1),
        "Test fraction",
        unset=f"{show(TEST_SIZE)}, or the split of the data",
        panel=DATA,
        flags=("--test", "--test-size"),
    )
    val: float | None = _data(
        Number(at_least=0, below=1),
        "Validation fraction, used to select the epoch. It is a fraction of the samples that are "
        "not test samples.",
        unset=f"{show(VAL_SIZE)}, or the split of the data; 0 with the recipe auto",
    )
    repeat: int = _run(
        Count(),
        "Number of runs, with seeds SEED, SEED+1, ...",
        default=1,
        flags=("--repeat", "--repeats"),
    )
    jobs: int | None = _run(
        Count(),
        "Number of processes that train repeats, or the folds of a comparison, in parallel. Each "
        "has one thread.",
        unset="one for each processor, at most 8; 1 on a GPU, and for repeats on more than 1 GiB",
    )
    baseline: bool = _run(Flag(), "Log-Euclidean linear baseline on the same split", default=True)


@dataclass(frozen=True, kw_only=True)
class CompareOptions(DataOptions):
    """Options of a comparison."""

    repeats: int | None = same(
        RunOptions,
        "repeat",
        help="Number of random splits, with seeds SEED, SEED+1, ...",
        default=None,
        unset="10, or 1 for the split of the data",
        flags=("--repeats", "--repeat"),
    )
    test_size: float = same(
        RunOptions,
        "test",
        kind=Number(above=0, below=1),
        default=0.5,  # random halves, as in the paper
        unset="",
        flags=("--test-size", "--test"),
    )
    seed: int = same(RunOptions, "seed")
    device: str = same(RunOptions, "device")
    epochs: int | None = same(RunOptions, "epochs", unset="that of the recipe fast")
    jobs: int | None = same(
        RunOptions,
        "jobs",
        help="Number of processes that fit methods in parallel. Each has one thread.",
        unset="one for each processor, at most 8; 1 on a GPU",
    )
    methods: tuple[str, ...] | None = _other(
        Names(),
        "Methods, such as cdl,rsr,spdnet-2, or all. They are nn-log-euclidean, "
        "nn-affine-invariant, nn-stein, mdm, logistic, lda, ridge, svm, svm-stein, cdl, cdl-pls, "
        "leml, spdml-aim, spdml-stein, rsr, rsr-spdml, spdnet-0 to spdnet-3, auto (the default "
        "network); herml and expressionlets for signals, deepo2p for the images of the digits.",
        unset="all",
    )
    protocol: str | None = _other(
        Choice("file", "groups", "random-halves"),
        "Split. file is the split of the data (validation counts as training), groups holds out "
        "random groups, and random-halves are stratified.",
        unset="the first of these that the data allow",
    )
    tune: bool = _other(
        Flag(),
        "Select the hyperparameters of each method by cross-validation on the training set",
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions:
    """Options of a reproduction."""

    experiment: str = _other(
        Choice(*EXPERIMENTS),
        "Experiment. The first three are rows of Table 1, no-logeig is the network without "
        "LogEig, epsilon and convergence are Figure 2.",
        default=...,
    )
    standin: str | None = _other(
        Text(),
        "Data used instead of the paper's: digits, generated, or a file of sequences or matrices",
    )
    quick: bool = _other(
        Flag(),
        "Two epochs on a few sequences, as a quick test whose scores are meaningless",
        default=False,
    )
    baselines: bool = _other(Flag(), "Also run the other methods of the table", default=False)
    recipe: str = same(RunOptions, "recipe", default="paper", panel=None)
    repeats: int | None = same(
        CompareOptions,
        "repeats",
        help="Number of runs, with seeds SEED, SEED+1, ...",
        unset="as in the paper, 10 for hdm05 and 1 for others",
        panel=None,
    )
    epochs: int | None = same(
        RunOptions,
        "epochs",
        unset="as in the paper, 100 for pasc and 500 for others",
        panel=None,
    )
    classes: int | None = _other(
        Count(),
        "Number of classes, those with the most sequences; 117 is usual for HDM05",
    )
    root: int | None = _other(
        Natural(),
        "Index of the joint that is the origin of the positions",
        unset="absolute positions, as in the paper",
    )
    clips: bool = _other(Flag(), "Cut training sequences into clips", default=True)
    score: str = _other(
        Choice("features", "logits"),
        "Input of verification. features are the output of LogEig.",
        default="features",
    )
    seed: int = same(RunOptions, "seed", panel=None)
    device: str = same(RunOptions, "device", panel=None)
    dtype: str = same(RunOptions, "dtype", panel=None)
