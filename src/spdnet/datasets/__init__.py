"""Data sets of SPD matrices: embedded, from files, and what is wrong with them."""

from spdnet.datasets.digits import load_digits_spd
from spdnet.datasets.examine import Examination, examine, treat
from spdnet.datasets.readers import DataError, LabelledArrays, read
from spdnet.datasets.split import hold_out

__all__ = [
    "DataError",
    "Examination",
    "LabelledArrays",
    "examine",
    "hold_out",
    "load_digits_spd",
    "read",
    "treat",
]
