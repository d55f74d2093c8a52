"""HTML reports of runs and comparisons."""

from spdnet.runs.report.page import make_page, write_report

__all__ = ["make_page", "write_report"]
