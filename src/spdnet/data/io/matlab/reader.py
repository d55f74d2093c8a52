"""What files of all versions have in common: limits, and the making of arrays."""

import math
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError

#: the most bytes of a file, and of all that is unpacked from it
MAX_BYTES = 2**31
#: how deep cells and structs may lie in each other
MAX_DEPTH = 32
#: bytes that a value counts for beside its data: bounds how many there are
COST = 2048
#: classes of arrays, from number 6 on; numpy has the same names
NUMBERS = ["double", "single", "int8", "uint8", "int16", "uint16", "int32", "uint32"]
NUMBERS += ["int64", "uint64"]


class Reader:
    """What both kinds of file need: a count of what may still be unpacked, and of what was not."""

    def __init__(self) -> None:
        self.room = MAX_BYTES
        self.refused: set[str] = set()

    def take(self, count: int) -> None:
        """Count bytes that are unpacked."""
        self.room -= count
        if self.room < 0:
            raise DataError(f"expected at most {MAX_BYTES} bytes when unpacked, got more")

    def enter(self, depth: int) -> None:
        """Count a value, and how deep it lies."""
        self.take(COST)
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
        self.take(COST * rows)
        return text if rows == 1 else [text[i::rows] for i in range(rows)]


def make_array(parts: list[NDArray[Any]], kind: Any) -> NDArray[Any]:
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
