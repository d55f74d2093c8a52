"""The report of a run: one HTML page that needs nothing else."""

from spdnet.report.page import make_page, write_report

__all__ = ["make_page", "write_report"]
