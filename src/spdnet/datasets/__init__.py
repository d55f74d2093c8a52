"""Data sets of SPD matrices: embedded, from files, and what is wrong with them."""

from spdnet.datasets.build import Descriptor, build
from spdnet.datasets.digits import load_digits_spd
from spdnet.datasets.errors import DataError
from spdnet.datasets.examine import Examination, examine, treat
from spdnet.datasets.readers import LabelledArrays, read
from spdnet.datasets.split import hold_out
from spdnet.datasets.store import StoredArray, open_stored
from spdnet.datasets.store_writer import StoreWriter

__all__ = [
    "DataError",
    "Descriptor",
    "Examination",
    "LabelledArrays",
    "StoreWriter",
    "StoredArray",
    "build",
    "examine",
    "hold_out",
    "load_digits_spd",
    "open_stored",
    "read",
    "treat",
]
