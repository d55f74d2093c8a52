"""Experiments of the SPDNet paper: data sets, protocols, published results."""

from spdnet.paper.folder import ReproductionFolder
from spdnet.paper.report import write_reproduction
from spdnet.paper.reproduce import reproduce
from spdnet.paper.reproduction import Reproduction

__all__ = ["Reproduction", "ReproductionFolder", "reproduce", "write_reproduction"]
