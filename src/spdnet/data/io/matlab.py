"""Reading of MATLAB files with checks of all declared sizes and types.

scipy's reader crashes the interpreter on some damaged files, so versions 5 to 7 are parsed here;
version 7.3 is HDF5 and is read by h5py: see :mod:`spdnet.data.io.matlab73`.
"""

import math
import struct
import zlib
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError, converting
from spdnet.data.io.arrays import SMALL_ARRAY
from spdnet.data.io.files import is_bomb

#: largest file, and largest total of decompressed data
MAX_BYTES = 2**31
#: largest nesting of cells and structs
MAX_DEPTH = 32
#: bytes that each value counts in addition to its data, to bound the number of values
COST = 2048
#: array classes from number 6 on, which are also names of numpy types
NUMBERS = ["double", "single", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
NUMBERS += ["int64", "uint64"]
_HDF5 = b"\x89HDF\r\n\x1a\n"
# codes of data elements, then of array classes
_MATRIX, _COMPRESSED = 14, 15
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_STORED |= {12: "i8", 13: "u8"}
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16-*", 16: "utf-8", 17: "utf-16-*", 18: "utf-32-*"}
_CELL, _STRUCT, _CHAR = 1, 2, 4
_REFUSED = {3: "object", 5: "sparse", 16: "function_handle", 17: "opaque object"}

_Parts = Iterator[tuple[int, memoryview]]


def load_mat(
    file: str | Path | bytes | bytearray | memoryview, name: str | None = None
) -> dict[str, Any]:
    """Return the variables of a MATLAB file by name.

    ========================  ==============================================================
    numbers, real or complex  array with the axes of MATLAB, at least two
    logical                   array of bool
    char                      str; list of str if there are several rows
    cell                      list, column by column
    struct                    dict; list of dict, column by column, unless it is 1 by 1
    sparse, function handle,  omitted, and None inside a cell or struct; an error if the file
    object, char of 3 axes    has nothing else
    ========================  ==============================================================

    Nothing in the file is executed, and no other file is opened. ``name`` is used in messages.
    """
    if isinstance(file, str | Path):
        name = name or str(file)
        data = _bytes(Path(file), name)
    else:
        name = name or "the file"
        data = file if isinstance(file, bytes) else bytes(memoryview(file))
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128], "")
    version = data[124:126][:: -1 if order == "<" else 1]
    reader: Any
    try:
        if order and version == b"\1\0":
            reader = Version5(order)
        elif order and version == b"\2\0" and data[512:520] == _HDF5:
            from spdnet.data.io.matlab73 import Version73

            reader = Version73()
        else:
            raise DataError(
                f"expected a MATLAB file of version 5 or later, got {_describe_format(data)}"
            )
        found = reader.variables(data)
    except DataError as error:
        raise DataError(
            f"load_mat: {error}, in {name}; save it again with MATLAB's save -v7"
        ) from error
    except Exception as error:  # zlib, numpy and h5py raise many types
        raise DataError(
            f"load_mat: expected a MATLAB file, but {name} is damaged: {error!r}"
        ) from error
    if reader.refused and not found:
        raise DataError(
            f"load_mat: expected arrays, got only {', '.join(sorted(reader.refused))}, in {name}; "
            "convert them in MATLAB, for example with full(X) or double(X), and save again"
        )
    return found


def _bytes(path: Path, name: str) -> bytes:
    with converting(f"load_mat: expected to read {name}"):
        if not path.is_file():
            raise FileNotFoundError(f"load_mat: expected a file at {name}, got none")
        if (size := path.stat().st_size) > MAX_BYTES:
            raise DataError(f"load_mat: expected at most {MAX_BYTES} bytes, got {size}, in {name}")
        return path.read_bytes()


def _describe_format(data: bytes) -> str:
    """Describe the format of a file that is not a supported MATLAB file."""
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


class Reader:
    """Base class with the limits and conversions that are common to all versions."""

    def __init__(self) -> None:
        self.left = MAX_BYTES
        self.refused: set[str] = set()

    def take(self, count: int) -> None:
        """Subtract decompressed bytes from the limit."""
        self.left -= count
        if self.left < 0:
            raise DataError(f"expected at most {MAX_BYTES} bytes when unpacked, got more")

    def enter(self, depth: int) -> None:
        """Count a value and check its depth."""
        self.take(COST)
        if depth > MAX_DEPTH:
            raise DataError(f"expected a nesting depth of at most {MAX_DEPTH}, got more")

    def refuse(self, kind: str) -> Any:
        """Record a value that is not supported, and return None for it."""
        self.refused.add(kind)

    def rows(self, text: str, shape: list[int]) -> str | list[str] | None:
        """Return the rows of a char array, given column by column."""
        rows, count = shape[0], math.prod(shape)
        # MATLAB counts UTF-16 units, other programs characters
        if count != len(text) and (rows > 1 or 2 * count != len(text.encode("utf-16-le"))):
            raise DataError(f"expected {count} characters, got {len(text)}")
        if len(shape) > 2:
            return self.refuse("char of three axes")
        self.take(COST * rows)
        return text if rows == 1 else [text[i::rows] for i in range(rows)]


def make_array(parts: list[NDArray[Any]], kind: Any) -> NDArray[Any]:
    """Return an array of a class from its values, or from real and imaginary parts."""
    with numpy.errstate(all="ignore"):  # changed values are detected below
        cast = [numpy.array(part, kind, order="C") for part in parts]
    for part, X in zip(parts, cast):
        if X.dtype.kind in "iu" and X.dtype != part.dtype and not (part == X).all():
            raise DataError(f"expected numbers that fit the class {X.dtype}, got others")
    if len(cast) == 1:
        return cast[0]
    X = numpy.empty(cast[0].shape, numpy.result_type(cast[0], numpy.complex64))
    X.real, X.imag = cast
    return X


