"""Experiments of the SPDNet paper: data sets, protocols, published results."""

from spdnet.paper.report import write_reproduction
from spdnet.paper.reproduce import reproduce
from spdnet.paper.reproduction import Reproduction
from spdnet.paper.results import ReproductionFolder

__all__ = ["Reproduction", "ReproductionFolder", "reproduce", "write_reproduction"]
