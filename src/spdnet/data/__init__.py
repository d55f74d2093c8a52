"""Data sets of SPD matrices: embedded, from files, and what is wrong with them."""

from spdnet.data.build import Descriptor, build
from spdnet.data.digits import load_digits_spd
from spdnet.data.errors import DataError
from spdnet.data.examine import Examination, examine, treat
from spdnet.data.io.readers import LabelledArrays, read
from spdnet.data.split import hold_out
from spdnet.data.store import StoredArray, open_stored
from spdnet.data.store_writer import StoreWriter

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
