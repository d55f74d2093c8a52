"""Index files of the SPD data sets published by the authors of SPDNet."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from numpy.typing import NDArray

from spdnet.data.dataset import is_integer_valued
from spdnet.data.errors import DataError
from spdnet.data.io.files import safe_parts
from spdnet.data.io.matlab import load_mat

#: parts of the data by their number in the index
_SETS = {1: "train", 2: "test"}


class Index(NamedTuple):
    """Files of an index, by the parts of their paths, with classes from 1, parts and groups.

    The group of a clip is its path without the number of the clip.
    """

    files: list[tuple[str, ...]]
    y: NDArray[numpy.int64]
    split: NDArray[Any]
    groups: NDArray[Any]


def read_index(path: str | Path | bytes, name: str | None = None) -> Index:
    r"""Read an index of the authors' SPD data sets.

    It is a struct with ``spd.name`` (paths such as ``train\1\10_2.mat``), ``spd.label`` and
    ``spd.set`` (1 for training, 2 for testing). ``path`` is a ``.mat`` file or its contents, and
    ``name`` is used in messages. Names that lead out of the folder are refused.
    """
    structs = load_mat(path, name).values()
    if name is None:
        name = "the index" if isinstance(path, bytes) else str(path)
    try:
        table = next(s["spd"] for s in structs if isinstance(s, dict) and "spd" in s)
        names = [table["name"]] if isinstance(table["name"], str) else list(table["name"])
        labels, sets = (numpy.ravel(table[k]) for k in ("label", "set"))
    except (StopIteration, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"read_index: expected an index of SPD data in {name}, got something else"
        ) from error
    if not len(names) == len(labels) == len(sets) or len(names) == 0:
        raise DataError(
            f"read_index: expected a name, a label and a set for each file in {name}, got "
            f"{len(names)}, {len(labels)} and {len(sets)}"
        )
    if not all(v.dtype.kind in "iuf" and is_integer_valued(v).all() for v in (labels, sets)):
        raise DataError(f"read_index: expected integers as labels and sets in {name}, got others")
    if unknown := sorted({int(s) for s in sets} - set(_SETS)):
        raise DataError(f"read_index: expected sets 1 and 2 in {name}, got {unknown[0]}")
    files = [_parts(file, name) for file in names]
    return Index(
        files,
        labels.astype(numpy.int64),
        numpy.array([_SETS[int(s)] for s in sets]),
        numpy.array([re.sub(r"_\d+$", "", "/".join(parts)[:-4]) for parts in files]),
    )


def _parts(file: Any, index: str) -> tuple[str, ...]:
    parts = safe_parts(file) if isinstance(file, str) else None
    if parts is None or not parts[-1].lower().endswith(".mat"):
        raise DataError(
            f"read_index: expected names of .mat files below one folder in {index}, got {file!r}"
        )
    return parts
