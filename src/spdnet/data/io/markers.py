"""Marker positions from C3D files of motion capture."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError, decoding


def read_c3d(file: str | Path) -> tuple[NDArray[Any], list[str]]:
    """Read the positions of markers.

    Positions of a hidden marker, which has a negative residual, are interpolated in time and
    constant at both ends.

    Returns
    -------
    positions : array, shape (T, M, 3)
        In the unit of the file.
    names : list of str
        Labels of the markers; ``point 1`` and so on if there are none.
    """
    points: list[NDArray[Any]] = []
    with decoding("read_c3d: expected a C3D file", file, "c3d"), warnings.catch_warnings():
        import c3d

        # all warnings concern the positions, except these
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("error", RuntimeWarning)
        harmless = "No analog data|missing parameter|Repeated group|no pointer|incomplete reading"
        warnings.filterwarnings("ignore", harmless)
        reader = c3d.Reader(io.BytesIO(Path(file).read_bytes()))
        M, T = int(reader.point_used), int(reader.frame_count)
        if M:  # without points, the frames of a damaged file never end
            points.extend(frame[:, :4] for _, frame, _ in reader.read_frames())
        labels = reader.get("POINT:LABELS")
        names = [] if labels is None else [str(name).strip() for name in labels.string_array]
    if not points or len(points) != T:
        raise DataError(
            f"read_c3d: expected {T} frames of points in {file}, got {len(points)} frames of {M} "
            "points; it is truncated or empty"
        )
    names = [*names[:M], *(f"point {i + 1}" for i in range(len(names), M))]
    values = numpy.stack(points).astype(numpy.float64)
    seen = numpy.isfinite(values).all(-1) & (values[..., 3] >= 0)
    if lost := [names[i] for i in numpy.flatnonzero(~seen.any(0))]:
        raise DataError(
            f"read_c3d: expected every marker in some frame of {file}, got none of "
            f"{', '.join(lost[:5])}; remove these markers from the file"
        )
    positions, times = values[..., :3], numpy.arange(T)
    for marker in numpy.flatnonzero(~seen.all(0)):
        known = seen[:, marker]
        for axis in range(3):
            at = positions[known, marker, axis]
            positions[:, marker, axis] = numpy.interp(times, times[known], at)
    return positions, names
