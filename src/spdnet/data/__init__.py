"""Data sets of SPD matrices: reading, building, checking and splitting."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spdnet.data.dataset import Dataset
    from spdnet.data.descriptor import Descriptor, build
    from spdnet.data.digits import load_digits_spd
    from spdnet.data.errors import DataError
    from spdnet.data.examination import Examination, clean, examine
    from spdnet.data.io.readers import load_dataset, read
    from spdnet.data.preprocessing import Preprocessing, prepare
    from spdnet.data.split import Split, hold_out, make_split
    from spdnet.data.store import StoredArray, open_stored
    from spdnet.data.store_writer import StoreWriter

__all__ = [
    "DataError",
    "Dataset",
    "Descriptor",
    "Examination",
    "Preprocessing",
    "Split",
    "StoreWriter",
    "StoredArray",
    "build",
    "clean",
    "examine",
    "hold_out",
    "load_dataset",
    "load_digits_spd",
    "make_split",
    "open_stored",
    "prepare",
    "read",
]

_MODULES = {
    "dataset": ("Dataset",),
    "descriptor": ("Descriptor", "build"),
    "digits": ("load_digits_spd",),
    "errors": ("DataError",),
    "examination": ("Examination", "clean", "examine"),
    "io.readers": ("load_dataset", "read"),
    "preprocessing": ("Preprocessing", "prepare"),
    "split": ("Split", "hold_out", "make_split"),
    "store": ("StoredArray", "open_stored"),
    "store_writer": ("StoreWriter",),
}


def __getattr__(name: str) -> Any:
    # loaded on first use: the estimators split data without the file readers
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"spdnet.data.{module}"), name)
    raise AttributeError(f"module 'spdnet.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
