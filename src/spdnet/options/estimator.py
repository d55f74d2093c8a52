"""Parameters of the scikit-learn classifier."""

from dataclasses import make_dataclass
from functools import partial
from typing import Any

from spdnet.options import recipe
from spdnet.options.kinds import AnyOf, Count, Flag, Number, Sizes
from spdnet.options.option import RUN, TRAINING, option, options, same
from spdnet.options.run import RunOptions

_training = partial(option, panel=TRAINING)
_run = partial(option, panel=RUN)

#: parameters that replace the hyperparameters of the recipe
HYPERPARAMETERS = {
    name: same(recipe.RecipeOptions, name, default=None)
    for name, found in options(recipe.RecipeOptions).items()
    if found.panel and found.in_estimator
}
HYPERPARAMETERS["model"] = same(
    recipe.RecipeOptions,
    "model",
    default=None,
    help="Network. Also a subclass of ``torch.nn.Module``, constructed by ``Class(n, n_classes)``: "
    "see :class:`spdnet.models.Model`.",
)
_PARAMETERS = {
    "dims": _training(
        Sizes(),
        "Sizes of the matrices: of the input, then after each BiMap. The size of the input may be "
        "omitted if the first BiMap reduces it. Default: see :func:`spdnet.training.choose_dims`. "
        "Other models may have other sizes.",
    ),
    "recipe": same(
        RunOptions,
        "recipe",
        help="Name of a set of hyperparameters. See :class:`spdnet.training.Recipe`. The "
        "parameters from ``model`` to ``label_smoothing`` replace its values if they are not None.",
    ),
    **HYPERPARAMETERS,
    "rank": same(RunOptions, "rank"),
    "shrinkage": same(RunOptions, "shrinkage"),
    "adapt": same(
        RunOptions,
        "adapt",
        help="Adaptation to the ``domains`` of matrices, if they are given to :meth:`fit`. "
        "recenter moves the mean of each domain to the identity, rescale also equalizes their "
        "dispersion, and auto accounts for different class proportions.",
        default="auto",
    ),
    "class_weight": _run(AnyOf('dict or "balanced"'), "Weights of the classes in the loss"),
    "early_stopping": _training(
        Flag(),
        "Whether to hold out a validation part, stop when its loss has not decreased for "
        "``n_iter_no_change`` epochs, and keep the epoch with the lowest loss",
        default=False,
    ),
    "validation_fraction": _training(
        Number(above=0, below=1),
        "Validation fraction for ``early_stopping``. The split is stratified, or by whole groups "
        "if ``groups`` or ``domains`` are given to :meth:`fit`.",
        default=0.1,
    ),
    "n_iter_no_change": _training(
        Count(),
        "Number of epochs without a lower validation loss after which training stops, with "
        "``early_stopping``",
        default=10,
    ),
    "warm_start": _run(
        Flag(), "Whether to continue from the network of the last fit", default=False
    ),
    "random_state": _run(
        AnyOf("int or RandomState"),
        "Random seed of the initial weights, the order of the batches and the validation split",
    ),
    "device": same(
        RunOptions,
        "device",
        help="Device, such as auto, cpu, cuda or cuda:1. The fitted network is kept on the CPU, so "
        "that it can be unpickled on any machine.",
    ),
    "n_jobs": _run(
        AnyOf("int"),
        "Number of processes that compare networks by cross-validation, on a CPU. None is one "
        "process, unless in a ``joblib.parallel_config`` context; -1 is all processors.",
    ),
    "dtype": same(RunOptions, "dtype"),
    "verbose": _run(Count(), "Number of epochs between printed lines; 0 prints nothing", default=0),
}
_PARAMETERS["dims"].kw_only = False

#: base class with the parameters as fields: ``dims`` is positional, the others are keywords
EstimatorOptions: Any = make_dataclass(
    "EstimatorOptions",
    [(name, Any, described) for name, described in _PARAMETERS.items()],
    kw_only=True,
    repr=False,
    eq=False,
)
