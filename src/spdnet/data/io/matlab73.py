"""Reading of the arrays in MATLAB files of version 7.3, which are HDF5."""

import math
import zlib
from io import BytesIO
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError
from spdnet.data.io.arrays import HARMLESS
from spdnet.data.io.files import is_bomb
from spdnet.data.io.matlab import COST, NUMBERS, Reader, make_array

_COMPLEX = [numpy.dtype([("real", f), ("imag", f)]) for f in ("<f4", "<f8")]


class Version73(Reader):
    """Reader of the arrays in MATLAB's HDF5, whose axes are reversed."""

    def variables(self, data: bytes) -> dict[str, Any]:
        """Return all variables by name."""
        try:
            import h5py
        except ImportError as error:
            raise DataError(
                "expected h5py for version 7.3, got none: install spdnet[hdf5]"
            ) from error
        self.h5, self.data = h5py, memoryview(data)
        found = {}
        with h5py.File(BytesIO(data), "r") as file:
            for key in file:
                if key in ("#refs#", "#subsystem#"):
                    continue
                if not isinstance(file.get(key, getlink=True), h5py.HardLink):
                    raise DataError(f"expected data, got the link {key!r}")
                found[key.encode("utf-8", "backslashreplace").decode()] = self.value(file[key])
        return {name: value for name, value in found.items() if value is not None}

    def value(self, item: Any) -> Any:
        """Return an array; None for everything else."""
        self.take(COST)
        kind = str(self.attribute(item, "MATLAB_class") or "")
        if not isinstance(item, self.h5.Dataset):
            return self.refuse("sparse" if kind in (*NUMBERS, "logical") else kind or "struct")
        if kind not in (*NUMBERS, "logical", ""):
            return self.refuse(kind)
        self.check_storage(item)
        dtype = item.dtype
        is_complex = dtype in _COMPLEX
        if item.shape is None or not (is_complex or (dtype.kind in "biuf" and dtype.itemsize <= 8)):
            return self.refuse(str(dtype))
        X = numpy.asarray(item[()])
        if self.attribute(item, "MATLAB_empty"):  # the data are the shape
            return self.empty(X.ravel(), kind)
        parts = [X["real"].T, X["imag"].T] if is_complex else [X.T]
        found = make_array(parts, kind if kind in NUMBERS else parts[0].dtype.newbyteorder("="))
        return found != 0 if kind == "logical" else found

    def empty(self, shape: NDArray[Any], kind: str) -> NDArray[Any]:
        """Return an array without entries."""
        if shape.dtype.kind not in "iu" or len(shape) > 32 or 0 not in shape or (shape < 0).any():
            raise DataError("expected the shape of an empty array, got other numbers, without 0")
        return numpy.zeros(shape.tolist(), {"logical": "?", "": "f8"}.get(kind, kind))

    def check_storage(self, item: Any) -> None:
        """Raise an error for data that open other files, are too large, or crash libhdf5."""
        plan, size = item.id.get_create_plist(), item.id.get_type().get_size()
        if not self.is_plain(item.id):
            raise DataError(f"expected plain numbers, got others like {item.dtype}")
        if plan.get_layout() == self.h5.h5d.VIRTUAL or plan.get_external_count() > 0:
            raise DataError("expected data in the file itself, got a place outside of it")
        filters = [plan.get_filter(i)[0] for i in range(plan.get_nfilters())]
        if filters not in ([], [1], [2, 1]):  # deflate, and shuffle before it
            raise DataError(f"expected deflated data, got filters {filters}")
        whole, there = math.prod(item.shape or ()) * size, item.id.get_storage_size()
        self.take(whole)
        if is_bomb(whole, there, HARMLESS):
            raise DataError(f"expected a harmless variable, got {whole} bytes packed in {there}")
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
        """Return True if libhdf5 converts nothing: it crashes on damaged types."""
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
