"""HTML reports of runs and comparisons."""

from spdnet.runs.report.page import make_comparison, make_page, write_comparison, write_report

__all__ = ["make_comparison", "make_page", "write_comparison", "write_report"]
