"""MATLAB files, read with care: they come from strangers, and scipy's reader crashes on some."""

import math
import struct
import zlib
from collections.abc import Container, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.datasets.errors import DataError

#: the most bytes of a file, and of all that is unpacked from it
MAX_BYTES = 2**31
#: how deep cells and structs may lie in each other
MAX_DEPTH = 32
_COST = 2048  # bytes that a value counts for beside its data: bounds how many there are
_HDF5 = b"\x89HDF\r\n\x1a\n"
# numbers in files of version 5: types of elements, then classes of arrays
_MATRIX, _COMPRESSED = 14, 15
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_STORED |= {12: "i8", 13: "u8"}
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16-*", 16: "utf-8", 17: "utf-16-*", 18: "utf-32-*"}
_CELL, _STRUCT, _CHAR = 1, 2, 4
_REFUSED = {3: "object", 5: "sparse", 16: "function_handle", 17: "opaque object"}
_NUMBERS = ["double", "single", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
_NUMBERS += ["int64", "uint64"]  # from class 6 on; numpy has the same names
_EMPTY = {"char": str, "cell": list, "struct": list}
_COMPLEX = [numpy.dtype([("real", f), ("imag", f)]) for f in ("<f4", "<f8")]
_KNOWN = {*_NUMBERS, *_EMPTY, "logical", ""}


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
    >>> from scipy.io import savemat
    >>> file = BytesIO()
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
    reader: _Version5 | _Version73
    try:
        if order and version == b"\1\0":
            reader = _Version5(order)
        elif order and version == b"\2\0" and data[512:520] == _HDF5:
            reader = _Version73()
        else:
            raise DataError(f"expected a MATLAB file of version 5 or later, got {_looks(data)}")
        found = reader.variables(data)
        if reader.refused and not found:
            raise DataError(f"expected arrays, got only {', '.join(sorted(reader.refused))}")
    except DataError as error:
        raise DataError(
            f"load_mat: {error}, in {name}; save it again with MATLAB's save -v7"
        ) from error
    except Exception as error:  # zlib, numpy, and h5py in many ways
        raise DataError(
            f"load_mat: expected a MATLAB file, but {name} is damaged: {error!r}"
        ) from error
    return found


def _bytes(path: Path, name: str) -> bytes:
    try:
        if not path.is_file():
            raise FileNotFoundError(f"load_mat: expected a file at {name}, got none")
        if (size := path.stat().st_size) <= MAX_BYTES:
            return path.read_bytes()
    except (FileNotFoundError, PermissionError):
        raise
    except OSError as error:
        raise DataError(f"load_mat: expected to read {name}, got {error}") from error
    raise DataError(f"load_mat: expected at most {MAX_BYTES} bytes, got {size}, in {name}")


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


class _Reader:
    """What both kinds of file need: a count of what may still be unpacked, and of what was not."""

    def __init__(self) -> None:
        self.room = MAX_BYTES
        self.refused: set[str] = set()

    def take(self, count: int) -> None:
        self.room -= count
        if self.room < 0:
            raise DataError(f"expected at most {MAX_BYTES} bytes when unpacked, got more")

    def enter(self, depth: int) -> None:
        self.take(_COST)
        if depth > MAX_DEPTH:
            raise DataError(f"expected values at most {MAX_DEPTH} deep in each other, got more")

    def refuse(self, kind: str) -> Any:
        """None, which stands for a value that is not read."""
        self.refused.add(kind)

    def rows(self, text: str, shape: list[int]) -> str | list[str] | None:
        """Text from its letters column by column."""
        rows, count = shape[0], math.prod(shape)
        # MATLAB counts pairs of bytes, others letters
        if count != len(text) and (rows > 1 or 2 * count != len(text.encode("utf-16-le"))):
            raise DataError(f"expected {count} letters, got {len(text)}")
        if len(shape) > 2:
            return self.refuse("char of three axes")
        self.take(_COST * rows)
        return text if rows == 1 else [text[i::rows] for i in range(rows)]


_Parts = Iterator[tuple[int, memoryview]]


class _Version5(_Reader):
    """Reads data elements in one byte order, ``<`` or ``>``."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order

    def variables(self, data: bytes) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for kind, content in self.elements(memoryview(data)[128:]):
            if kind not in (_MATRIX, _COMPRESSED):
                raise DataError(f"expected variables, got an element of type {kind}")
            if kind == _COMPRESSED:
                content = self.inflated(content)
            name, value = self.matrix(content, 0)
            if name in found:
                raise DataError(f"expected each variable once, got {name!r} twice")
            if name and value is not None:  # those without a name are MATLAB's own
                found[name] = value
        return found

    def elements(self, data: memoryview) -> _Parts:
        """The types and contents of elements that follow each other."""
        at = 0
        while at < len(data):
            if len(data) < at + 8:
                raise DataError("expected an element, got the end")
            kind, size = struct.unpack_from(f"{self.order}2I", data, at)
            if kind >> 16:  # small: size, type and content in eight bytes
                kind, size, at, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
            else:
                at, end = at + 8, at + 8 + size + (-size % 8 if kind != _COMPRESSED else 0)
            if size > min(end, len(data)) - at:
                raise DataError(f"expected {size} bytes, got {min(end, len(data)) - at}")
            yield kind, data[at : at + size]
            at = end

    def inflated(self, data: memoryview) -> memoryview:
        """The content of the matrix that a compressed element holds."""
        stream = zlib.decompressobj()
        head = stream.decompress(data, 8)
        kind, size = struct.unpack(f"{self.order}2I", head)
        if kind != _MATRIX:
            raise DataError(f"expected a compressed variable, got an element of type {kind}")
        self.take(size)
        content = stream.decompress(stream.unconsumed_tail, size) if size else b""
        rest = stream.decompress(stream.unconsumed_tail, 8)  # padding; then the sum is checked
        if len(content) < size or len(rest) == 8 or not stream.eof:
            raise DataError(f"expected {size} compressed bytes, got more or fewer")
        return memoryview(content)

    def matrix(self, data: memoryview, depth: int) -> tuple[str, Any]:
        """The name and value of an array of any class."""
        self.enter(depth)
        if not data:
            return "", numpy.zeros((0, 0))
        parts = self.elements(data)
        flags = self.integers(parts)[0]
        kind = flags & 0xFF
        if kind in _REFUSED:
            return "", self.refuse(_REFUSED[kind])
        shape = self.integers(parts)
        if len(shape) < 2 or min(shape) < 0:
            raise DataError(f"expected the shape of an array, got {shape}")
        name = _name(self.part(parts, (1, 2, 16))[1])
        if kind == _CELL:
            return name, [self.item(parts, depth) for _ in range(math.prod(shape))]
        if kind == _STRUCT:
            return name, self.structs(parts, math.prod(shape), depth)
        if kind == _CHAR:
            return name, self.text(parts, shape)
        if not 6 <= kind < 6 + len(_NUMBERS):
            raise DataError(f"expected an array, got class {kind}")
        return name, self.array(parts, shape, _NUMBERS[kind - 6], flags)

    def part(self, parts: _Parts, kinds: Container[int]) -> tuple[int, memoryview]:
        kind, data = next(parts, (0, memoryview(b"")))
        if kind not in kinds:
            raise DataError(f"expected another part of an array, got type {kind}")
        return kind, data

    def numbers(self, parts: _Parts) -> NDArray[Any]:
        kind, data = self.part(parts, _STORED)
        dtype = numpy.dtype(self.order + _STORED[kind])
        if len(data) % dtype.itemsize:
            raise DataError(f"expected numbers of {dtype.itemsize} bytes, got {len(data)} bytes")
        return numpy.frombuffer(data, dtype)

    def integers(self, parts: _Parts) -> list[int]:
        """One to 32 integers of a header."""
        values = self.numbers(parts)
        if not 0 < len(values) <= 32 or values.dtype.kind == "f":
            raise DataError(f"expected the header of an array, got {len(values)} numbers")
        return values.tolist()

    def item(self, parts: _Parts, depth: int) -> Any:
        return self.matrix(self.part(parts, (_MATRIX,))[1], depth + 1)[1]

    def structs(self, parts: _Parts, count: int, depth: int) -> Any:
        length, names = max(1, self.integers(parts)[0]), self.part(parts, (1, 2, 16))[1]
        self.take(_COST * (len(names) // length))
        fields = [_name(names[i : i + length]) for i in range(0, len(names), length)]
        if len(set(fields)) < len(fields) or (count > 1 and not fields):
            raise DataError(f"expected the fields of {count} structs, got {len(fields)} names")
        found = [{f: self.item(parts, depth) for f in fields} for _ in range(count)]
        return found[0] if count == 1 else found

    def text(self, parts: _Parts, shape: list[int]) -> Any:
        if 0 in shape:
            return ""
        kind, data = self.part(parts, _TEXT)
        self.take(4 * len(data))
        codec = _TEXT[kind].replace("*", "le" if self.order == "<" else "be")
        return self.rows(str(data, codec, "replace"), shape)

    def array(self, parts: _Parts, shape: list[int], kind: str, flags: int) -> NDArray[Any]:
        is_complex, is_logical = bool(flags & 0x800), flags & 0x200
        count = math.prod(shape)
        self.take(count * numpy.dtype(kind).itemsize * (1 + is_complex))
        found = []
        for _ in range(1 + is_complex):
            values = self.numbers(parts) if count else numpy.zeros(0)
            if len(values) != count:
                raise DataError(f"expected {count} numbers, got {len(values)}")
            found.append(values.reshape(shape, order="F"))
        X = _array(found, kind)
        return X != 0 if is_logical else X


def _name(data: memoryview) -> str:
    return bytes(data).split(b"\0")[0].decode("utf-8", "replace")


def _array(parts: list[NDArray[Any]], kind: Any) -> NDArray[Any]:
    """The array of a class that has these values, or these real and imaginary parts."""
    with numpy.errstate(all="ignore"):  # what a cast changes is seen below
        cast = [numpy.array(part, kind, order="C") for part in parts]
    for part, X in zip(parts, cast):
        if X.dtype.kind in "iu" and X.dtype != part.dtype and not (part == X).all():
            raise DataError(f"expected numbers of class {X.dtype}, got others")
    if len(cast) == 1:
        return cast[0]
    X = numpy.empty(cast[0].shape, numpy.result_type(cast[0], numpy.complex64))
    X.real, X.imag = cast
    return X


class _Column(list[Any]):
    """A field of an array of structs in version 7.3."""


class _Version73(_Reader):
    """Reads HDF5 as MATLAB writes it: axes in reverse, cells as references."""

    def variables(self, data: bytes) -> dict[str, Any]:
        try:
            import h5py
        except ImportError as error:
            raise DataError(
                "expected h5py for version 7.3, got none: install spdnet[hdf5]"
            ) from error
        self.h5, self.data = h5py, memoryview(data)
        with h5py.File(BytesIO(data), "r") as self.file:
            found = self.members(self.file, 0)
        return {name: value for name, value in found.items() if value is not None}

    def members(self, group: Any, depth: int) -> dict[str, Any]:
        found = {}
        for key in group:
            if depth == 0 and key in ("#refs#", "#subsystem#"):
                continue
            if not isinstance(group.get(key, getlink=True), self.h5.HardLink):
                raise DataError(f"expected data, got the link {key!r}")
            found[key.encode("utf-8", "replace").decode()] = self.value(group[key], depth)
        return found

    def value(self, item: Any, depth: int) -> Any:
        self.enter(depth)
        kind = self.attribute(item, "MATLAB_class") or ""
        if isinstance(item, self.h5.Dataset):
            return self.dataset(item, str(kind), depth)
        if not isinstance(item, self.h5.Group) or kind not in ("", "struct"):
            return self.refuse("sparse" if kind in _NUMBERS else str(kind) or "type")
        fields = self.members(item, depth + 1)
        if fields and all(isinstance(column, _Column) for column in fields.values()):
            return [dict(zip(fields, row)) for row in zip(*fields.values(), strict=True)]
        return fields

    def dataset(self, item: Any, kind: str, depth: int) -> Any:
        if kind not in _KNOWN:
            return self.refuse(kind)
        self.check_storage(item)
        dtype = item.dtype
        is_reference = self.h5.check_ref_dtype(dtype) is self.h5.Reference
        is_complex = dtype in _COMPLEX
        is_array = is_reference or is_complex or (dtype.kind in "biuf" and dtype.itemsize <= 8)
        if item.shape is None or not is_array:
            return self.refuse(str(dtype))
        X = numpy.asarray(item[()])
        if is_reference:
            values = [self.value(self.file[to], depth + 1) for to in X.ravel()]
            return values if kind == "cell" else _Column(values)
        if self.attribute(item, "MATLAB_empty"):  # the data are the shape
            if kind in _EMPTY:
                return _EMPTY[kind]()
            if 0 not in X:
                raise DataError("expected an empty array, got its shape without 0")
            X = numpy.zeros(X.ravel()[::-1].tolist())
        if kind == "char":
            text = str(X.astype("<u2").tobytes(), "utf-16-le", "replace")
            return self.rows(text, list(X.shape[::-1]))
        parts = [X["real"].T, X["imag"].T] if is_complex else [X.T]
        found = _array(parts, kind if kind in _NUMBERS else parts[0].dtype.newbyteorder("="))
        return found != 0 if kind == "logical" else found

    def check_storage(self, item: Any) -> None:
        """Refuse what opens other files, takes too much, or crashes libhdf5."""
        plan, size = item.id.get_create_plist(), item.id.get_type().get_size()
        if not self.is_plain(item.id):
            raise DataError(f"expected plain numbers, got others like {item.dtype}")
        if plan.get_layout() == self.h5.h5d.VIRTUAL or plan.get_external_count() > 0:
            raise DataError("expected data in the file itself, got a place outside of it")
        filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
        if filters not in ([], [1], [2, 1]):  # deflated, and shuffled before
            raise DataError(f"expected deflated data, got filters {filters}")
        self.take(math.prod(item.shape or ()) * size)
        chunks: list[Any] = []
        if item.chunks is not None:
            item.id.chunk_iter(chunks.append)
            size *= math.prod(item.chunks)
            self.take(size * max(1, len(chunks)))
        for chunk in chunks:
            data = self.data[chunk.byte_offset :][: chunk.size]
            found = len(zlib.decompressobj().decompress(data, size + 1) if filters else data)
            if found != size or chunk.filter_mask:
                raise DataError(f"expected chunks of {size} bytes, got {found}")

    def is_plain(self, data: Any) -> bool:
        """Whether libhdf5 has nothing to convert, which crashes it if a type is damaged."""
        return self.h5.h5t.py_create(data.dtype, logical=True).equal(data.get_type())

    def attribute(self, item: Any, name: str) -> Any:
        """A number or text that MATLAB attaches; None without."""
        if name not in item.attrs:
            return None
        data = item.attrs.get_id(name)
        if data.shape != () or data.dtype.kind not in "Siu" or not self.is_plain(data):
            raise DataError(f"expected {name} to be plain, got {data.dtype} of shape {data.shape}")
        value = item.attrs[name]
        return value.decode("latin-1") if isinstance(value, bytes) else value
