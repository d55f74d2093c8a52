"""From data to a trained and evaluated network in a run folder; what the command line does."""

from spdnet.experiments.compare import Comparison, compare
from spdnet.experiments.comparison_folder import ComparisonFolder
from spdnet.experiments.reproduce import reproduce
from spdnet.experiments.reproduction import Reproduction
from spdnet.experiments.reproduction_folder import ReproductionFolder
from spdnet.experiments.run_folder import RunFolder
from spdnet.experiments.settings import Settings
from spdnet.experiments.train import train
from spdnet.experiments.trained import Trained

__all__ = [
    "Comparison",
    "ComparisonFolder",
    "Reproduction",
    "ReproductionFolder",
    "RunFolder",
    "Settings",
    "Trained",
    "compare",
    "reproduce",
    "train",
]
