"""The options of ``spdnet train``, in the order of its help."""

from pathlib import Path
from typing import Annotated

import typer

from spdnet.cli.options import DATA, GROUPS, LABELS

INPUT, NETWORK, TRAINING, RUN = "Data", "Network", "Training", "Run"  # panels of help

Input = Annotated[str | None, typer.Argument(metavar="DATA", help=DATA)]
SettingsFile = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=RUN, help="TOML file of settings; the keys are the names of options."
    ),
]
Recipe = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=NETWORK,
        help="Settings under one name: default or paper. [default: default]",
    ),
]
Dims = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=NETWORK, help="Sizes such as 93,70,50,30. [default: from the data]"
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=NETWORK,
        help="spdnet, multibranch, or tsmnet for signals. [default: spdnet]",
    ),
]
Norm = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=NETWORK,
        help="Batch normalisation: brooks, log_euclidean, affine_invariant, log_cholesky or "
        "none. [default: none]",
    ),
]
Head = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=NETWORK,
        help="Classifier: linear, or Riemannian in the metric log_euclidean, log_cholesky, "
        "power_euclidean, affine_invariant or bures_wasserstein. [default: linear]",
    ),
]
Log = Annotated[
    bool | None,
    typer.Option(rich_help_panel=NETWORK, help="Whether SPDNet ends with LogEig. [default: yes]"),
]
Epochs = Annotated[
    int | None,
    typer.Option(rich_help_panel=TRAINING, help="Passes over the data. [default: 60, paper 500]"),
]
BatchSize = Annotated[
    int | None, typer.Option(rich_help_panel=TRAINING, help="Matrices in a step. [default: 30]")
]
Lr = Annotated[
    float | None,
    typer.Option(
        "--lr",
        "--learning-rate",
        rich_help_panel=TRAINING,
        help="Learning rate at the start. [default: 0.01]",
    ),
]
Eps = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=NETWORK, help="Threshold of ReEig: a number, or 10%. [default: 1e-4]"
    ),
]
Optimizer = Annotated[
    str | None,
    typer.Option(rich_help_panel=TRAINING, help="adam or sgd. [default: adam, paper sgd]"),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=TRAINING, help="constant or cosine. [default: cosine, paper constant]"
    ),
]
Momentum = Annotated[
    float | None, typer.Option(rich_help_panel=TRAINING, help="Of sgd. [default: 0]")
]
WeightDecay = Annotated[
    float | None,
    typer.Option(rich_help_panel=TRAINING, help="Of all weights but BiMaps'. [default: 0]"),
]
LabelSmoothing = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=TRAINING, help="Of the targets in training. [default: 0.1, paper 0]"
    ),
]
ClassWeight = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=TRAINING,
        help="balanced: rare classes count as much as frequent ones. [default: none]",
    ),
]
Center = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=NETWORK,
        help="log_euclidean, affine_invariant or none. [default: log_euclidean, paper none]",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(rich_help_panel=TRAINING, help="Of splits, weights and batches. [default: 0]"),
]
Device = Annotated[
    str | None,
    typer.Option(rich_help_panel=TRAINING, help="auto, cpu, cuda, cuda:1. [default: auto]"),
]
Dtype = Annotated[
    str | None,
    typer.Option(rich_help_panel=TRAINING, help="float64 or float32. [default: float64]"),
]
Test = Annotated[
    float | None,
    typer.Option(
        "--test",
        "--test-size",
        rich_help_panel=INPUT,
        help="Part held out for the result. [default: 0.2, or as the data say]",
    ),
]
Val = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=INPUT,
        help="Part of the rest that chooses the epoch. [default: 0.1, or as the data say]",
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        rich_help_panel=TRAINING,
        help="Stop after so many epochs without a lower validation loss.",
    ),
]
Repeat = Annotated[
    int | None,
    typer.Option(
        "--repeat",
        "--repeats",
        rich_help_panel=RUN,
        help="Train so often, with seeds that follow. [default: 1]",
    ),
]
Bad = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=INPUT,
        help="Matrices that are not SPD: refuse, drop or repair. [default: refuse]",
    ),
]
Labels = Annotated[
    str | None,
    typer.Option(rich_help_panel=INPUT, help=LABELS),
]
Groups = Annotated[
    str | None,
    typer.Option(rich_help_panel=INPUT, help=GROUPS),
]
Signals = Annotated[
    bool | None,
    typer.Option("--signals", rich_help_panel=INPUT, help="X are signals even if they are square."),
]
Estimator = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=INPUT,
        help="Covariance of signals: sample, ledoit_wolf or oas. [default: sample]",
    ),
]
Reg = Annotated[
    float | None,
    typer.Option(
        rich_help_panel=INPUT, help="Added to it, times the mean eigenvalue. [default: 0.001]"
    ),
]
Baseline = Annotated[
    bool | None,
    typer.Option(
        rich_help_panel=RUN, help="Fit the log-Euclidean baseline beside it. [default: yes]"
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=RUN,
        help="Folder of the run. [default: runs/NAME; for a second one runs/NAME-2]",
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        rich_help_panel=RUN,
        help="Resume the run in --out. A larger --epochs extends it.",
    ),
]
Devices = Annotated[
    int,
    typer.Option(
        rich_help_panel=RUN,
        help="Processes that divide each batch among them, each with a GPU or with the CPU.",
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", rich_help_panel=RUN, help="No line for each epoch, no bar.")
]
