"""The options of a run and of a comparison."""

from dataclasses import dataclass, fields, make_dataclass
from functools import partial
from typing import Any

from spdnet.options import recipe
from spdnet.options.kinds import Choice, Count, FilePath, Flag, Number, Seed, Sizes, Text
from spdnet.options.option import DATA, NETWORK, RECIPE_NAMES, RUN, TRAINING, option, same, show

#: data sets with a name instead of a file: number of features of a pixel
EMBEDDED = {"digits": 17, "digits-small": 8}
DTYPES = ("float64", "float32")
#: default fractions of a training
TEST_SIZE, VAL_SIZE = 0.2, 0.1

_data = partial(option, panel=DATA)
_training = partial(option, panel=TRAINING)
_run = partial(option, panel=RUN)


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """Options of the data and their preprocessing."""

    data: str = _data(
        FilePath(),
        ", ".join(f"`{name}`" for name in EMBEDDED)
        + ", a .npz or .npy file, or a folder with one subfolder per class",
    )
    labels: str | None = _data(
        FilePath(),
        "File with the labels of a .npy file",
        detail="A .npy file, or text with one label per line.",
        default=None,
    )
    groups: str | None = _data(
        FilePath(),
        "File with the group label of each sample, for example the subject",
        detail="A .npy file, or text with one label per line.",
        default=None,
    )
    signals: bool = _data(
        Flag(), "Treat X as signals even if it is square", default=False, flags=("--signals",)
    )
    estimator: str = _data(
        Choice(("sample", "ledoit_wolf", "oas")),
        "Covariance estimator for signals",
        default="sample",
    )
    reg: float = _data(
        Number(at_least=0),
        "Regularization of the covariance of signals, relative to its mean eigenvalue",
        default=1e-3,
    )
    bad: str = _data(
        Choice(("refuse", "drop", "repair")),
        "Treatment of matrices that are not SPD",
        default="refuse",
    )


_recipe = option(
    Choice(RECIPE_NAMES),
    "Name of a set of hyperparameters",
    detail="auto chooses networks by cross-validation within the training set, fast trains one "
    "SPDNet, and paper has the settings of the paper. Other options replace values; with one of "
    "another network, such as dims, auto becomes fast.",
    default="auto",
    panel=NETWORK,
)
_dims = option(
    Sizes(),
    "Sizes of the matrices, such as 93,70,50,30",
    detail="The size of the input, then of the output of each BiMap.",
    default=None,
    unset="from the data",
    panel=NETWORK,
)
_hyperparameters = [
    (f.name, Any, same(recipe.RecipeOptions, f.name, default=None))
    for f in fields(recipe.RecipeOptions)
    if f.metadata["option"].panel
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
        Choice(("balanced",), none=True),
        "Class weights in the loss",
        detail="balanced gives all classes the same total weight in training and validation.",
        default=None,
        unset="none",
    )
    patience: int | None = _training(
        Count(),
        "Number of epochs without a lower validation loss after which training stops",
        default=None,
    )
    seed: int = _training(
        Seed(),
        "Random seed",
        detail="It determines the splits, the initial weights and the order of the batches.",
        default=0,
    )
    device: str = _training(Text(), "Device, such as auto, cpu, cuda or cuda:1", default="auto")
    dtype: str = _training(
        Choice(DTYPES),
        "Floating-point type",
        default="float64",
    )
    test: float | None = option(
        Number(at_least=0, below=1),
        "Test fraction",
        default=None,
        unset=f"{show(TEST_SIZE)}, or the split of the data",
        panel=DATA,
        flags=("--test", "--test-size"),
    )
    val: float | None = _data(
        Number(at_least=0, below=1),
        "Validation fraction, used to select the epoch",
        detail="It is a fraction of the samples that are not test samples.",
        default=None,
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
        "Number of processes that train repeats side by side",
        detail="Each has one thread.",
        default=None,
        unset="one for each processor, at most 8; 1 on a GPU and for data of more than 1 GiB",
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
        default=0.5,  # the random halves of the paper
        unset="",
        flags=("--test-size", "--test"),
    )
    seed: int = same(RunOptions, "seed")
    device: str = same(RunOptions, "device")
    epochs: int | None = same(RunOptions, "epochs", unset="that of the recipe fast")
    jobs: int | None = same(
        RunOptions,
        "jobs",
        help="Number of processes that fit methods side by side",
        unset="one for each processor, at most 8; 1 on a GPU",
    )
