"""Run folders: training, evaluation and comparison of models, with their results on disk."""

from spdnet.runs.compare import Comparison, compare
from spdnet.runs.comparison import ComparisonFolder
from spdnet.runs.run_folder import RunFolder
from spdnet.runs.settings import Settings
from spdnet.runs.train import train
from spdnet.runs.trained_model import TrainedModel

__all__ = [
    "Comparison",
    "ComparisonFolder",
    "RunFolder",
    "Settings",
    "TrainedModel",
    "compare",
    "train",
]
