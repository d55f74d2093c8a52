"""Files of versions 5 to 7: data elements one after another, some of them compressed."""

import math
import struct
import zlib
from collections.abc import Container, Iterator
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError
from spdnet.data.io.arrays import HARMLESS
from spdnet.data.io.files import is_bomb
from spdnet.data.io.matlab.reader import COST, NUMBERS, Reader, make_array

# numbers in the files: types of elements, then classes of arrays
_MATRIX, _COMPRESSED = 14, 15
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8"}
_STORED |= {12: "i8", 13: "u8"}
_TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16-*", 16: "utf-8", 17: "utf-16-*", 18: "utf-32-*"}
_CELL, _STRUCT, _CHAR = 1, 2, 4
_REFUSED = {3: "object", 5: "sparse", 16: "function_handle", 17: "opaque object"}

_Parts = Iterator[tuple[int, memoryview]]


class Version5(Reader):
    """Reads data elements in one byte order, ``<`` or ``>``."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order

    def variables(self, data: bytes) -> dict[str, Any]:
        """All of a file, by name."""
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
        if is_bomb(size, len(data), HARMLESS):
            raise DataError(f"expected a harmless variable, got {size} bytes packed in {len(data)}")
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
        if not 6 <= kind < 6 + len(NUMBERS):
            raise DataError(f"expected an array, got class {kind}")
        return name, self.array(parts, shape, NUMBERS[kind - 6], flags)

    def part(self, parts: _Parts, kinds: Container[int]) -> tuple[int, memoryview]:
        """The next element, of one of some types."""
        kind, data = next(parts, (0, memoryview(b"")))
        if kind not in kinds:
            raise DataError(f"expected another part of an array, got type {kind}")
        return kind, data

    def numbers(self, parts: _Parts) -> NDArray[Any]:
        """The next element as an array."""
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
        """The next value of a cell or struct."""
        return self.matrix(self.part(parts, (_MATRIX,))[1], depth + 1)[1]

    def structs(self, parts: _Parts, count: int, depth: int) -> Any:
        """A struct, or a list of them."""
        length, names = max(1, self.integers(parts)[0]), self.part(parts, (1, 2, 16))[1]
        self.take(COST * (len(names) // length))
        fields = [_name(names[i : i + length]) for i in range(0, len(names), length)]
        if len(set(fields)) < len(fields) or (count > 1 and not fields):
            raise DataError(f"expected the fields of {count} structs, got {len(fields)} names")
        found = [{f: self.item(parts, depth) for f in fields} for _ in range(count)]
        return found[0] if count == 1 else found

    def text(self, parts: _Parts, shape: list[int]) -> Any:
        """Letters, row by row."""
        if 0 in shape:
            return ""
        kind, data = self.part(parts, _TEXT)
        self.take(4 * len(data))
        codec = _TEXT[kind].replace("*", "le" if self.order == "<" else "be")
        return self.rows(str(data, codec, "replace"), shape)

    def array(self, parts: _Parts, shape: list[int], kind: str, flags: int) -> NDArray[Any]:
        """Numbers of a class."""
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
