"""The variables of a file, whichever version it has."""

import struct
from pathlib import Path
from typing import Any

from spdnet.data.errors import DataError
from spdnet.data.io.matlab import reader as reader_module
from spdnet.data.io.matlab.version5 import Version5
from spdnet.data.io.matlab.version73 import Version73

_HDF5 = b"\x89HDF\r\n\x1a\n"


def load_mat(
    file: str | Path | bytes | bytearray | memoryview, name: str | None = None
) -> dict[str, Any]:
    """The variables of a MATLAB file, by name.

    Files of versions 5 to 7 are read here; those of version 7.3 with h5py, if it is installed.

    ========================  ==============================================================
    numbers, real or complex  array with the axes that MATLAB has, two or more
    logical                   array of bool
    char                      str; list of str, one a row, if there are several rows
    cell                      list, column by column
    struct                    dict; list of dict, column by column, unless it is 1 by 1
    sparse, function handle,  left out, and None inside of a cell or struct; an error if the
    object, char of 3 axes    file has nothing else
    ========================  ==============================================================

    Nothing in the file is run, and nothing outside of it is opened.

    Parameters
    ----------
    file : path or bytes
    name : str, optional
        What messages call the file.

    Raises
    ------
    DataError
        The file is damaged, of another kind, or takes more than ``MAX_BYTES``.
    FileNotFoundError, PermissionError

    Examples
    --------
    >>> import io, numpy
    >>> from scipy.io import savemat
    >>> from spdnet.data.io.matlab import load_mat
    >>> file = io.BytesIO()
    >>> savemat(file, {"X": numpy.eye(2), "who": "me"})
    >>> load_mat(file.getvalue())
    {'X': array([[1., 0.], [0., 1.]]), 'who': 'me'}
    """
    if isinstance(file, str | Path):
        name = name or str(file)
        data = _bytes(Path(file), name)
    else:
        name = name or "the file"
        data = file if isinstance(file, bytes) else bytes(memoryview(file))
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128], "")
    version = data[124:126][:: -1 if order == "<" else 1]
    reader: Version5 | Version73
    try:
        if order and version == b"\1\0":
            reader = Version5(order)
        elif order and version == b"\2\0" and data[512:520] == _HDF5:
            reader = Version73()
        else:
            raise DataError(f"expected a MATLAB file of version 5 or later, got {_looks(data)}")
        found = reader.variables(data)
    except DataError as error:
        raise DataError(
            f"load_mat: {error}, in {name}; save it again with MATLAB's save -v7"
        ) from error
    except Exception as error:  # zlib, numpy, and h5py in many ways
        raise DataError(
            f"load_mat: expected a MATLAB file, but {name} is damaged: {error!r}"
        ) from error
    if reader.refused and not found:
        raise DataError(
            f"load_mat: expected arrays, got only {', '.join(sorted(reader.refused))}, in {name}; "
            "convert them in MATLAB, for example with full(X) or double(X), and save them again"
        )
    return found


def _bytes(path: Path, name: str) -> bytes:
    try:
        if not path.is_file():
            raise FileNotFoundError(f"load_mat: expected a file at {name}, got none")
        if (size := path.stat().st_size) <= reader_module.MAX_BYTES:
            return path.read_bytes()
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise DataError(f"load_mat: expected to read {name}, got {error}") from error
    raise DataError(
        f"load_mat: expected at most {reader_module.MAX_BYTES} bytes, got {size}, in {name}"
    )


def _looks(data: bytes) -> str:
    """What a file that is not read looks like."""
    known = {_HDF5: "HDF5 not from MATLAB", b"PK": "a zip file", b"\x93NUMPY": "a .npy file"}
    for start, what in known.items():
        if data.startswith(start):
            return what
    for order in "<>" if len(data) > 20 else "":
        kind, _, _, is_complex, letters = struct.unpack_from(f"{order}5I", data)
        if kind < 5000 and is_complex < 2 and 0 < letters < 256:
            return "version 4"
    if data[:10] == b"MATLAB 7.3":
        return "a damaged one of version 7.3"
    return f"{len(data)} bytes that start with {data[:10]!r}"
