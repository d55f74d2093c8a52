"""Data sets of SPD matrices: reading, building, checking and splitting."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spdnet.data.dataset import Dataset as Dataset
    from spdnet.data.descriptor import Descriptor as Descriptor
    from spdnet.data.descriptor import build as build
    from spdnet.data.digits import load_digits_spd as load_digits_spd
    from spdnet.data.errors import DataError as DataError
    from spdnet.data.examination import Examination as Examination
    from spdnet.data.examination import clean as clean
    from spdnet.data.examination import examine as examine
    from spdnet.data.io.readers import load_dataset as load_dataset
    from spdnet.data.io.readers import read as read
    from spdnet.data.preprocessing import Preprocessing as Preprocessing
    from spdnet.data.preprocessing import prepare as prepare
    from spdnet.data.split import Split as Split
    from spdnet.data.split import hold_out as hold_out
    from spdnet.data.split import make_split as make_split
    from spdnet.data.store import StoredArray as StoredArray
    from spdnet.data.store import open_stored as open_stored
    from spdnet.data.store_writer import StoreWriter as StoreWriter

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

__all__ = sorted(name for names in _MODULES.values() for name in names)


def __getattr__(name: str) -> Any:
    # load on first access: the estimators use only the splits, not the file readers
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"spdnet.data.{module}"), name)
    raise AttributeError(f"module 'spdnet.data' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
