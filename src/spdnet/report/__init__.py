"""The report of a run: one HTML page that needs nothing else."""

from spdnet.report.comparison import make_comparison, write_comparison
from spdnet.report.page import make_page, write_report
from spdnet.report.reproduction import write_reproduction

__all__ = [
    "make_comparison",
    "make_page",
    "write_comparison",
    "write_report",
    "write_reproduction",
]
