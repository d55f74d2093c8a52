"""Splits of the data of a run."""

from torch.nn import Module

from spdnet.data import Dataset, Preprocessing, Split, make_split
from spdnet.nn import ReEig
from spdnet.runs import findings
from spdnet.runs.settings import Settings


def divide(data: Dataset, settings: Settings) -> Split:
    """Split the data of a run."""
    fractions = settings.fractions(named_parts=data.split is not None)
    split = make_split(data, **fractions, seed=settings.seed, who="train")
    if settings.patience is not None and len(split.parts["val"]) == 0:
        raise ValueError("train: expected validation data with patience, got none; set val above 0")
    return split


def advice(split: Split, settings: Settings, model: Module, *, alone: bool) -> list[str]:
    """Return advice for the user; a run that is ``alone`` may be repeated."""
    found = []
    if alone and split.groups.get(split.scored) == 1 and split.scored != "train":
        found.append(findings.one_group(split.scored, drawn=split.drawn))
    if settings.replaces("eps") and not any(isinstance(m, ReEig) for m in model.modules()):
        found.append(findings.NO_EFFECT)
    return found


def describe(data: Dataset, preprocessing: Preprocessing, split: Split) -> str:
    """Describe the data and their split in one line."""
    what = preprocessing.describe(len(data.X))
    return f"{what}, {len(data.classes)} classes: {split.sizes}"
