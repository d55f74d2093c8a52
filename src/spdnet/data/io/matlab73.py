"""Reading of MATLAB files of version 7.3, which are HDF5 files."""

import math
import zlib
from io import BytesIO
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError
from spdnet.data.io.arrays import SMALL_ARRAY
from spdnet.data.io.files import is_bomb
from spdnet.data.io.matlab import COST, NUMBERS, Reader, make_array

_EMPTY = {"char": str, "cell": list}
_COMPLEX = [numpy.dtype([("real", f), ("imag", f)]) for f in ("<f4", "<f8")]
_KNOWN = {*NUMBERS, *_EMPTY, "struct", "logical", ""}
_BLANK = "canonical empty"  # the class of cells that were never set


class _Column(list[Any]):
    """Field of an array of structs."""


class Version73(Reader):
    """Reader of MATLAB's HDF5 files, in which axes are reversed and cells are references."""

    def variables(self, data: bytes) -> dict[str, Any]:
        """Return all variables by name."""
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
        """Return the values of a group by name."""
        found = {}
        for key in group:
            if depth == 0 and key in ("#refs#", "#subsystem#"):
                continue
            if not isinstance(group.get(key, getlink=True), self.h5.HardLink):
                raise DataError(f"expected data, got the link {key!r}")
            found[key.encode("utf-8", "backslashreplace").decode()] = self.value(group[key], depth)
        return found

    def value(self, item: Any, depth: int) -> Any:
        """Convert an object of the file."""
        self.enter(depth)
        kind = str(self.attribute(item, "MATLAB_class") or "")
        if isinstance(item, self.h5.Dataset):
            return self.dataset(item, "double" if kind == _BLANK else kind, depth)
        if not isinstance(item, self.h5.Group) or kind not in ("", "struct"):
            is_sparse = kind in (*NUMBERS, "logical")
            return self.refuse("sparse" if is_sparse else kind or "type")
        fields = self.members(item, depth + 1)
        if fields and all(isinstance(column, _Column) for column in fields.values()):
            return [dict(zip(fields, row)) for row in zip(*fields.values(), strict=True)]
        return fields

    def dataset(self, item: Any, kind: str, depth: int) -> Any:
        """Convert numbers, text or cells."""
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
            return self.empty(X.ravel(), kind)
        if kind == "char":
            text = str(X.astype("<u2").tobytes(), "utf-16-le", "replace")
            return self.rows(text, list(X.shape[::-1]))
        parts = [X["real"].T, X["imag"].T] if is_complex else [X.T]
        found = make_array(parts, kind if kind in NUMBERS else parts[0].dtype.newbyteorder("="))
        return found != 0 if kind == "logical" else found

    def empty(self, shape: NDArray[Any], kind: str) -> Any:
        """Return an empty value, or structs without fields."""
        if shape.dtype.kind not in "iu" or len(shape) > 32 or (shape < 0).any():
            raise DataError("expected the shape of an empty array, got other numbers")
        if kind in _EMPTY:
            return _EMPTY[kind]()
        count = math.prod(shape.tolist())
        if kind == "struct":
            self.take(COST * count)
            return {} if count == 1 else [{} for _ in range(count)]
        if count:
            raise DataError("expected an empty array, got its shape without 0")
        return numpy.zeros(shape.tolist(), {"logical": "?", "": "f8"}.get(kind, kind))

    def check_storage(self, item: Any) -> None:
        """Raise an error for data that refer to other files, are too large, or crash libhdf5."""
        plan, size = item.id.get_create_plist(), item.id.get_type().get_size()
        if not self.is_plain(item.id):
            raise DataError(f"expected numbers of a standard type, got {item.dtype}")
        if plan.get_layout() == self.h5.h5d.VIRTUAL or plan.get_external_count() > 0:
            raise DataError("expected data in the file itself, got a reference to another file")
        filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
        if filters not in ([], [1], [2, 1]):  # deflate, and shuffle before it
            raise DataError(f"expected deflated data, got filters {filters}")
        whole, there = math.prod(item.shape or ()) * size, item.id.get_storage_size()
        self.take(whole)
        if is_bomb(whole, there, SMALL_ARRAY):
            raise DataError(f"expected at most 100-fold compression, got {whole} bytes in {there}")
        chunks: list[Any] = []
        if item.chunks is not None:
            item.id.chunk_iter(chunks.append)
            size *= math.prod(item.chunks)
            self.take(max(0, size * max(1, len(chunks)) - whole))  # chunks extend beyond the edges
        for chunk in chunks:
            data = self.data[chunk.byte_offset :][: chunk.size]
            found = len(zlib.decompressobj().decompress(data, size + 1) if filters else data)
            if found != size or chunk.filter_mask:
                raise DataError(f"expected chunks of {size} bytes, got {found}")

    def is_plain(self, data: Any) -> bool:
        """Return whether libhdf5 needs no type conversion, which crashes on damaged types."""
        return self.h5.h5t.py_create(data.dtype, logical=True).equal(data.get_type())

    def attribute(self, item: Any, name: str) -> Any:
        """Return an attribute, an integer or text; None if it is missing."""
        if name not in item.attrs:
            return None
        data = item.attrs.get_id(name)
        kind = data.get_type()
        if data.get_space().get_simple_extent_npoints() != 1 or not (
            self.is_text(kind) or (data.dtype.kind in "iu" and self.is_plain(data))
        ):
            raise DataError(
                f"expected {name} to be an integer or text of fixed length, got {data.dtype} of "
                f"shape {data.shape}"
            )
        value = numpy.empty(data.shape, data.dtype)
        data.read(value, mtype=kind)  # as stored, without a conversion by libhdf5
        if not self.is_text(kind):
            return value.item()
        return value.tobytes().split(b"\0")[0].rstrip(b" ").decode("latin-1")

    def is_text(self, kind: Any) -> bool:
        """Return True for text of fixed length with any padding and character set."""
        # libhdf5 may never return from a damaged heap of text of variable length
        return isinstance(kind, self.h5.h5t.TypeStringID) and not kind.is_variable_str()
