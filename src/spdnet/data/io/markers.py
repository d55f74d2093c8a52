"""Motion capture in C3D files: positions of markers."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError, decoding


def read_c3d(file: str | Path, *, drop_unseen: bool = False) -> tuple[NDArray[Any], list[str]]:
    """Positions of markers.

    Where a marker is not seen (its residual is negative) its position is interpolated between the
    frames before and after, or is the nearest one at the beginning and the end.

    Parameters
    ----------
    file : path
    drop_unseen : bool
        Leave out markers that no frame has seen, which are an error otherwise.

    Returns
    -------
    positions : array, shape (T, M, 3)
        In the unit of the file.
    names : list of str
        Of the markers; those without a label are called ``point 1`` and so on.

    Raises
    ------
    DataError
    """
    points: list[NDArray[Any]] = []
    with decoding("read_c3d: expected a C3D file", file, "c3d"), warnings.catch_warnings():
        import c3d

        # what it warns of concerns the positions, unless it is one of these
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("error", RuntimeWarning)
        harmless = "No analog data|missing parameter|Repeated group|no pointer|incomplete reading"
        warnings.filterwarnings("ignore", harmless)
        reader = c3d.Reader(io.BytesIO(Path(file).read_bytes()))
        M, T = int(reader.point_used), int(reader.frame_count)
        if M:  # without points nothing would end the frames of a damaged file
            points.extend(frame[:, :4] for _, frame, _ in reader.read_frames())
        labels = reader.get("POINT:LABELS")
        names = [] if labels is None else [str(name).strip() for name in labels.string_array]
    if not points or len(points) != T:
        raise DataError(
            f"read_c3d: expected {T} frames of points in {file}, got {len(points)} frames of {M} "
            "points; it is cut short or empty"
        )
    names = [*names[:M], *(f"point {i + 1}" for i in range(len(names), M))]
    values = numpy.stack(points).astype(numpy.float64)
    seen = numpy.isfinite(values).all(-1) & (values[..., 3] >= 0)
    kept = numpy.flatnonzero(seen.any(0))
    if len(kept) == 0 or (len(kept) < M and not drop_unseen):
        lost = [names[i] for i in range(M) if i not in kept]
        raise DataError(
            f"read_c3d: expected every marker in some frame of {file}, got none of "
            f"{', '.join(lost[:5])}; drop_unseen=True leaves out some, not all"
        )
    return _filled(values[:, kept, :3], seen[:, kept]), [names[i] for i in kept]


def _filled(positions: NDArray[Any], seen: NDArray[Any]) -> NDArray[Any]:
    """Positions (T, M, 3) interpolated in time where not seen (T, M)."""
    times = numpy.arange(len(positions))
    for marker in numpy.flatnonzero(~seen.all(0)):
        known = seen[:, marker]
        for axis in range(3):
            values = positions[known, marker, axis]
            positions[:, marker, axis] = numpy.interp(times, times[known], values)
    return positions