class Version5(Reader):
    """Reader of data elements in byte order ``<`` or ``>``."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order

    def variables(self, data: bytes) -> dict[str, Any]:
        """Return all variables by name."""
        found: dict[str, Any] = {}
        for kind, content in self.elements(memoryview(data)[128:]):
            if kind not in (_MATRIX, _COMPRESSED):
                raise DataError(f"expected variables, got an element of type {kind}")
            if kind == _COMPRESSED:
                content = self.decompress(content)
            name, value = self.matrix(content, 0)
            if name in found:
                raise DataError(f"expected each variable once, got {name!r} twice")
            if name and value is not None:  # internal variables of MATLAB have no name
                found[name] = value
        return found

    def elements(self, data: memoryview) -> _Parts:
        """Yield the types and contents of consecutive elements."""
        at = 0
        while at < len(data):
            if len(data) < at + 8:
                raise DataError("expected an element, got the end of the file")
            kind, size = struct.unpack_from(f"{self.order}2I", data, at)
            if kind >> 16:  # small: size, type and content in eight bytes
                kind, size, at, end = kind & 0xFFFF, kind >> 16, at + 4, at + 8
            else:
                at, end = at + 8, at + 8 + size + (-size % 8 if kind != _COMPRESSED else 0)
            if size > min(end, len(data)) - at:
                raise DataError(f"expected {size} bytes, got {min(end, len(data)) - at}")
            yield kind, data[at : at + size]
            at = end

    def decompress(self, data: memoryview) -> memoryview:
        """Decompress the variable in an element."""
        stream = zlib.decompressobj()
        head = stream.decompress(data, 8)
        kind, size = struct.unpack(f"{self.order}2I", head)
        if kind != _MATRIX:
            raise DataError(f"expected a compressed variable, got an element of type {kind}")
        self.take(size)
        if is_bomb(size, len(data), SMALL_ARRAY):
            raise DataError(
                f"expected at most 100-fold compression, got {size} bytes in {len(data)}"
            )
        content = stream.decompress(stream.unconsumed_tail, size) if size else b""
        rest = stream.decompress(stream.unconsumed_tail, 8)  # padding and checksum
        if len(content) < size or len(rest) == 8 or not stream.eof:
            raise DataError(f"expected {size} compressed bytes, got more or fewer")
        return memoryview(content)

    def matrix(self, data: memoryview, depth: int) -> tuple[str, Any]:
        """Return the name and value of an array of any class."""
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
        if not 6 <= kind < 6 + len(NUMBERS):
            raise DataError(f"expected an array, got class {kind}")
        return name, self.array(parts, shape, NUMBERS[kind - 6], flags)

    def part(self, parts: _Parts, kinds: Container[int]) -> tuple[int, memoryview]:
        """Return the next element, which must have one of these types."""
        kind, data = next(parts, (0, memoryview(b"")))
        if kind not in kinds:
            raise DataError(f"expected another part of an array, got type {kind}")
        return kind, data

    def numbers(self, parts: _Parts) -> NDArray[Any]:
        """Return the next element as an array."""
        kind, data = self.part(parts, _STORED)
        dtype = numpy.dtype(self.order + _STORED[kind])
        if len(data) % dtype.itemsize:
            raise DataError(f"expected numbers of {dtype.itemsize} bytes, got {len(data)} bytes")
        return numpy.frombuffer(data, dtype)

    def integers(self, parts: _Parts) -> list[int]:
        """Return one to 32 integers of a header."""
        values = self.numbers(parts)
        if not 0 < len(values) <= 32 or values.dtype.kind == "f":
            raise DataError(f"expected the header of an array, got {len(values)} numbers")
        return values.tolist()

    def item(self, parts: _Parts, depth: int) -> Any:
        """Return the next value of a cell or struct."""
        return self.matrix(self.part(parts, (_MATRIX,))[1], depth + 1)[1]

    def structs(self, parts: _Parts, count: int, depth: int) -> Any:
        """Return a struct, or a list of them."""
        length, names = max(1, self.integers(parts)[0]), self.part(parts, (1, 2, 16))[1]
        self.take(COST * (len(names) // length))
        fields = [_name(names[i : i + length]) for i in range(0, len(names), length)]
        if len(set(fields)) < len(fields) or (count > 1 and not fields):
            raise DataError(f"expected the fields of {count} structs, got {len(fields)} names")
        found = [{f: self.item(parts, depth) for f in fields} for _ in range(count)]
        return found[0] if count == 1 else found

    def text(self, parts: _Parts, shape: list[int]) -> Any:
        """Return a char array."""
        if 0 in shape:
            return ""
        kind, data = self.part(parts, _TEXT)
        self.take(4 * len(data))
        codec = _TEXT[kind].replace("*", "le" if self.order == "<" else "be")
        return self.rows(str(data, codec, "replace"), shape)

    def array(self, parts: _Parts, shape: list[int], kind: str, flags: int) -> NDArray[Any]:
        """Return a numeric array."""
        is_complex, is_logical = bool(flags & 0x800), flags & 0x200
        count = math.prod(shape)
        self.take(count * numpy.dtype(kind).itemsize * (1 + is_complex))
        found = []
        for _ in range(1 + is_complex):
            values = self.numbers(parts) if count else numpy.zeros(0)
            if len(values) != count:
                raise DataError(f"expected {count} numbers, got {len(values)}")
            found.append(values.reshape(shape, order="F"))
        X = make_array(found, kind)
        return X != 0 if is_logical else X


def _name(data: memoryview) -> str:
    return bytes(data).split(b"\0")[0].decode("utf-8", "replace")
